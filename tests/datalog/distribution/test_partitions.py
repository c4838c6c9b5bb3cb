"""Partitions that are run one by one: together they have the rows and tags of one run."""

from itertools import pairwise

import numpy as np
import pytest

import derivable as dv
from datalog.distribution.partitions import combined
from datalog.test_language import CASES

EDGE = "type edge(x: usize, y: usize) "
CLOSURE = "rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), edge(y, z) "
# The program, and an output that partitions have.
PROGRAMS = {
    "closure": (CLOSURE, "path"),
    "quadratic": ("rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), path(y, z)", "path"),
    "coins": ("rel 0.9::path(x, y) = edge(x, y) rel 0.8::path(x, z) = path(x, y), edge(y, z)", "path"),
    "both": ("rel near(x, y) = edge(x, y) rel near(x, z) = edge(x, y), edge(y, z), edge(x, z)", "near"),
    "facts": ("rel path = {(8, 9)} " + CLOSURE, "path"),
    "negation": (CLOSURE + "rel one(x, y) = path(x, y), not path(y, x)", "path"),
    "count": (CLOSURE + "rel n(x, c) = c := count(y: path(x, y))", "n"),
    "scattered": (CLOSURE + "rel end(y) = path(x, y) query end", "end"),
    "query": (CLOSURE + "query path(1, x)", "path(1, x)"),
}
FACTS = {"edge": {(i, (3 * i + j) % 5): 0.15 + 0.05 * (i + j) for i in range(5) for j in (1, 2)}}
# How tags of rows that follow in several partitions are merged.
MERGES = {"unit": max, "minmaxprob": max, "max_product": max, "addmultprob": lambda a, b: min(a + b, 1.0)}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("provenance", ["unit", "exact", "minmaxprob", "addmultprob", "topkproofs", "max_product"])
def test_tags(name, provenance):
    text, output = PROGRAMS[name]
    program = dv.Program(EDGE + text)
    expected = program.run(FACTS, provenance)
    partitions = combined(program, FACTS, provenance, MERGES.get(provenance))
    for relation, rows in partitions.items():
        assert rows == pytest.approx(dict(expected[relation].items()), abs=1e-12), relation
    is_nested = name == "quadratic" and provenance in ("addmultprob", "topkproofs")
    is_merged = name == "scattered" and provenance not in MERGES
    assert (output in partitions) != (is_nested or is_merged)


@pytest.mark.parametrize(("text", "expected"), [case[1:3] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.filterwarnings("ignore::derivable.DerivableWarning")
def test_language(text, expected):
    program = dv.Program(text)
    for output, rows in combined(program, {}, "unit", max).items():
        assert rows == dict.fromkeys(program.run(provenance="unit")[output], True)
        assert output not in expected or set(rows) == expected[output]


def test_random_facts_are_the_same_in_both_places():
    """A fact that a partition reads by a column and as a whole is one random event."""
    program = dv.Program(
        EDGE + "rel back(x) = edge(x, y), edge(y, x) rel loop(x, y) = edge(x, y), edge(y, x), edge(x, y)"
    )
    facts = {"edge": {(0, 0): 0.5, (0, 1): 0.5, (1, 0): 0.5}}
    partitions = combined(program, facts, "exact", None)
    assert partitions["loop"] == pytest.approx({(0, 0): 0.5, (0, 1): 0.25, (1, 0): 0.25}, abs=1e-12)
    assert partitions["back"] == pytest.approx({(0,): 1 - 0.5 * 0.75, (1,): 0.25}, abs=1e-12)


@pytest.mark.parametrize("query", ["query p", "query p query e"])
def test_files_that_the_program_names_are_refused(query, tmp_path):
    """Also where the relation is an output, which had no rows."""
    path = tmp_path / "e.csv"
    path.write_text("0\n")
    program = dv.Program(f'@file("{path}") type e(x: usize) rel p(x) = e(x) {query}')
    assert list(program.run()["p"]) == [(0,)]
    with pytest.raises(dv.DerivableError, match="partitions do not read the file of `e`"):
        program.run(spill=tmp_path / "runs")


def test_texts_have_owners():
    program = dv.Program(
        "type edge(String, String) rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), edge(y, z)"
    )
    names = [f"näme {i}" for i in range(20)]
    facts = {"edge": list(pairwise(names))}
    assert set(combined(program, facts, "unit", None)["path"]) == set(program.run(facts)["path"])


def test_keys_of_integers_are_those_of_the_formula():
    from derivable.datalog.distribution.keys import keys_of
    from derivable.datalog.values.symbols import SymbolTable
    from derivable.datalog.values.values import TYPES

    values = [0, 1, 7, 2**31 - 1, 2**40 + 3, -1, -(2**63), 2**63 - 1]
    expected = [(v % (2**31 - 1)) * 48271 % (2**31 - 1) % 13 for v in values]
    assert keys_of(np.array(values), TYPES["i64"], SymbolTable(), 13).tolist() == expected
