"""Language models behind an HTTP endpoint."""
