"""Engines without a language model, which compare embeddings."""
