"""Scalar expressions of rules, and their arithmetic on columns."""
