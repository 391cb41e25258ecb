# What surrounds the service: PostgreSQL, Redis, and clients to probe with.
FROM localhost/debian:bookworm
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends postgresql-15 redis-server curl dnsutils openssl \
    && apt-get clean
