# The service with the engines that need no GPU of their own: nearest_exemplar and openai_compatible.
#
#   docker build -f deploy/images/cpu.Dockerfile -t dp-icl:0.1.0 .
#
# PyPI suffices. With an index that has PyTorch's CPU build the image is 3 GB smaller: hand your pip configuration over as a
# secret, which stays out of the image: --secret id=pip,src=pip.conf
#
# Pinned by tag. The digest could not be looked up where this was written: add it (@sha256:...) when you mirror the image.
FROM python:3.11.14-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/dp-icl
ENV PATH=/opt/dp-icl/bin:$PATH
WORKDIR /src
COPY install_lock.py requirements-runtime.lock requirements-torch-cpu.lock ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python install_lock.py requirements-runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY accounting accounting
COPY aggregation aggregation
COPY exemplar_store exemplar_store
COPY sanitization sanitization
COPY service service
COPY spelling spelling
# Of what PyPI's build of PyTorch asks for, the lock leaves out what no CPU loads.
RUN pip install --no-deps --no-build-isolation . \
    && { python -m compileall -qq -j 0 /opt/dp-icl/lib || true; } \
    && { pip check > /tmp/unmet || ! grep -v "^torch " /tmp/unmet; }

# The packages of the environment, to look up later: docker run --rm IMAGE cat /opt/dp-icl/sbom.json
FROM build AS sbom
COPY requirements-sbom.lock ./
RUN python -m venv /opt/sbom
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/sbom/bin/pip install --no-deps --require-hashes -r requirements-sbom.lock
RUN /opt/sbom/bin/cyclonedx-py environment /opt/dp-icl/bin/python --pyproject pyproject.toml --output-reproducible --no-validate \
    -o sbom.json

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="dp-icl" \
      org.opencontainers.image.description="Differentially private in-context learning as a service" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN install -d -o 10001 -g 10001 /var/lib/dp-icl
COPY --from=build /opt/dp-icl /opt/dp-icl
COPY --from=sbom /src/sbom.json /opt/dp-icl/sbom.json
# RAY_...: service/serving/local_ray.py explains each. USER: the audit trail's name for 10001, which has none.
# Caches go to /tmp: with a read-only root file system, only /tmp (Ray, caches) and /var/lib/dp-icl (SQLite) are written.
ENV PATH=/opt/dp-icl/bin:$PATH \
    HOME=/tmp \
    USER=dpicl \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 \
    RAY_enable_metrics_collection=0 \
    RAY_event_stats=0 \
    RAY_automatic_object_spilling_enabled=0 \
    RAY_worker_niceness=0 \
    RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=3 \
    RAY_process_group_cleanup_enabled=1 \
    RAY_worker_register_timeout_seconds=180 \
    RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S=60 \
    RAY_SERVE_USE_GRPC_BY_DEFAULT=1 \
    RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH=2147483647 \
    grpc_proxy= \
    FORWARDED_ALLOW_IPS=
WORKDIR /var/lib/dp-icl
USER 10001:10001
EXPOSE 8080
# No entrypoint: KubeRay gives `ray start`, a job gives `dpicl ...`. No health check: Kubernetes probes by HTTP.
HEALTHCHECK NONE
CMD ["dpicl", "serve", "--host", "0.0.0.0"]
