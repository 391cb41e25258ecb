docker build -f deploy/images/cpu.Dockerfile -t dp-icl:0.1.0 .
docker run --rm --shm-size 1g -p 127.0.0.1:8080:8080 dp-icl:0.1.0 dpicl serve --synthetic --host 0.0.0.0
