"""Analyses: axes, bounds, sparsity, and the cost of loops."""
