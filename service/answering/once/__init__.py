"""Releases that are made once, when a plan is signed."""
