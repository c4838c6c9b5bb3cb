"""What other libraries have as numbers is read by every door with its values, or refused in words of ours: conjugated
and narrow tensors, masked arrays, nullable columns, keys of random numbers, arrays whose memory was given away."""

from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import derivable as dv

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax.experimental import sparse  # noqa: E402

a, b, c = dv.circuit.variables("a b c")
# Its value is the weight of the one variable whose negation weighs nothing.
ONE = dv.circuit.compile((a & ~b & ~c) | (~a & b & ~c) | (~a & ~b & c))
PROGRAM = dv.tensor.parse("sum(<i, x> in X) {i -> x}", {"X": 1})
DOORS = {
    "einsum": lambda x: dv.tensor.einsum("i,i->i", x, np.ones(3)),
    "program": lambda x: PROGRAM(X=x),
    "coordinates": lambda x: dv.tensor.coordinates(x).to_numpy(),
    "scan": lambda x: dv.parallel.scan("max", x),
    "circuit": lambda x: [ONE.evaluate(x, others, semiring="real").item() for others in 1 - np.eye(3)],
}
NUMBERS = [0.25, 0.5, 0.75]
# With the doors that have no form for it.
READ = {
    "negated view": (lambda: torch.tensor([-0.25j, -0.5j, -0.75j]).conj().imag, ()),
    "bfloat16": (lambda: torch.tensor(NUMBERS, dtype=torch.bfloat16), ()),
    "float8": (lambda: torch.tensor(NUMBERS).to(torch.float8_e5m2), ("scan",)),
    "list of bfloat16": (lambda: list(torch.tensor(NUMBERS, dtype=torch.bfloat16)), ()),
    "list of views": (lambda: list(torch.tensor([-0.25j, -0.5j, -0.75j]).conj().imag), ()),
    "JAX bfloat16": (lambda: jnp.array(NUMBERS, jnp.bfloat16), ()),
    "NumPy bfloat16": (lambda: np.array(NUMBERS, jnp.bfloat16), ()),
    "series": (lambda: pd.Series(NUMBERS, dtype="Float64"), ()),
    "sparse series": (lambda: pd.Series(pd.arrays.SparseArray(NUMBERS)), ()),
    "types without sizes": (lambda: _Series(NUMBERS), ()),
}


class _Series(list):
    """As a series of polars, whose types are no types of NumPy."""

    dtype = SimpleNamespace()

    def __array__(self, *_, **__):
        return np.array(list(self))


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("door", DOORS)
def test_numbers_are_read(door, kind):
    make, without = READ[kind]
    if door in without:
        with pytest.raises(dv.DerivableError, match="float8"):
            DOORS[door](make())
        return
    result = DOORS[door](make())
    result = [float(x) for x in result]
    assert result == NUMBERS


def _deleted():
    array = jnp.array(NUMBERS) + 0
    array.delete()
    return array


REFUSED = {
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "nested"),
    "nested rows": (
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
        "nested|layout",
    ),
    "keys": (lambda: jax.random.split(jax.random.key(0), 3), "key|PRNGKey"),
    "list of keys": (lambda: [jax.random.key(0)] * 3, "PRNGKey|key"),
    "deleted": (_deleted, "given away|deleted"),
    "masked": (lambda: np.ma.array(NUMBERS, mask=[False, True, False]), "masked at 1 place"),
    "list with a masked one": (lambda: [0.25, np.ma.masked, 0.75], "masked at 1 place"),
    "signalling NaN": (lambda: [0.25, Decimal("sNaN"), 0.75], "object"),
    "texts": (lambda: pd.Series(["0.25", "0.5", "0.75"]), "object|no number"),
    "tables": (lambda: _Table(), "cannot be read as an array: no table is an array"),
}


class _Table:
    def __array__(self, *_, **__):
        raise LookupError("no table is an array")


@pytest.mark.filterwarnings("ignore:.*nested tensors", "ignore:.*masked element")
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("door", DOORS)
def test_what_has_no_numbers_is_refused(door, kind):
    make, message = REFUSED[kind]
    with pytest.raises(dv.DerivableError, match=message):
        DOORS[door](make())


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("door", DOORS)
def test_quantised_tensors_are_refused(door):
    with pytest.raises(dv.DerivableError, match=r"quantised|quint8"):
        DOORS[door](torch.quantize_per_tensor(torch.tensor(NUMBERS), 0.25, 0, torch.quint8))


@pytest.mark.parametrize("form", ["dense", "entries"])
def test_torch_beside_what_jax_traces_is_constant(form):
    """As in programs: gradients of the one do not reach the other."""
    weights, places = torch.tensor([2.0, 3.0, 4.0]), jnp.arange(3)[:, None]

    def total(x):
        x = sparse.BCOO((x, places), shape=(3,)) if form == "entries" else x
        return dv.tensor.einsum("i,i->", x, weights)

    assert jax.jit(total)(jnp.ones(3)) == 9
    np.testing.assert_array_equal(jax.grad(total)(jnp.ones(3)), weights)
    weights.requires_grad_()
    with pytest.raises(dv.DerivableError, match=r"gradients|one library"):
        jax.jit(lambda x: total(x))(jnp.ones(3))


@pytest.mark.parametrize(
    "make", [lambda n: torch.ones(n).to(torch.float8_e5m2), lambda n: jnp.ones(n, jnp.float8_e5m2)]
)
def test_floats_of_8_bits_are_added_up_in_32(make):
    """A float of so few bits has no 9: its sum of ones would end at 8."""
    assert float(dv.tensor.einsum("i,i->", make(10_000), np.ones(10_000, np.float32))) == 10_240
