"""What operators see of a process: its logs, and whether what it needs is alive. Public quantities only."""
