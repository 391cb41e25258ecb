"""Pages of the documentation that are written from the code, and what the site changes about pages."""
