"""Circuits as hardware."""
