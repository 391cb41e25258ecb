"""Sources of an upload's rows: files and addresses of several formats, and SQL databases."""
