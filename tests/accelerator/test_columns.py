"""The order in which vectors lie side by side is theirs before, where the lanes have less to do so."""

import pytest
import torch

import derivable as dv
from derivable.accelerator.lower import lower_vectors
from derivable.accelerator.machine import machine
from derivable.accelerator.machine.layouts import canonical, columns_like
from derivable.core.diagnostics import DomainError

from .test_lower import check


def _bound(x, y):
    """Slices of products, parts of which lie apart, bound twice and compared."""
    a, b = x.reshape(3, 5, 2, 4, 16).unbind(2)
    keys = (0.5 * y).reshape(3, 5, 4, 16)
    bound = dv.vsa.bind(dv.vsa.bind(a, b), keys)
    return bound, dv.vsa.match_probability(bound, keys), dv.vsa.unbind(bound.transpose(0, 1), keys.transpose(0, 1))


INPUTS = tuple(0.5 * torch.randn(3, *shape, generator=torch.Generator().manual_seed(3)) for shape in ((640,), (5, 64)))


def test_strides_of_columns():
    assert canonical((3, 5, 4, 16)) == (1, 3, 15, 60)
    assert columns_like((3, 5, 4, 16), (320, 64, 16, 1)) == (20, 4, 1, 60)
    # What is broadcast has no place of its own, and comes last.
    assert columns_like((3, 5, 4, 16), (64, 0, 16, 1)) == (20, 1, 5, 60)


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_vectors_in_any_order(precision, monkeypatch):
    def cycles():
        lowered, _ = check(_bound, INPUTS, precision={"neural": precision, "symbolic": precision}, near=0.4)
        return int(machine.timing(lowered.machine, lowered.program)[1][-1])

    chosen = cycles()
    monkeypatch.setattr(lower_vectors, "columns_like", lambda shape, strides: canonical(shape))
    assert 1.15 * chosen < cycles()


def test_steps_that_are_too_large_are_told():
    a = 20 * torch.randn(2, 3, 4, 16, generator=torch.Generator().manual_seed(3))
    with pytest.raises(
        DomainError, match=r"%bind_1: a step of what it takes is .* at most 32768 are possible"
    ) as caught:
        check(lambda a: torch.relu(dv.vsa.bind(a, a)), (a,), precision={"neural": "int4", "symbolic": "int4"})
    assert "test_columns.py" in str(caught.value)
    assert "int8" in str(caught.value)
