"""Mechanisms as their papers and code define them. Their true ε is what :func:`sanitization.audit.audit` says."""
