"""Foreign functions and predicates: what programs call and Python computes, `$name(x, y)` and `name(x, y)`."""
