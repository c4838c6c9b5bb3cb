"""Tracing: from a PyTorch model to operators."""
