"""Counts and traces of responses, for operators. Public quantities only."""
