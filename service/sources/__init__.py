"""Where an upload's rows come from: files and addresses of several formats, and SQL databases."""
