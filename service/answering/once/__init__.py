"""One-time releases, made when a plan is signed."""
