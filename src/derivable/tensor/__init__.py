"""Floor 6: sparse tensor programs."""
