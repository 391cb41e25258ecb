"""Mechanisms as their papers and code define them. :func:`sanitization.audit.audit` finds their true ε."""
