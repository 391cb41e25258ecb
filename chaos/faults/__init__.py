"""Faults, one kind per module; each module defines its scenarios."""
