"""Plans: previewed, signed, read again, and reported."""
