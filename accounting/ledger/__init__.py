"""What was granted and spent, in a database; it knows nothing of what a release costs."""
