"""Formulas: from Python, text and DIMACS files to clauses or an and-or graph."""
