"""The budgets granted and the answers spent, in a database; it does not compute the cost of a release."""
