"""The language: SDQLite, its nodes, text, types and checks, and what a program means."""
