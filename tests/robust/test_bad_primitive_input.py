"""Bad arguments of primitives, semirings and declared inputs are errors of ours, as in `test_bad_circuit_input`."""

import pytest

import derivable as dv
from derivable.algebra.semiring import Semiring
from derivable.parallel import dispatch as primitives
from robust.refusal import refuses


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: primitives.reduce_by_index([0.0], "add", [0, 0], [1.0]), "2 indices for 1 values"),
        (lambda: primitives.reduce_by_index("x", "add", [0], [1.0]), "destination"),
        (lambda: primitives.scan("add", [[1.0], [1, 2]]), "different lengths"),
        (lambda: primitives.sort(None), "columns is None"),
        (lambda: primitives.unique(None), "columns is None"),
        (lambda: primitives.join(None, None), "left is None"),
        (lambda: dv.device.explain(3), "no primitive 3"),
        (lambda: primitives.scan(Semiring("x", None, None, 0.0, 1.0), [1.0]), "plus of semiring 'x'"),
        (lambda: primitives.scan(Semiring("x", max, min, 0.0, 1.0, complement=3), [1.0]), "complement of semiring 'x'"),
        (lambda: primitives.scan(Semiring(3, max, min, 0.0, 1.0), [1.0]), "semiring name 3"),
        (
            lambda: primitives.scan(Semiring("x", max, min, 0.0, 1.0, "complex"), [1.0]),
            "carrier of semiring 'x' is 'complex'",
        ),
        (lambda: dv.categorical([1, "a"]), "unlike the first"),
        (lambda: dv.categorical([None]), "(None,)"),
        (lambda: dv.independent([(1,), (1, 2)]), "has 2 columns, the first, (1,), has 1"),
    ],
    ids=range(14),
)
def test_refused(call, said):
    assert said in refuses(call)


def test_what_looks_odd_and_is_fine():
    assert len(dv.categorical([1, 2.5])) == 2
    assert len(dv.independent([])) == 0
