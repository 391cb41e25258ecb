"""What operators see: metrics, logs, traces, health. Public quantities only."""
