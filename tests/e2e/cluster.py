"""The service on a Ray cluster of three nodes, all on this machine: run by test_scale_out.py as a program.

    python cluster.py PORT SIMULATION_AS_JSON

The ingress and the embedder are on the head, three replicas of a simulated engine on the two workers. It prints a line
once questions can be asked, removes a worker for each line it reads, and stops when its input ends.
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEMORY = 100 * 2**20


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray's own output is not a reply
    sys.path.insert(0, str(ROOT))
    from service.serving.local_ray import SETTINGS

    # The workers find the simulated engine by PYTHONPATH.
    os.environ.update(**SETTINGS, PYTHONPATH=str(ROOT))
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    from benchmarks.simulated_engine import Simulation, application

    port, simulation = int(sys.argv[1]), Simulation(**json.loads(sys.argv[2]))
    head = {"num_cpus": 1, "object_store_memory": MEMORY, "resources": {"head": 4}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    workers = [cluster.add_node(num_cpus=1, object_store_memory=MEMORY, resources={"engine": 2}) for _ in range(2)]
    ray.init(address=cluster.address, namespace="serve")
    try:
        serve.start(http_options={"port": port, "request_timeout_s": 300}, proxy_location="HeadOnly")
        on_head = {"ray_actor_options": {"num_cpus": 0.1, "resources": {"head": 1}}}
        engines = {"num_replicas": 3, "ray_actor_options": {"num_cpus": 0.1, "resources": {"engine": 1}}}
        serve.run(application(simulation, engine=engines, ingress=on_head, embedder=on_head))
        print("ready", file=replies)
        for _ in sys.stdin:
            cluster.remove_node(workers.pop(), allow_graceful=False)
            print("removed", file=replies)
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
