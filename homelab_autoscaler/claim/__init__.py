"""Claims: legal moves and their one recorder, deadlines, attempts, power debt, names and creation."""
