"""Every stage of a program as text."""
