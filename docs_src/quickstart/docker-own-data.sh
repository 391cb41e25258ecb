export DPICL_ENCRYPTION_KEY=$(openssl rand -base64 32)
docker run --detach --name dp-icl --shm-size 1g -v dp-icl:/var/lib/dp-icl -e DPICL_ENCRYPTION_KEY -p 127.0.0.1:8080:8080 dp-icl:0.1.0
docker exec dp-icl dpicl keys create chief --role admin
