"""Knowledge compilation: from formulas and files to circuits on which counting is linear, by SDD and D4."""

COMPILERS = ("auto", "elimination", "sdd", "d4")
