"""Making a bundle: probes find attention heads, ORPO trains restoration vectors, k-means makes the book."""
