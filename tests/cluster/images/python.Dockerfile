# Stands for python:3.11-slim-bookworm, which no registry of packages has.
FROM localhost/debian:bookworm
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends python3 python3-venv \
    && ln -s /usr/bin/python3 /usr/local/bin/python \
    && apt-get clean
