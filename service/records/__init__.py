"""The contents of the database: its schema, and opening it."""
