"""A query, from its check to its settled release."""
