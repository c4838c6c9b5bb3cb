"""What users write in operators: bits of integers, dictionaries; and what answers functions of other libraries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import DerivableError, ShapeError

P = dv.parallel
DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LIBRARIES = {"NumPy": np.asarray, "torch": torch.from_numpy, "JAX": jnp.asarray}
BITS = {
    "xor": (lambda a, b: a ^ b, np.bitwise_xor, 0),
    "and": (lambda a, b: a & b, np.bitwise_and, -1),
    "or": (lambda a, b: ~(~a & ~b), np.bitwise_or, 0),
}
OWN = {name: P.operator(function, neutral=neutral, name=name) for name, (function, _, neutral) in BITS.items()}


def numbers(dtype, count=40):
    limits = np.iinfo(dtype)
    high = min(limits.max, 2**63 - 1)
    return np.random.default_rng(0).integers(limits.min, high, count, dtype, endpoint=True)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", BITS)
def test_bits_of_integers_of_every_type(name, library):
    """Against NumPy's ufuncs; uint64 is refused where it has no kernels."""
    ufunc, array = BITS[name][1], LIBRARIES[library]
    for dtype in DTYPES:
        x = numbers(dtype)
        for operator in (OWN[name], name):
            if dtype == "uint64" and (library == "JAX" or name == "and"):
                continue
            if library == "JAX" and dtype == "int64":
                x = x.astype(np.int32)  # JAX has 32 bits by default
            found = np.asarray(P.scan(operator, array(x)))
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, ufunc.accumulate(x))
            places, start = np.arange(len(x)) % 3, np.array([ufunc.identity] * 3).astype(x.dtype)
            expected = start.copy()
            ufunc.at(expected, places, x)
            found = P.reduce_by_index(array(start), operator, array(places), array(x))
            np.testing.assert_array_equal(np.asarray(found), expected)
            none = P.segment_reduce(operator, array(x), array(np.array([0, 0, len(x)])))
            assert np.asarray(none).tolist() == [start[0], ufunc.reduce(x)]


@pytest.mark.parametrize("library", LIBRARIES)
def test_named_bits_of_truth_values(library):
    x = numbers("int8") > 0
    for name, ufunc in (("xor", np.logical_xor), ("and", np.logical_and), ("or", np.logical_or)):
        found = np.asarray(P.scan(name, LIBRARIES[library](x)))
        assert found.dtype == bool
        np.testing.assert_array_equal(found, ufunc.accumulate(x))


def test_shifts():
    """A number in binary digits, most significant first, as pairs (digits, how many): joined by shifting."""
    joined = P.operator(lambda a, b: ((a[0] << b[1]) | b[0], a[1] + b[1]), neutral=(0, 0), name="digits")
    digits = np.array([1, 0, 1, 1, 0, 1])
    found, _ = P.scan(joined, (digits, np.ones(6, np.int64)))
    assert found.tolist() == [int("101101"[: k + 1], 2) for k in range(6)]
    halves = P.operator(lambda a, b: ((a[0] >> b[1]) & (b[0] | -1), a[1] + b[1]), neutral=(-1, 0), name="halves")
    found, _ = P.scan(halves, (np.array([-900, 0, 0]), np.array([0, 3, 80])))
    assert found.tolist() == [-900, -900 >> 3, -1]


def test_floats_have_no_bits():
    with pytest.raises(DerivableError, match="bitwise_xor needs integers or truth values, and float64"):
        P.scan(P.operator(lambda a, b: a ^ b, neutral=0.0), np.ones(3))
    with pytest.raises(DerivableError, match="the operator xor does not take float64"):
        P.scan("xor", np.ones(3))


AFFINE = P.operator(
    lambda f, g: {"slope": f["slope"] * g["slope"], "offset": g["slope"] * f["offset"] + g["offset"]},
    neutral={"slope": 1.0, "offset": 0.0},
    name="affine",
)


@pytest.mark.parametrize("array", [torch.as_tensor, np.asarray, jnp.asarray], ids=["torch", "NumPy", "JAX"])
def test_dictionaries_are_elements(array):
    """y[i] = a[i] y[i - 1] + b[i], in a loop; the order of keys is nobody's concern."""
    a, b, y, ys = [0.5, 2.0, -1.0, 3.0], [1.0, 0.5, 2.0, -1.0], 0.0, []
    for slope, offset in zip(a, b):
        y = slope * y + offset
        ys.append(y)
    found = P.scan(AFFINE, {"offset": array(np.array(b)), "slope": array(np.array(a))})
    assert list(found) == ["offset", "slope"]
    np.testing.assert_allclose(np.asarray(found["offset"]), ys)


def test_gradients_through_dictionaries():
    a, b = (torch.rand(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: P.scan(AFFINE, {"slope": a, "offset": b})["offset"], (a, b))


def test_other_keys_are_refused():
    with pytest.raises(ShapeError, match="has the keys shift, slope where"):
        P.scan(AFFINE, {"slope": np.ones(3), "shift": np.ones(3)})
    with pytest.raises(ShapeError, match="places without names"):
        P.scan(
            P.operator(lambda a, b: (a[0] + b[0], a[1] + b[1]), neutral=(0.0, 0.0)), {"a": np.ones(2), "b": np.ones(2)}
        )


WEIGHTS = torch.nn.Parameter(torch.ones(3))
FOREIGN = {
    "write `dv.maximum`": lambda a, b: torch.maximum(a, b),
    "write `dv.minimum`": lambda a, b: torch.minimum(a, b),
    "write `dv.where`": lambda a, b: torch.where(a < b, a, b),
    "write `dv.log`": lambda a, b: torch.log(a) + b,
    r"write `dv.exp\(a\)`": lambda a, b: a.exp() + b,
    "`dv.maximum` for `jnp.maximum`": lambda a, b: jnp.maximum(a, b),
    "such as `dv.maximum`": lambda a, b: jnp.where(a < b, a, b),
    "use the functions of `derivable`": lambda a, b: torch.special.erf(a) + b,
    "are a leaf of each element": lambda a, b: a + WEIGHTS * b,
    "a leaf of each element": lambda a, b: a * WEIGHTS + b,
    "leaf of each element": lambda a, b: a + b * np.ones(3)[0:1],
}


@pytest.mark.parametrize("answer", FOREIGN)
def test_functions_of_other_libraries_are_answered_with_ours(answer):
    with pytest.raises(DerivableError, match=answer):
        P.scan(P.operator(FOREIGN[answer], neutral=0.0), torch.rand(4))


@pytest.mark.parametrize("function", [torch.nn.functional.relu, jax.nn.sigmoid, np.median], ids=lambda f: f.__name__)
def test_the_line_of_the_user_is_shown_where_a_library_calls_itself(function):
    with pytest.raises(DerivableError) as caught:
        P.scan(P.operator(lambda a, b: function(a) + b, neutral=0.0), torch.rand(4))
    assert caught.value.source == __file__


def test_functions_of_numpy_are_ours():
    x = torch.rand(6)
    assert torch.equal(P.scan(P.operator(lambda a, b: np.maximum(a, b), neutral=0.0), x), x.cummax(0).values)
