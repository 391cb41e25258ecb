"""Language models in this cluster, by vLLM."""
