"""Tensors of other libraries, files and dictionaries as coordinates."""
