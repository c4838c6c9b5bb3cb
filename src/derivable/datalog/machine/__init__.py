"""One machine for rules: words of a memory, a compiled driver over it, and Python where the driver has a reason."""
