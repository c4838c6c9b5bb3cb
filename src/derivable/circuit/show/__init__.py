"""Circuits as texts and pictures."""
