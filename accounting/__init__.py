"""The cost of answers: privacy profiles, accountants, calibration, plans, and the ledger that keeps count."""
