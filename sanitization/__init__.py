"""Words replaced at random before they leave (local differential privacy): channels, their true ε, attacks on them."""
