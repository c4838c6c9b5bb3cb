"""Operators: what a model is made of, their meaning and their sizes."""
