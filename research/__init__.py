"""What studies the product, and no server needs: evaluation, attacks, training of bundles, the papers' tables."""
