"""What operators see: metrics, logs, traces, alerts, health. Public quantities only."""
