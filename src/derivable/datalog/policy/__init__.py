"""What runs by what: the ways that the executor may take, and what they cost."""
