"""The surface language: nodes, grammar, parser, printer."""
