"""Desugaring: typed syntax to core rules."""

from derivable.datalog.desugar.program import desugar

__all__ = ["desugar"]
