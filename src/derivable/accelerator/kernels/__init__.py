"""Compiled loops that only the golden machine needs: its clock."""
