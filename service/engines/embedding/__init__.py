"""Sentence embeddings."""
