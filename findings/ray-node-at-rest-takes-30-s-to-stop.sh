#!/usr/bin/env bash
# Ray 2.60.0: a node that gets SIGTERM, as Kubernetes sends it to a pod's main process, drains for 30 seconds before it ends while one
# actor lives on it, even an idle one. Without an actor it ended after a second. The variable
# RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S of the node sets the seconds: with 3 it ended after 3. So pods of a Ray Serve application that
# finished their requests in `preStop` still take half a minute, unless that is set. About 80 MB to fetch.
set -euo pipefail
folder=$(mktemp -d)
head= node=
stop() {
    [ -z "$node" ] || kill -9 $(descendants "$node") 2> /dev/null || true
    [ -z "$head" ] || kill -9 $(descendants "$head") 2> /dev/null || true
    wait 2> /dev/null || true
    rm -rf "$folder"
}
descendants() {
    local child
    echo "$1"
    for child in $(cat /proc/"$1"/task/*/children 2> /dev/null); do descendants "$child"; done
}
trap stop EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -qq --no-compile --no-cache-dir --disable-pip-version-check ray==2.60.0 setuptools==78.1.1
export PATH=$folder/venv/bin:$PATH RAY_USAGE_STATS_ENABLED=0 RAY_DISABLE_IMPORT_WARNING=1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
ray start --head --block --port="$port" --num-cpus=0 --include-dashboard=false --temp-dir="$folder/ray" > "$folder/head.log" 2>&1 &
head=$!

cat > "$folder/actor.py" << 'END'
import sys, time, ray

ray.init(address=sys.argv[1], log_to_driver=False)


@ray.remote(num_cpus=1)
class Idle:
    def there(self):
        return True


idle = Idle.options(name="idle", lifetime="detached").remote()
assert ray.get(idle.there.remote(), timeout=120)
END

seconds_to_stop() { # with an actor or none, and further variables of the node
    local actor=$1 began
    shift
    env "$@" ray start --address="127.0.0.1:$port" --block --num-cpus=1 > "$folder/node.log" 2>&1 &
    node=$!
    until RAY_ADDRESS=127.0.0.1:$port python3 -c 'import ray; ray.init(log_to_driver=False, logging_level="error")
assert ray.cluster_resources().get("CPU") == 1' 2> "$folder/driver.log"; do
        kill -0 "$node" || { cat "$folder/node.log"; exit 1; }
        sleep 1
    done
    [ "$actor" = none ] || python3 "$folder/actor.py" "127.0.0.1:$port" > /dev/null 2>&1
    began=$(date +%s)
    kill -TERM "$node"
    wait "$node" || true
    node=
    seconds=$(($(date +%s) - began))
    until RAY_ADDRESS=127.0.0.1:$port python3 -c 'import ray; ray.init(log_to_driver=False, logging_level="error")
assert "CPU" not in ray.cluster_resources()
try:
    ray.kill(ray.get_actor("idle"))
except ValueError:
    pass' 2> "$folder/driver.log"; do sleep 1; done
}

sleep 10
seconds_to_stop none
echo "no actor: $seconds s"
[ "$seconds" -lt 10 ]
seconds_to_stop idle
echo "an idle actor: $seconds s"
[ "$seconds" -ge 29 ] && [ "$seconds" -lt 60 ]
seconds_to_stop idle RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=3
echo "the same, with 3 s: $seconds s"
[ "$seconds" -ge 3 ] && [ "$seconds" -lt 15 ]
