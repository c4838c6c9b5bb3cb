"""Diagnostics, files, progress and graph algorithms. Imports nothing of the house."""
