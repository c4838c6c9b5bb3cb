"""What a user's format holds of the tensors that it is given."""

import numpy as np
import pytest

from derivable.core.diagnostics import LayoutError
from derivable.tensor import compile, parse
from derivable.tensor.formats.format import Format
from derivable.tensor.formats.held import hold
from derivable.tensor.values.values import Coordinates

# What small programs say is the same in Python, which need not be compiled for it.
# Definitions of a vector, and by each whether its arrays hold all of (1, 0, 2, 0, 3), one too few, or one elsewhere.
DEFINITIONS = {
    "listed": "sum(<p, i> in idx(0:3)) { i -> val(p) }",
    "of two parts": "(sum(<p, i> in idx(0:2)) { i -> val(p) }) + { idx(2) -> val(2) }",
    "of shares": "sum(<p, i> in idx(0:3)) { i -> sum(<_, k> in (0:2)) if k == 0 then val(p) }",
    "with a factor": "sum(<p, i> in idx(0:3)) { i -> val(p) * one }",
    "of a product": "one * (sum(<p, i> in idx(0:3)) { i -> val(p) })",
    "with a name": "let s = (sum(<p, i> in idx(0:3)) { i -> val(p) }) in s",
}


@pytest.mark.parametrize("form", DEFINITIONS)
@pytest.mark.parametrize("semiring", ["real", "min_plus"])
def test_what_a_format_of_the_user_loses(form, semiring):
    def pack(places, values):
        return Format(
            "mine",
            1,
            DEFINITIONS[form],
            {"val": "real", "idx": "int"},
            lambda entries, zero: {"val": np.where(np.equal(values, 0.0), zero, values), "idx": np.array(places)},
        )

    given = Coordinates.of((5,), [[0, 2, 4]], [1.0, 2.0, 3.0])
    whole = hold(given, pack([0, 2, 4], [1.0, 2.0, 3.0]), 1, semiring)
    assert whole.shape == (5,)
    for places, values, kept in [
        ([0, 2, 4], [1.0, 0.0, 3.0], "2 of them\n"),
        ([0, 2, 3], [1.0, 2.0, 3.0], "2 of them, and 1 that was not\n"),
        ([0, 0, 0], [1.0, 2.0, 3.0], "1 of them\n"),
    ]:
        with pytest.raises(LayoutError, match="of the format `mine` was given 3 entries, and its arrays hold " + kept):
            hold(given, pack(places, values), 1, semiring)


def test_results_in_a_format_of_the_user_that_loses():
    def pack(entries, zero):
        return {"held": np.zeros(entries.shape[0], bool), "val": np.zeros(entries.shape[0])}

    text = "sum(<_, i> in (0:n0)) if held(i) then { unique(i) -> val(i) }"
    bitmap = Format("bitmap", 1, text, {"held": "bool", "val": "real"}, pack)
    kernel = compile(parse("sum(<i, x> in X) { i -> x * x }", {"X": 1}), output=bitmap)
    assert kernel(X=np.zeros(3)).shape == (3,)
    with pytest.raises(LayoutError, match="was given 1 entry, and its arrays hold 0 of them"):
        kernel(X=np.array([0.0, 2.0, 0.0]))


def test_places_where_equal_indices_follow_each_other_are_searched():
    """An index that is not there, is first, last, or stands once or several times."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(1, 6, 12))
    given = Coordinates.of((8, 9), [rows, rng.permutation(9)[rng.integers(0, 9, 12)]], rng.normal(size=12))
    text = "sum(<p, i> in rows(0:count)) { i -> { columns(p) -> val(p) } }"

    def mine(shift):
        def pack(entries, zero):
            held = {"rows": np.roll(entries.indices[0], shift), "columns": np.roll(entries.indices[1], shift)}
            return held | {"val": np.roll(entries.values, shift), "count": len(entries.values)}

        return Format("mine", 2, text, {"rows": "ascending", "columns": "int", "val": "real"}, pack, ("count",))

    kernel = compile(parse("sum(<i, x> in X) { i -> sum(<j, a> in A(i)) a * x }", {"X": 1, "A": 2}))
    x = rng.normal(size=8)
    for held in (given, hold(given, mine(0), 2)):
        np.testing.assert_allclose(kernel(X=x, A=held), given.to_numpy().sum(1) * x, rtol=1e-12)
    with pytest.raises(LayoutError, match="in one part of `rows`, which is ascending"):
        hold(given, mine(1), 2)
