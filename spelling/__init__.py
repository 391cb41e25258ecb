"""Texts that people read as one, though computers do not: the lowest floor, which every package may stand on."""
