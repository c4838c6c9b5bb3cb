"""Derivatives: from programs to programs, forward, in reverse, and of selections."""
