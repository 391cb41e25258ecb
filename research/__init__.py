"""Studies of the product, which no server needs: evaluation, attacks, training of bundles, the papers' tables."""
