"""Optional traces, by OpenTelemetry: one span per HTTP request, and none within.

A span shows the route, the method, the status of the response, and the time that the caller waited. Spans of a query's
stages would reveal the time that the engine took over a private sample; the request's own time is padded. No address,
no header, no text and no exception goes into a span. Uploads and deletions have no spans: their results and their times
depend on what is stored.

Active where ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set; the other ``OTEL_...`` variables are OpenTelemetry's own.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.connections import check_certificates, proxy_for
from service.gateway.telemetry.routes import concerns_exemplars, route_pattern

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_CERTIFICATES = ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class TracingNotInstalledError(ValueError):
    """Traces are asked for, and OpenTelemetry is missing."""


class Tracing:
    """Makes and sends spans.

    Args:
        provider: provider of tracers.
    """

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("dpicl", version("dp-icl"))
        self._propagator = TraceContextTextMapPropagator()

    def record(self, scope: Scope, status: int, started_ns: int) -> None:
        """Make the span of a request that has been answered.

        Args:
            scope: ASGI scope of the request, routed.
            status: HTTP status of the response.
            started_ns: time of its arrival, in nanoseconds since 1970.
        """
        from opentelemetry.trace import SpanKind, StatusCode

        route = route_pattern(scope)
        if concerns_exemplars(route):
            return
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"  # a method can be any text, too
        attributes: dict[str, str | int] = {"http.request.method": method, "http.response.status_code": status}
        if route is not None:
            attributes["http.route"] = route
        if (name := scope.get("state", {}).get("request_id")) is not None:
            attributes["dpicl.request_id"] = name
        span = self._tracer.start_span(
            f"{method} {route}" if route else method,
            # The caller's `tracestate` stays out: it is the caller's text.
            self._propagator.extract({"traceparent": Headers(scope=scope).get("traceparent", "")}),
            SpanKind.SERVER,
            attributes,
            start_time=started_ns,
        )
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Send the spans that were not sent yet."""
        self._provider.shutdown()


class Traced:
    """The outermost ASGI middleware, if traces are requested."""

    def __init__(self, app: ASGIApp, *, tracing: Tracing):
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_ns = time.time_ns()
        status = 500

        async def noted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted_send)
        finally:
            self._tracing.record(scope, status, started_ns)


def open_tracing() -> Tracing | None:
    """Traces as the environment requests them; None: it requests none.

    Raises:
        TracingNotInstalledError: OpenTelemetry is missing.
    """
    if not check_tracing():
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    ours = Resource({"service.name": "dp-icl", "service.version": version("dp-icl")})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**_connection())))
    return Tracing(provider)


def _connection() -> dict[str, Any]:
    """How the exporter reaches its endpoint: by itself it would take a proxy from the environment."""
    import requests

    session = requests.Session()
    session.trust_env = False
    endpoint = next(os.environ[name] for name in reversed(ENDPOINTS) if os.environ.get(name))
    if (proxy := proxy_for(endpoint)) is not None:
        session.proxies = {"http": proxy, "https": proxy}
    own = any(os.environ.get(name) for name in _CERTIFICATES)
    bundle = next((where for name, where in check_certificates().items() if name != "SSL_CERT_DIR"), None)
    return {"session": session, "certificate_file": None if own else bundle}


def check_tracing() -> bool:
    """Whether the environment requests traces.

    Raises:
        TracingNotInstalledError: traces are asked for, and OpenTelemetry is missing.
        service.connections.CertificatesError: certificates that the environment names cannot be read.
    """
    asked = [name for name in ENDPOINTS if os.environ.get(name)]
    if not asked:
        return False
    check_certificates(*_CERTIFICATES)
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError as error:
        raise TracingNotInstalledError(
            f"{asked[0]} is set and OpenTelemetry is not installed: pip install 'dp-icl[otel]', or unset the variable"
        ) from error
    return True
