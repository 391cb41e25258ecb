"""How requests were answered, as operators see it: counts and traces. Public quantities only."""
