"""Analyses of programs: axes, bounds, sparsity, and the cost of loops."""
