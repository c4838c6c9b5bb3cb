"""Learning: circuits whose or-edges have weights to learn."""
