"""Tensors with operators, against NumPy."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.core.diagnostics import DomainError, ShapeError, TypeMismatchError, UnsupportedError
from derivable.tensor import Program, index, parse, variable

# What small programs say is the same in Python, which need not be compiled for it.
A, B, C = (variable(name, order=2) for name in "ABC")
x, y, s = variable("x", 1), variable("y", 1), variable("s", 0)
T, n = variable("T", order=3), variable("n", type=index)


def drawn(seed):
    rng = np.random.default_rng(seed)

    def some(*shape):
        return rng.normal(size=shape) * (rng.random(shape) < 0.6)

    shapes = {"A": (3, 4), "B": (3, 4), "C": (4, 4), "x": (4,), "y": (4,), "s": (), "T": (2, 3, 4)}
    return {name: some(*shape) for name, shape in shapes.items()}


def given_to(program, values, n=1):
    return {name: n if name == "n" else values[name] for name in program.inputs}


CASES = [
    (A + B, lambda v: v["A"] + v["B"]),
    (A - B, lambda v: v["A"] - v["B"]),
    (-A * 2, lambda v: -2 * v["A"]),
    (2 * A + s * B, lambda v: 2 * v["A"] + v["s"] * v["B"]),
    (A * B, lambda v: v["A"] * v["B"]),
    (A / (s + 9), lambda v: v["A"] / (v["s"] + 9)),
    (x * y + y / 4, lambda v: v["x"] * v["y"] + v["y"] / 4),
    (A * B / A, lambda v: np.where(v["A"] == 0, 0, v["B"])),
    (A * x - x * A / 2, lambda v: v["A"] * v["x"] / 2),
    (T * A / 2 + x * T, lambda v: v["T"] * v["A"] / 2 + v["T"] * v["x"]),
    (A @ x, lambda v: v["A"] @ v["x"]),
    (A @ C, lambda v: v["A"] @ v["C"]),
    (x @ C, lambda v: v["x"] @ v["C"]),
    (x @ y, lambda v: v["x"] @ v["y"]),
    (T @ C, lambda v: v["T"] @ v["C"]),
    (A.T @ B @ x, lambda v: v["A"].T @ v["B"] @ v["x"]),
    (T @ C @ x, lambda v: v["T"] @ v["C"] @ v["x"]),
    (x.outer(y), lambda v: np.outer(v["x"], v["y"])),
    (T.transpose(2, 0, 1), lambda v: v["T"].transpose(2, 0, 1)),
    (T.transpose(1, -1, 0), lambda v: v["T"].transpose(1, 2, 0)),
    (A.sum(), lambda v: v["A"].sum()),
    (A.sum(axis=0), lambda v: v["A"].sum(axis=0)),
    (T.sum(axis=(0, -1)), lambda v: v["T"].sum(axis=(0, 2))),
    (T.sum(axis=1), lambda v: v["T"].sum(axis=1)),
    (C.trace(), lambda v: np.trace(v["C"])),
    (C.diagonal(), lambda v: np.diagonal(v["C"])),
    (A.map(lambda a: dv.sin(a) * a), lambda v: np.sin(v["A"]) * v["A"]),
    (A.map(lambda i, j, a: a * (i + 2 * j)), lambda v: v["A"] * (np.arange(3)[:, None] + 2 * np.arange(4))),
    (s.map(lambda a: a * a + dv.exp(a)), lambda v: v["s"] ** 2 + np.exp(v["s"])),
    (A**2, lambda v: v["A"] ** 2),
    (A.where(lambda a: a > 0), lambda v: np.maximum(v["A"], 0)),
    (C.where(lambda i, j, a: i < j), lambda v: np.triu(v["C"], 1)),
    (A.mask(B), lambda v: v["A"] * (v["B"] != 0)),
    (A[1], lambda v: v["A"][1]),
    (A[1, 2] * T[0, 1, 2], lambda v: v["A"][1, 2] * v["T"][0, 1, 2]),
    (A[n], lambda v: v["A"][1]),
    ((A @ x).let(lambda z: z * z), lambda v: (v["A"] @ v["x"]) ** 2),
    ((A @ A.T).trace(), lambda v: np.trace(v["A"] @ v["A"].T)),
]


@pytest.mark.parametrize(("program", "meaning"), CASES, ids=[str(case[0])[:60] for case in CASES])
def test_as_numpy(program, meaning):
    for seed in range(3):
        values = drawn(seed)
        expected = meaning(values)
        taken = given_to(program, values)
        sparse = {name: scipy.sparse.coo_array(value) if np.ndim(value) else value for name, value in taken.items()}
        found = program(**sparse, shape=np.shape(expected) or None, output="numpy")
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("program", [case[0] for case in CASES], ids=lambda program: str(program)[:60])
def test_expressions_are_programs_with_a_text(program):
    assert isinstance(program, Program)
    again = parse(str(program), program.inputs)
    assert again == program
    assert hash(again) == hash(program)


def test_the_text_is_what_one_would_write():
    assert str(A @ x) == "sum(<i, row> in A) { i -> sum(<j, a> in row) a * x(j) }"
    assert str(A.T) == "sum(<i, row> in A) sum(<j, a> in row) { j -> { i -> a } }"
    assert str(A.sum(axis=1)) == "sum(<i, row> in A) { i -> sum(<_, a> in row) a }"
    assert str(C.trace()) == "sum(<i, row> in C) row(i)"


def test_names_of_inputs_are_not_bound():
    i, row = variable("i", order=2), variable("row", order=1)
    program = i @ row
    matrix, vector = drawn(1)["A"], drawn(1)["x"]
    np.testing.assert_allclose(program(i=matrix, row=vector), matrix @ vector)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31), st.lists(st.sampled_from(["T", "@C", "*C", "+C", "-C", "neg", "sq"]), max_size=4))
def test_chains_of_operators(seed, steps):
    values = drawn(seed)
    program, expected = C, values["C"]
    for step in steps:
        program, expected = {
            "T": lambda p, e: (p.T, e.T),
            "@C": lambda p, e: (p @ C, e @ values["C"]),
            "*C": lambda p, e: (p * C, e * values["C"]),
            "+C": lambda p, e: (p + C, e + values["C"]),
            "-C": lambda p, e: (C - p, values["C"] - e),
            "neg": lambda p, e: (-p, -e),
            "sq": lambda p, e: (p.let(lambda z: z @ z), e @ e),
        }[step](program, expected)
    np.testing.assert_allclose(program(C=values["C"], shape=(4, 4)), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: A + x, ShapeError, "tensor 2 and tensor 1: both sides"),
        (lambda: A + 1, ShapeError, "added by `map"),
        (lambda: x / A, ShapeError, "`/` of tensor 1 and tensor 2"),
        (lambda: A @ 2, ShapeError, "numbers are multiplied by"),
        (lambda: A @ np.ones(4), TypeMismatchError, "ndarray is no expression"),
        (lambda: np.ones(4) @ A, TypeMismatchError, "ndarray is no expression"),
        (lambda: x.trace(), ShapeError, "a matrix has a trace, and this is tensor 1"),
        (lambda: A.sum(axis=2), ShapeError, "no axis 2 in a tensor of order 2"),
        (lambda: A.transpose(0, 0), ShapeError, "is no order of the axes"),
        (lambda: A[0, 0, 0], ShapeError, "3 keys are looked up in tensor 2"),
        (lambda: A[1.5], TypeMismatchError, "the key 1.5 is no integer"),
        (lambda: A[:2], TypeMismatchError, "slices are not kept"),
        (lambda: A.map(lambda a, b: a), TypeMismatchError, "takes 2 arguments"),
        (lambda: A.map(lambda a: dv.cast(a, "int32")), UnsupportedError, "a cast to int32"),
        (lambda: A + variable("A", order=1), ShapeError, "both sides"),
        (lambda: x @ variable("A", order=1) + A.sum(), TypeMismatchError, "`A` is tensor 1 here and tensor 2 there"),
        (lambda: variable("A"), DomainError, "needs an order or a type"),
        (lambda: variable("A", -1), DomainError, "the order is -1"),
        (lambda: A(A=np.ones((2, 2)), B=1), DomainError, "no input `B`"),
        (lambda: (A @ x)(A=np.ones((2, 2))), DomainError, "the input `x` is missing"),
        (lambda: A[n](A=np.ones((2, 2)), n=0.5), DomainError, "`n` is 0.5, where int is needed"),
        (lambda: (s * A)(A=np.ones((2, 2)), s=np.ones(2)), DomainError, "`s` has 1 axes"),
        (lambda: A(A=np.ones((2, 2)), output="scipycsr"), DomainError, "did you mean 'scipy_csr'"),
        (lambda: A.explain("logicl"), DomainError, "did you mean 'logical'"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_other_semirings():
    graph = {0: {1: 2.0, 2: 7.0}, 1: {2: 3.0}}
    assert (A @ A)(A=graph, semiring="min_plus", output="dict") == {0: {2: 5.0}}
    assert A.sum()(A={}, semiring="min_plus") == np.inf


def test_explain():
    assert (A @ x).explain("logical") == f"A: tensor 2\nx: tensor 1\n{A @ x}\n# tensor 1"
