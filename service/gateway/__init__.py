"""The faces over HTTP: they translate requests and answers, and nothing else."""
