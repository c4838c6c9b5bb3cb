"""Optimisation: passes, and equality saturation with a cost of loops."""
