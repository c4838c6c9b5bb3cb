"""Lowering: from expressions to loops over storage, and to columns."""
