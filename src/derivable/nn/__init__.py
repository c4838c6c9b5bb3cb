"""Floor 6: PyTorch modules and losses."""
