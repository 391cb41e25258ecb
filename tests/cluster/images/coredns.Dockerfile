FROM localhost/debian:bookworm
COPY coredns /coredns
