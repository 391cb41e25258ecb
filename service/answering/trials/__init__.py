"""A task tried on public examples: nothing is charged, and nothing private is read."""
