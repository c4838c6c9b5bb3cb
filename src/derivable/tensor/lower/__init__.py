"""Lowering: from programs to loops over storage, and to operations on columns."""
