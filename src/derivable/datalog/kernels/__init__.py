"""Compiled kernels that only relations need."""
