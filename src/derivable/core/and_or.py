"""Kinds of the nodes of and-or graphs: ground derivations, choices, compiler input, circuits, and their kernels.

The constants are the numbers of their kinds, so 1 - kind negates a constant and AND + OR - kind is a dual.
NOT occurs where negations are nodes of their own; elsewhere `~node` is the negation of a node.
"""

FALSE, TRUE, LITERAL, AND, OR, NOT = 0, 1, 2, 3, 4, 5
KIND_NAMES = ("false", "true", "literal", "and", "or", "not")
