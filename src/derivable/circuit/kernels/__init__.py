"""Compiled kernels that only circuits need."""
