"""One query, from the charge to the stored release."""
