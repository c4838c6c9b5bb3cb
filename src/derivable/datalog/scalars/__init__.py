"""Scalar expressions of core rules, and their evaluation over columns."""
