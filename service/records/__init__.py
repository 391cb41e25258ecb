"""What lives in the database: its schema, and how it is opened."""
