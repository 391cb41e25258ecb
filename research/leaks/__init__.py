"""Leak tests: attacks on a plan's answers about made-up people."""
