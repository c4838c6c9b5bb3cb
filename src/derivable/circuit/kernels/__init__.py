"""Compiled loops that only circuits need."""
