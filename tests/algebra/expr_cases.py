"""Random scalar functions: trees that run on numbers, on traced values and on complex numbers alike."""

from __future__ import annotations

import operator

from hypothesis import strategies as st

from derivable.algebra import expr

UNARY_EXACT = {
    "neg": operator.neg,
    "abs": expr.abs,
    "sign": expr.sign,
    "floor": lambda a: expr.floor(a),
    "clip": lambda a: expr.where(a < 0, 0 * a, a),
}
BINARY_EXACT = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": expr.minimum,
    "max": expr.maximum,
    "pick": lambda a, b: expr.where(expr.logical_or(a < b, a > 3 * b), a - b, b),
    "same": lambda a, b: expr.where(expr.logical_and(a <= b, expr.logical_not(expr.equal(a, b))), 1 + 0 * a, b),
    "square": lambda a, b: a**2 - b**3,
}
UNARY_ANALYTIC = {
    "exp": lambda a: expr.exp(0.3 * a),
    "log": lambda a: expr.log(2 + a * a),
    "log1p": lambda a: expr.log1p(a * a),
    "expm1": lambda a: expr.expm1(0.2 * a),
    "sqrt": lambda a: expr.sqrt(1 + a * a),
    "sin": expr.sin,
    "cos": expr.cos,
    "tanh": expr.tanh,
    "sigmoid": expr.sigmoid,
    "inverse": lambda a: 1 / (1 + a * a),
    "root": lambda a: expr.power(2 + expr.cos(a), 1.5),
}
BINARY_ANALYTIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
UNARY_SMOOTH = {**UNARY_ANALYTIC, "log1mexp": lambda a: expr.log1mexp(-0.1 - a * a)}
BINARY_SMOOTH = {**BINARY_ANALYTIC, "logaddexp": expr.logaddexp}


def trees(unary: dict, binary: dict, num_arguments: int = 3, max_leaves: int = 8) -> st.SearchStrategy:
    """Nested tuples: ("x", index), ("k", constant), (name, tree), (name, tree, tree)."""
    leaf = st.tuples(st.just("x"), st.integers(0, num_arguments - 1)) | st.tuples(
        st.just("k"), st.sampled_from([0.0, 1.0, -1.0, 0.5, 2, 3])
    )
    return st.recursive(
        leaf,
        lambda inner: (
            st.tuples(st.sampled_from(sorted(unary)), inner) | st.tuples(st.sampled_from(sorted(binary)), inner, inner)
        ),
        max_leaves=max_leaves,
    )


def run(tree: tuple, arguments, table: dict):
    """The value of a tree on whatever the arguments are."""
    if tree[0] == "x":
        return arguments[tree[1]]
    if tree[0] == "k":
        return tree[1]
    return table[tree[0]](*(run(branch, arguments, table) for branch in tree[1:]))
