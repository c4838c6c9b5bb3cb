"""What computes on numbers refuses a tensor that has none to read, as gradients of it are recorded or it is traced, in
words of ours."""

import numpy as np
import pytest
import torch

import derivable as dv

jax = pytest.importorskip("jax")

PROGRAM = dv.tensor.parse("sum(<i, a> in X) a", {"X": 1})
RULES = dv.Program("rel q(x) = a(x) query q")
# Each of a tensor of four numbers.
DOORS = {
    "entries": lambda x: dv.tensor.Coordinates.of((4, 4), [[0, 1, 3, 2], [1, 2, 0, 2]], x),
    "a tensor": lambda x: dv.tensor.coordinates(x),
    "a dictionary": lambda x: PROGRAM(X={0: x[0], 1: x[1]}),
    "a list": lambda x: PROGRAM(X=[x[0], x[1]]),
    "a list in a sum": lambda x: dv.tensor.einsum("i,i->", [x[0], x[1]], np.ones(2)),
    "a dictionary in a sum": lambda x: dv.tensor.einsum("i,i->", {0: x[0], 1: x[1]}, np.ones(2)),
    "a list in a fold": lambda x: dv.parallel.reduce("sum", [x[0], x[1]]),
    "categories": lambda x: RULES.run({"a": dv.categorical(range(4), x)}),
    "independent facts": lambda x: RULES.run({"a": dv.independent(range(4), x)}),
}


@pytest.mark.parametrize("door", DOORS)
def test_recorded_tensors(door):
    with pytest.raises(dv.DerivableError, match="gradient"):
        DOORS[door](torch.full((4,), 0.25, requires_grad=True))


@pytest.mark.parametrize("door", DOORS)
def test_tensors_of_vmap(door):
    with pytest.raises(dv.DerivableError, match=r"trace|torch cannot read"):
        torch.vmap(DOORS[door])(torch.full((2, 4), 0.25))


@pytest.mark.parametrize("door", [*DOORS, "facts"])
def test_traced_arrays(door):
    call = DOORS.get(door, lambda x: RULES.run({"a": x}))
    with pytest.raises(dv.DerivableError, match="trace"):
        jax.jit(call)(jax.numpy.full(4, 0.25))
