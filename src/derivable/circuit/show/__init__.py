"""Circuits as text and pictures."""
