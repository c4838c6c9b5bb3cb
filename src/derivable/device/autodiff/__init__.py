"""Folds on the arrays of NumPy, torch and JAX: one description, one set of kernels, one derivative rule each."""
