"""The column program: what every engine wants of an array machine, as one small language."""
