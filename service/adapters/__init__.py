"""Sanitising as a step of other people's pipelines, on their machine, without a server."""
