"""The and-or graph: circuits, their builder, their checks, their levels."""
