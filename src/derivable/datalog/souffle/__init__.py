"""Soufflé's language: its files are read, flattened and translated to this library's syntax tree."""
