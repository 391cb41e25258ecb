"""Attackers of sanitised texts, with a model and without."""
