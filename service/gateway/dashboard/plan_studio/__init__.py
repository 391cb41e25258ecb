"""Plans written, previewed, tried and signed in the browser."""
