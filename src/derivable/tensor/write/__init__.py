"""Other ways to write a program: Einstein sums, and expressions of Python."""
