"""How a program of the conformance suite is checked."""

import pytest

import derivable as dv


def holds(text, expected, **options):
    """Run a program; `expected` maps relations to their rows, or rows to tags, or is the error that it raises."""
    if isinstance(expected, str):
        with pytest.raises(dv.DerivableError, match=expected):
            dv.Program(text).run(**options)
        return
    db = dv.Program(text).run(**options)
    for name, rows in expected.items():
        if isinstance(rows, dict):
            assert dict(db[name].items()) == pytest.approx(rows), name
        else:
            assert set(db[name]) == rows, name


def parametrized(cases):
    """The cases, named by their keys."""
    return pytest.mark.parametrize(("text", "expected"), list(cases.values()), ids=list(cases))
