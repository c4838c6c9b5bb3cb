"""Tracing: from a PyTorch model to an operator graph."""
