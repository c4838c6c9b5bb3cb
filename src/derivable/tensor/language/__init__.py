"""SDQLite: nodes, text, types, checks, and what a program means."""
