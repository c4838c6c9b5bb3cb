"""The public folds on NumPy arrays: nesting, types, batch axes, and what a user sees for each mistake."""

import dataclasses
import os
import pickle
import re
import subprocess
import sys
from functools import reduce as fold_list
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import derivable as dv
import golden_files
from derivable.algebra import semirings
from derivable.algebra.monoids import NAMED
from derivable.core.diagnostics import DerivableError, OperatorError, ShapeError, UnsupportedError
from derivable.parallel import element_by_index

P = dv.parallel
SOURCE = Path(__file__).parents[2] / "src"


@dataclasses.dataclass(frozen=True)
class Affine:
    slope: float
    offset: float


class Best(NamedTuple):
    value: float
    place: int


def after(f, g):
    return Affine(f.slope * g.slope, f.offset * g.slope + g.offset)


def better(a, b):
    first = (a.value > b.value) | (dv.equal(a.value, b.value) & (a.place <= b.place))
    return Best(dv.where(first, a.value, b.value), dv.where(first, a.place, b.place))


affine = P.operator(after, neutral=Affine(1.0, 0.0), commutative=False)
best = P.operator(better, neutral=Best(-np.inf, 2**62))
saturated = P.operator(lambda a, b: dv.minimum(a + b, 15.0), neutral=0.0, name="satadd")


def times(a, b):
    """Of complex numbers."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


crossing = P.operator(times, neutral=(1.0, 0.0))
product = P.matrix_product(2)


def test_every_fold_of_numbers():
    x = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert P.reduce("add", x) == 15
    assert P.scan("add", x).tolist() == [1, 3, 6, 10, 15]
    assert P.scan("mul", x, exclusive=True).tolist() == [1, 1, 2, 6, 24]
    assert P.scan("mul", x, reverse=True).tolist() == [120, 120, 60, 20, 5]
    assert P.scan("mul", x, exclusive=True, reverse=True).tolist() == [120, 60, 20, 5, 1]
    assert P.segmented_scan("max", [3.0, 1, 2, 9, 4], [0, 3, 3, 5]).tolist() == [3, 3, 3, 9, 9]
    assert P.segmented_scan("add", x, [0, 2, 2, 5], exclusive=True).tolist() == [0, 1, 0, 3, 7]
    assert P.segmented_scan("add", x, [0, 2, 2, 5], reverse=True).tolist() == [3, 2, 12, 9, 5]
    assert P.segment_reduce("add", x, [0, 2, 2, 5]).tolist() == [3, 0, 12]
    counts = P.reduce_by_index(np.array([10.0, 0, 0]), "add", [1, 0, 7, 1, -1], x)
    assert counts.tolist() == [12, 5, 0]


def test_the_destination_stays_as_it_is():
    destination = np.zeros(3)
    P.reduce_by_index(destination, "add", [0, 0], [1.0, 2.0])
    assert destination.tolist() == [0, 0, 0]


def test_operators_may_be_names_semirings_and_ones_own():
    x = np.array([0.5, 3.0, 2.0])
    assert P.reduce("max", x) == P.reduce(semirings.get("max_plus"), x) == P.reduce("semiring:max_plus", x) == 3
    assert P.reduce(P.operator(lambda a, b: a * b, neutral=1.0), x) == 3


def test_dataclasses_and_named_tuples_go_in_and_come_out():
    values = Affine(np.array([2.0, 3.0, 5.0]), np.array([1.0, 1.0, 1.0]))
    found = P.scan(affine, values)
    assert isinstance(found, Affine)
    assert found.slope.tolist() == [2, 6, 30]
    assert found.offset.tolist() == [1, 4, 21]
    assert isinstance(P.reduce(affine, values), Affine)
    assert P.reduce(affine, values) == Affine(30.0, 21.0)
    # A plain tuple may stand for a class.
    assert [leaf.tolist() for leaf in P.scan(affine, (values.slope, values.offset))] == [[2, 6, 30], [1, 4, 21]]
    found = P.segment_reduce(best, Best(np.array([1.0, 4, 4, 2]), np.arange(4)), [0, 1, 4])
    assert isinstance(found, Best)
    assert found.value.tolist() == [1, 4]
    assert found.place.tolist() == [0, 1]
    assert found.place.dtype == np.int64


def test_nested_tuples():
    op = P.operator(
        lambda a, b: ((a[0][0] + b[0][0], a[0][1] * b[0][1]), dv.maximum(a[1], b[1])), neutral=((0, 1.0), -9)
    )
    (total, times), top = P.scan(op, ((np.arange(3), np.array([2.0, 3, 4])), np.array([1, 5, 2])))
    assert total.tolist() == [0, 1, 3]
    assert times.tolist() == [2, 6, 24]
    assert top.tolist() == [1, 5, 5]


def test_batch_axes_are_in_the_middle():
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(5, 3, 4, 2, 2))
    found = P.scan(product, matrices)
    expected = [matrices[0]]
    for k in range(1, 5):
        expected.append(expected[-1] @ matrices[k])
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-13)
    numbers = rng.normal(size=(6, 2, 3))
    np.testing.assert_allclose(P.scan("add", numbers), np.cumsum(numbers, 0), rtol=1e-13)
    np.testing.assert_allclose(P.scan("mul", numbers, reverse=True), np.cumprod(numbers[::-1], 0)[::-1], rtol=1e-13)
    indices = np.array([2, 0, 0, 2, 5, 2])
    expected = np.zeros((3, 2, 3))
    np.add.at(expected, indices[indices < 3], numbers[indices < 3])
    np.testing.assert_allclose(P.reduce_by_index(np.zeros((3, 2, 3)), "add", indices, numbers), expected, rtol=1e-13)


DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_come_back(dtype):
    x = np.array([3, 1, 2, 5], dtype)
    for name, meaning in (("add", np.add), ("mul", np.multiply), ("min", np.minimum), ("max", np.maximum)):
        found = P.scan(name, x)
        assert found.dtype == np.dtype(dtype)
        assert found.tolist() == meaning.accumulate(x).tolist()
    limits = np.finfo(dtype) if dtype.startswith("f") else np.iinfo(dtype)
    lowest, highest = (-np.inf, np.inf) if dtype.startswith("f") else (limits.min, limits.max)
    if dtype == "uint64":
        highest = 2**63 - 1
    assert P.segment_reduce("min", x, [0, 0, 4]).tolist() == [highest, 1]
    assert P.segment_reduce("max", x, [0, 0, 4]).tolist() == [lowest, 5]
    assert P.scan("max", x, exclusive=True).tolist() == [lowest, 3, 3, 3]


@pytest.mark.parametrize("given", [np.asarray, torch.from_numpy], ids=["NumPy", "torch"])
def test_indices_of_32_bits_are_not_converted(given, monkeypatch):
    seen = []
    plain = element_by_index.IndexPlan.apply

    def watched(plan, operands, indices):
        seen.append(indices.dtype)
        return plain(plan, operands, indices)

    monkeypatch.setattr(element_by_index.IndexPlan, "apply", watched)
    values = np.array([1.0, 2.0, 3.0, 4.0])
    for dtype in ("int8", "int32", "int64"):
        indices = np.array([0, 1, 0, -1], dtype)
        found = P.reduce_by_index(given(np.zeros(2)), "add", given(indices), given(values))
        assert found.tolist() == [4.0, 2.0]
    assert seen == [np.int64, np.int32, np.int64]
    # Offsets are always converted.
    assert P.segment_reduce("add", given(values), given(np.array([0, 1, 4], np.int32))).tolist() == [1.0, 9.0]
    assert P.segmented_scan("add", given(values), given(np.array([0, 1, 4], np.int32))).tolist() == [1.0, 2.0, 5.0, 9.0]


def test_small_integers_wrap_around_as_those_of_numpy():
    x = np.array([100, 100, 100], np.int8)
    assert P.scan("add", x).tolist() == np.cumsum(x, dtype=np.int8).tolist()


def test_booleans():
    x = np.array([False, True, False])
    assert P.scan("or", x).tolist() == [False, True, True]
    assert P.scan("or", x).dtype == np.bool_
    assert P.reduce(P.operator(lambda a, b: dv.logical_xor(a, b), neutral=False), x)


@pytest.mark.parametrize("op", ["add", "min", saturated, "logaddexp"])
def test_nothing_gives_the_neutral_element(op):
    empty = np.zeros((0, 2))
    neutral = {"add": 0, "min": np.inf, "logaddexp": -np.inf}.get(op if isinstance(op, str) else "add")
    assert P.scan(op, empty).shape == (0, 2)
    assert P.reduce(op, empty).tolist() == [neutral] * 2
    assert P.segment_reduce(op, empty, [0, 0]).tolist() == [[neutral] * 2]
    assert P.segment_reduce(op, empty, [0]).shape == (0, 2)
    assert P.reduce_by_index(np.ones((3, 2)), op, np.zeros(0, int), empty).tolist() == [[1, 1]] * 3
    assert P.reduce_by_index(np.ones((0, 2)), op, [0], np.ones((1, 2))).shape == (0, 2)
    assert P.scan(op, np.zeros((3, 0))).shape == (3, 0)


def test_arrays_in_any_layout():
    x = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)[::-1]
    assert not x.flags.c_contiguous
    assert np.array_equal(P.scan("add", x), np.cumsum(x, 0))
    assert np.array_equal(P.scan("add", x.astype(">f8")), np.cumsum(x, 0))


def test_numpy_calls_load_neither_torch_nor_jax():
    code = (
        "import sys, numpy as np, derivable as dv;"
        "op = dv.parallel.operator(lambda a, b: dv.minimum(a + b, 15.0), neutral=0.0);"
        "print(dv.parallel.scan(op, np.ones(3)).tolist(), dv.parallel.reduce_by_index(np.zeros(2), op, [0], [1.0]));"
        "print(sorted({'torch', 'jax'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "[1.0, 2.0, 3.0] [1. 0.]\n[]\n", done.stderr


# Mistakes

X = np.ones(5)
T = torch.ones(5)
# name of the golden file -> the call
MISTAKES = {
    "reduce_by_index_lengths": lambda: P.reduce_by_index(np.zeros(3), "add", [0, 1, 2, 0], X),
    "reduce_by_index_float_index": lambda: P.reduce_by_index(np.zeros(3), "add", np.zeros(5), X),
    "reduce_by_index_bool_index": lambda: P.reduce_by_index(np.zeros(3), "add", X > 0, X),
    "reduce_by_index_two_axes": lambda: P.reduce_by_index(np.zeros(3), "add", np.zeros((5, 2), int), X),
    "reduce_by_index_types": lambda: P.reduce_by_index(np.zeros(3), "add", [0, 1, 2, 0, 1], X.astype(np.float32)),
    "reduce_by_index_leaf_types": lambda: P.reduce_by_index(
        (np.zeros(3), np.zeros(3)), crossing, [0, 1, 2, 0, 1], (X, X.astype(int))
    ),
    "reduce_by_index_batch": lambda: P.reduce_by_index(np.zeros((3, 2)), "add", [0, 1, 2, 0, 1], np.ones((5, 3))),
    "reduce_by_index_order": lambda: P.reduce_by_index((X, X), affine, [0, 1, 2, 0, 1], (X, X)),
    "reduce_by_index_torch_float_index": lambda: P.reduce_by_index(T, "add", T.clone().requires_grad_(), T),
    "nesting_too_deep": lambda: P.scan("add", (X, X)),
    "nesting_too_flat": lambda: P.scan(crossing, X),
    "nesting_parts": lambda: P.scan(affine, (X, X, X)),
    "leaf_lengths": lambda: P.scan(crossing, (X, np.ones(4))),
    "leaf_batch": lambda: P.scan(crossing, (np.ones((5, 2)), X)),
    "element_shape": lambda: P.scan(product, np.ones((5, 2, 3))),
    "element_axes": lambda: P.scan(product, np.ones((2, 2))),
    "scalar": lambda: P.scan("add", np.float64(3)),
    "ragged": lambda: P.scan("add", [[1.0, 2.0], [3.0]]),
    "dtype_complex": lambda: P.scan("add", X + 1j),
    "dtype_object": lambda: P.scan("add", np.array([2**100, 1], object)),
    "dtype_refused_by_operator": lambda: P.scan("logaddexp", np.arange(3)),
    "dtype_of_the_result": lambda: P.scan(P.operator(lambda a, b: a + 0.5 * b, neutral=0), np.arange(3)),
    "uint64_too_large": lambda: P.scan("max", np.array([2**63], np.uint64)),
    "offsets_decrease": lambda: P.segmented_scan("add", X, [0, 3, 2, 5]),
    "offsets_end": lambda: P.segment_reduce("add", X, [0, 3]),
    "offsets_float": lambda: P.segment_reduce("add", X, np.array([0.0, 5.0])),
    "offsets_torch_decrease": lambda: P.segmented_scan("add", T, torch.tensor([0, 3, 2, 5])),
    "operator_unknown": lambda: P.scan("logadexp", X),
    "operator_function": lambda: P.scan(lambda a, b: a + b, X),
    "operator_if": lambda: P.operator(lambda a, b: a if a > b else b, neutral=0.0),
    "operator_not_associative": lambda: P.operator(
        lambda a, b: dv.where(dv.equal(a, 0.0), b, dv.where(dv.equal(b, 0.0), a, a - b)), neutral=0.0, check=True
    ),
    "operator_wrong_neutral": lambda: P.operator(lambda a, b: dv.maximum(a, b), neutral=0.0, check=True),
    "operator_result_nesting": lambda: P.operator(lambda a, b: a[0] + b[0], neutral=(0.0, 0.0)),
    "mixed_torch_numpy": lambda: P.reduce_by_index(torch.zeros(3), "add", np.zeros(5, int), T),
    "mixed_leaves": lambda: P.scan(crossing, (X, T)),
    "mixed_torch_jax": lambda: P.scan(crossing, (T, jnp.ones(5))),
    "torch_device": lambda: P.scan("add", torch.ones(5, device="meta")),
    "torch_sparse": lambda: P.scan("add", T.to_sparse()),
    "torch_vmap_offsets": lambda: torch.func.vmap(lambda o: P.segment_reduce("add", T, o))(
        torch.tensor([[0, 2, 5], [1, 2, 5]])
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_golden_messages(name):
    with pytest.raises(DerivableError) as caught:
        MISTAKES[name]()
    # The place of an operator in this file is no part of its meaning.
    report = str(caught.value).replace(str(Path(__file__).parent), "...")
    report = re.sub(r"test_fold_api.py:\d+:\d+", "test_fold_api.py:...", report)
    report = re.sub(r"(?m)^  \d+ \|", "  ... |", report)
    report = re.sub(r"(?m)^ +\|( *\^+)$", r"      |\1", report)
    golden_files.compare(f"parallel/{name}", report)


def test_operators_can_be_pickled():
    matrices = np.log(np.random.default_rng(0).random((5, 2, 2)))
    expected = fold_list(lambda a, b: np.logaddexp.reduce(a[:, :, None] + b[None], axis=1), matrices)
    copied = pickle.loads(pickle.dumps(P.matrix_product(2, "log")))
    np.testing.assert_allclose(P.reduce(copied, matrices), expected, rtol=1e-12)
    assert P.reduce(pickle.loads(pickle.dumps(NAMED["max"])), X) == X.max()


def test_no_golden_file_is_left_over():
    assert golden_files.names("parallel") == set(MISTAKES)


@pytest.mark.parametrize(
    ("call", "form"),
    [
        (lambda x: P.scan(x, "add"), "scan(op, values)"),
        (lambda x: P.scan(x.tolist(), P.operator(lambda a, b: a + b, neutral=0.0)), "scan(op, values)"),
        (lambda x: P.reduce(x, "add"), "reduce(op, values)"),
        (lambda x: P.segment_reduce(x, "add", [0, 3]), "segment_reduce(op, values, offsets)"),
        (lambda x: P.segmented_scan(x, [0, 3], "add"), "segmented_scan(op, values, offsets)"),
        (lambda x: P.reduce_by_index(x, [0, 1, 1], "add", x), "reduce_by_index(destination, op, indices, values)"),
        (lambda x: P.reduce_by_index("add", "add", [0, 1, 1], x), "destination is 'add'"),
    ],
)
def test_arguments_in_another_order_are_refused_with_the_right_one(call, form):
    with pytest.raises(OperatorError) as caught:
        call(np.arange(3.0))
    assert form in str(caught.value)


@pytest.mark.parametrize(
    ("function", "name"),
    [(np.add, "add"), (np.maximum, "max"), (torch.minimum, "min"), (max, "max"), (sum, "add")],
)
def test_functions_that_have_an_operator_are_named(function, name):
    with pytest.raises(UnsupportedError) as caught:
        P.scan(function, np.arange(3.0))
    assert caught.value.hint == f'write its name: "{name}"'
    with pytest.raises(UnsupportedError, match="is a function") as caught:
        P.scan(lambda a, b: a + b, np.arange(3.0))
    assert "neutral=0" in str(caught.value)


def test_the_axis_of_folds_is_the_first():
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(P.scan("add", x, axis=0), np.cumsum(x, axis=0))
    for call in (
        lambda: P.scan("add", x, axis=1),
        lambda: P.reduce("add", x, axis=-1),
        lambda: P.segment_reduce("add", x, [0, 2], axis=1),
        lambda: P.segmented_scan("add", x, [0, 2], axis=None),
    ):
        with pytest.raises(ShapeError, match=r"folds go along the first axis") as caught:
            call()
        assert "np.moveaxis(values, " in str(caught.value)


def test_a_semiring_by_its_name_stands_for_its_plus():
    x = np.array([0.5, 2.0, 1.0])
    assert P.scan("max_plus", x).tolist() == [0.5, 2.0, 2.0]
    assert P.reduce("tropical", x) == 0.5
    assert P.reduce("log", x) == pytest.approx(np.logaddexp.reduce(x))
