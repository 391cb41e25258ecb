"""What releases cost: the mathematics of (ε, δ), without a database."""
