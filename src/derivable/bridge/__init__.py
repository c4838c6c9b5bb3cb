"""Differentiation between flat arrays and NumPy, torch and JAX: an engine states apply and pull, and has all of it."""
