FROM localhost/debian:bookworm
COPY ray-operator /manager
