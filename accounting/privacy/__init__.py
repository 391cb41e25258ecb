"""The cost of releases: the mathematics of (ε, δ), without a database."""
