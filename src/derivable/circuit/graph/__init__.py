"""The graph: and-or graphs and circuits in flat arrays, their builder, validator and levels."""
