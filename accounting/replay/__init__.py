"""The ledger and its audit trail read again from the beginning, and checked."""
