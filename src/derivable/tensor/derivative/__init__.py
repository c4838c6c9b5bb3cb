"""Derivatives of programs: forward, reverse, and of selections."""
