"""Operators: what a model is made of, with meaning, sizes and cycles."""
