"""One kind of harm a file; each says how by its ``SCENARIO``."""
