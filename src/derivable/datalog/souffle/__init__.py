"""Soufflé's language: its files are read, flattened and translated to the syntax tree of this library's own."""
