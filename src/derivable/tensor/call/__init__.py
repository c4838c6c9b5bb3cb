"""Calls: kernels for the tensors that are given, kept for the next ones; with derivatives in torch and JAX."""
