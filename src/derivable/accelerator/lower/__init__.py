"""Lowering: from an operator graph to instructions."""
