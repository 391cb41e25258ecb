"""Telemetry for operators: a process's logs, and whether the parts it needs are alive. Public quantities only."""
