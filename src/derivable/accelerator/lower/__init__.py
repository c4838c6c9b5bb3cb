"""Lowering: from operators to instructions."""
