"""Kernels of the accelerator alone."""
