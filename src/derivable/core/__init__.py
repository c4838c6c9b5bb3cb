"""Floor 0: diagnostics, files, progress and graph algorithms. Imports nothing of the house."""
