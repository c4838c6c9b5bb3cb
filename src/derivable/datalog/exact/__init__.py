"""Exact inference: from ground derivations to circuits, and to programs that are folded in batches."""
