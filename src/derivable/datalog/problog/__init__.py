"""ProbLog's programs: read, typed, with modes, and translated to the syntax of this library's language."""
