"""Formulas: from Python, from text, and from DIMACS files."""
