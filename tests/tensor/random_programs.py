"""Random well-typed programs and inputs for them."""

import math
from random import Random

import numpy as np
from hypothesis import strategies as st

from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables
from derivable.tensor.language.interpret import NOTHING
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import INT, tensor
from derivable.tensor.values.values import coordinates

INPUTS = {"s": tensor(0), "X": tensor(1), "Y": tensor(1), "A": tensor(2), "n": INT}
SIZE = 3
SMOOTH = ("sin", "tanh", "sigmoid", "exp", "cos")
NAMES = ("i", "j", "k", "a", "b", "r", "v", "x")


@st.composite
def programs(draw, order=None, inputs=INPUTS, depths=(2, 6), functions=SMOOTH, is_bounded=False):
    """An expression of that order. Names are bound again and again, and a third of the sums are maps of tensors.
    If it is bounded, no index reaches SIZE.

    What is drawn is a seed, as choices that are drawn one by one make few programs of more than three operations.
    """
    random = Random(draw(st.integers(0, 1 << 30)))
    order = random.choice([0, 1, 1, 2]) if order is None else order
    return _Programs(random, functions, is_bounded).expression(order, dict(inputs), draw(st.integers(*depths)))


@st.composite
def tensors(draw, order, size=SIZE):
    """A nested dictionary without empty rows; some stored numbers are zero."""
    return _tensor(Random(draw(st.integers(0, 1 << 30))), order, size)


def _tensor(random, order, size):
    if order == 0:
        return random.randint(-8, 8) / 4
    rows = {key: _tensor(random, order - 1, size) for key in range(size) if random.random() < 0.7}
    return {key: row for key, row in rows.items() if row != {}}


def inputs(types=INPUTS, is_bounded=False):
    """{name: value}"""
    return st.fixed_dictionaries(
        {
            name: st.integers(0, SIZE - is_bounded) if type_ == INT else tensors(type_.order)
            for name, type_ in types.items()
        }
    )


@st.composite
def cases(draw, vectors, matrices):
    """A program of order at most 2, its inputs, the same as the interpreter takes them, and formats for the tensors."""
    node = draw(programs(draw(st.integers(0, 2))))
    types = {name: of for name, of in INPUTS.items() if name in free_variables(node)}
    given, meant, formats = {}, {}, {}
    for name, of in types.items():
        if of == INT or of.order == 0:
            given[name] = meant[name] = draw(st.integers(0, SIZE) if of == INT else tensors(0))
            continue
        value = draw(tensors(of.order))
        formats[name] = draw(st.sampled_from(vectors if of.order == 1 else matrices))
        given[name] = coordinates(value, shape=(SIZE,) * of.order)
        meant[name] = _complete(value, of.order) if formats[name] in ("dense", "column_major") else value
    return Program(node, types), given, meant, formats


def _complete(value, order):
    """A nested dictionary with all entries, as a dense array holds them."""
    if order == 0:
        return value or 0.0
    return {key: _complete((value or {}).get(key), order - 1) for key in range(SIZE)}


def is_outside(value):
    return isinstance(value, dict) and any(key >= SIZE or is_outside(below) for key, below in value.items())


def dense_of(value, order):
    found = np.zeros((SIZE,) * order)
    for path, number in _entries(value):
        found[path] = number
    return found


def places_of(value, order):
    """Where a nested dictionary has entries."""
    found = np.zeros((SIZE,) * order, bool)
    for path, _ in _entries(value):
        found[path] = True
    return found


def _entries(value, path=()):
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _entries(below, (*path, key))
    elif value is not NOTHING:
        yield path, value


def with_zeros(value, zero):
    """With the zero of a semiring where a number is 0."""
    if isinstance(value, dict):
        return {key: with_zeros(below, zero) for key, below in value.items()}
    return zero if isinstance(value, float) and value == 0 else value


def pruned(value, keeps_zeros=True, zero=0.0):
    """A value without empty rows, and, unless they are kept, without entries that are zero; None if nothing is left."""
    if value is NOTHING:
        return None
    if not isinstance(value, dict):
        return value if value != zero or keeps_zeros else None
    rows = {key: pruned(row, keeps_zeros, zero) for key, row in value.items()}
    return {key: row for key, row in rows.items() if row is not None} or None


def is_same(left, right, keeps_zeros=True, tolerance=1e-9, zero=0.0):
    """Whether two values of expressions have the same entries; without `keeps_zeros` a zero is as good as none."""
    return _is_near(pruned(left, keeps_zeros, zero), pruned(right, keeps_zeros, zero), tolerance, keeps_zeros)


def _is_near(left, right, tolerance, keeps_zeros):
    if isinstance(left, dict) or isinstance(right, dict):
        if keeps_zeros and (left is None or right is None or left.keys() != right.keys()):
            return False
        left, right = left or {}, right or {}
        keys = left.keys() | right.keys()
        return all(_is_near(left.get(key), right.get(key), tolerance, keeps_zeros) for key in keys)
    if left is None or right is None:
        rest = left if right is None else right
        return rest is None or (not keeps_zeros and abs(rest) <= tolerance)
    return math.isclose(left, right, rel_tol=1e-7, abs_tol=tolerance) or (left != left and right != right)


class _Programs:
    def __init__(self, random, functions, is_bounded):
        self.random = random
        self.functions = functions
        self.is_bounded = is_bounded

    def expression(self, order, scope, depth):
        plain = [t.Var(name) for name, type_ in scope.items() if type_ == tensor(order)]
        if order == 0:
            plain.append(t.Number(self.random.randint(-4, 4) / 2))
        if depth <= 0 or (plain and depth < 4 and self.random.random() < 0.1):
            deeper = [t.Var(name) for name, type_ in scope.items() if type_ == tensor(order + 1)]
            if deeper and (not plain or self.random.random() < 0.3):
                return t.Lookup(self.random.choice(deeper), self.integer(scope))
            return self.random.choice([*plain * 9, t.Zero()])
        kinds = ["sum", "sum", "sum", "let", "let", "_if", "add", "multiply", "multiply"]
        kinds += ["map", "map", "map", "singleton"] if order else ["apply", "lookup"]
        kinds += ["lookup"] * (order == 1)
        if not self.functions:
            kinds = [kind for kind in kinds if kind != "apply"]
        return getattr(self, self.random.choice(kinds))(order, scope, depth - 1)

    def sum(self, order, scope, depth):
        key, value = self.random.sample(NAMES, 2)
        of = self.random.choice([1, 1, 2])
        over = self.expression(of, scope, depth - self.random.choice([0, 2, 9]))
        inner = {**scope, key: INT, value: tensor(of - 1)}
        body = self.expression(order, inner, depth)
        if self.random.random() < 0.3:
            others = {name: type_ for name, type_ in scope.items() if name not in (key, value)}
            body = t.If(t.Apply("equal", (t.Var(key), self.integer(others))), body)
        return t.Sum(key, value, over, body)

    def map(self, order, scope, depth):
        key, value = self.random.sample(NAMES, 2)
        of = self.random.choice([1, order, 2])
        over = self.expression(of, scope, depth - self.random.choice([0, 2, 9]))
        inner = {**scope, key: INT, value: tensor(of - 1)}
        body = t.Var(value) if of == order and self.random.random() < 0.2 else self.expression(order - 1, inner, depth)
        return t.Sum(key, value, over, t.Singleton(t.Var(key), body))

    def let(self, order, scope, depth):
        of, bound = self.random.choice([0, 1, 2]), self.random.choice(NAMES)
        return t.Let(
            bound, self.expression(of, scope, depth), self.expression(order, {**scope, bound: tensor(of)}, depth)
        )

    def add(self, order, scope, depth):
        return t.Add(self.expression(order, scope, depth), self.expression(order, scope, depth))

    def multiply(self, order, scope, depth):
        left = self.random.randint(0, order)
        return t.Multiply(self.expression(left, scope, depth), self.expression(order - left, scope, depth))

    def singleton(self, order, scope, depth):
        return t.Singleton(self.integer(scope), self.expression(order - 1, scope, depth))

    def lookup(self, order, scope, depth):
        return t.Lookup(self.expression(order + 1, scope, depth), self.integer(scope))

    def apply(self, order, scope, depth):
        if self.random.random() < 0.5:
            return t.Apply(self.random.choice(self.functions), (self.expression(0, scope, depth),))
        operation = self.random.choice(["multiply", "subtract", "where"])
        operands = (self.expression(0, scope, depth), self.expression(0, scope, depth))
        return t.Apply(operation, (self.condition(scope), *operands) if operation == "where" else operands)

    def integer(self, scope):
        known = [t.Var(name) for name, type_ in scope.items() if type_ == INT]
        found = self.random.choice([*known[-3:] * 3, t.Number(self.random.randrange(SIZE))])
        return t.Apply("add", (found, t.Number(1))) if not self.is_bounded and self.random.random() < 0.1 else found

    def condition(self, scope):
        operation = self.random.choice(["equal", "equal", "less", "not_equal"])
        return t.Apply(operation, (self.integer(scope), self.integer(scope)))

    def _if(self, order, scope, depth):
        return t.If(self.condition(scope), self.expression(order, scope, depth))
