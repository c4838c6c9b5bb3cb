"""Scalar expressions: traced from Python functions, typed, simplified, differentiated, emitted."""
