"""Learning: probabilistic circuits."""
