"""Layers are pickled, copied and saved under all provenances, before and after calls; and the forms of samples."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.algebra import semirings
from derivable.core.diagnostics import TypeMismatchError
from derivable.datalog.tags.provenance import PROVENANCES

# Those whose tags are no numbers have no layers, and integers of any size no compiled form.
NAMES = [n for n in PROVENANCES.names() if n not in ("proofs", "topkproofsdebug", "realtropicalproofs", "counting")]
KINDS = {
    "fixed": (dv.independent([0, 1]), {"q": ()}),
    "choice": (dv.categorical([0, 1]), {"q": ()}),
    "varying": (dv.varying(), {"q": ()}),
    "what is derived": (dv.varying(), {"q": None}),
    "what is derived of fixed facts": (dv.independent([0, 1]), {"q": None}),
}


def saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = {"pickle": lambda layer: pickle.loads(pickle.dumps(layer)), "copy": copy.deepcopy, "save": saved}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "provenance", [*NAMES, semirings.godel, semirings.addmultprob], ids=lambda of: getattr(of, "name", of)
)
def test_a_layer_travels(provenance, kind):
    given, outputs = KINDS[kind]
    layer = dv.nn.Logic("type a(i32) rel q() = a(0) or a(1)", {"a": given}, outputs, provenance=provenance)
    p = torch.tensor([0.25, 0.75])
    facts = [([0, 1], p)] if kind in ("varying", "what is derived") else p
    fresh = [way(layer) for way in WAYS.values()]
    expected = layer(a=facts)
    for other in (*fresh, *(way(layer) for way in WAYS.values())):
        assert str(other(a=facts)) == str(expected)


P = torch.tensor([0.5, 0.25])
ROWS = [(1, 2), (3, 4)]
# What samples are given as, and the rows that are meant.
FORMS = {
    "a list of tuples": (ROWS, ROWS),
    "a list of lists": ([[1, 2], [3, 4]], ROWS),
    "a tuple of tuples": (((1, 2), (3, 4)), ROWS),
    "an array of rows": (np.array(ROWS), ROWS),
    "a tensor of rows": (torch.tensor(ROWS), ROWS),
    "a tuple of arrays, columns": ((np.array([1, 3]), np.array([2, 4])), ROWS),
    "a tuple of tensors, columns": ((torch.tensor([1, 3]), torch.tensor([2, 4])), ROWS),
}
AMBIGUOUS = {
    "a tuple of lists": ([1, 2], [3, 4]),
    "an array and a list": (np.array([1, 2]), [3, 4]),
}


def varying():
    return dv.nn.Logic("type e(i32, i32) rel q(x, y) = e(x, y)", {"e": dv.varying()}, {"q": None})


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_samples(form):
    given, rows = FORMS[form]
    assert [found for found, _ in varying()(e=[(given, P)])] == [rows]
    certain = varying()(e=[([(9, 9)], P[:1])], certain={"e": [given]})
    assert [found for found, _ in certain] == [[*rows, (9, 9)]]


@pytest.mark.parametrize("form", AMBIGUOUS)
def test_rows_or_columns(form):
    for call in (
        lambda layer: layer(e=[(AMBIGUOUS[form], P)]),
        lambda layer: layer(e=[(ROWS, P)], certain={"e": [AMBIGUOUS[form]]}),
        lambda layer: layer(e=dv.nn.Ragged(AMBIGUOUS[form], P, [0, 2])),
    ):
        with pytest.raises(TypeMismatchError, match="rows or columns"):
            call(varying())
