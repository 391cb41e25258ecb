"""A real Kubernetes with KubeRay, in a network namespace of this machine, that runs the overlays (``make cluster``)."""
