"""Compiled loops that only relations need: over rows, sets of rows and rows of bits."""
