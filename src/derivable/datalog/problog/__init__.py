"""ProbLog's programs: read, given types and modes, and translated to the syntax of this library's language."""
