"""Whatever shortcuts recursions may take, their tuples and tags are the same, and each is a class in one list."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
import derivable.datalog.shortcuts
from datalog.formulas import model_of
from datalog.naive import splits
from datalog.programs import MonotoneRule, RichRule, closures, inputs, sources
from datalog.test_fused import NEVER, SET_ROWS, by_bits, settings_of, small_levels
from derivable.datalog.policy.costs import under
from derivable.datalog.shortcuts import SHORTCUTS
from drawn import examples

SUBSETS = st.sets(st.sampled_from(SHORTCUTS)).map(lambda chosen: tuple(one for one in SHORTCUTS if one in chosen))


@examples(5, 80, sources(rule=RichRule), inputs(), SUBSETS, st.data())
def test_random_programs_have_the_same_tuples(source, facts, chosen, data):
    source.rules += data.draw(closures(source))
    program = dv.Program(source.text())
    wanted = model_of(program.syntax, facts, source.derived)
    first, *rest = data.draw(splits(facts, 2))
    with settings_of(0, data.draw(SET_ROWS)), by_bits(), under(shortcuts=chosen):
        found, branch = program.run(facts), program.run(first, keep=True).fork()
        for part in rest:
            branch.add(part)
    for name in source.derived:
        assert set(found[name]) == set(branch[name]) == wanted[name], name


@examples(6, 60, sources(rule=RichRule), inputs(), SUBSETS)
def test_small_runs_have_the_same_tuples(source, facts, chosen):
    program = dv.Program(source.text())
    wanted = model_of(program.syntax, facts, source.derived)
    with settings_of(0, NEVER, is_whole=True), under(shortcuts=chosen):
        found = program.run(facts)
    for name in source.derived:
        assert set(found[name]) == wanted[name], name


RULES, PROVENANCES = sources(max_relations=3, rule=MonotoneRule), ("minmaxprob", "max_product", "min_plus", "exact")


@examples(6, 80, RULES, inputs(), SUBSETS, st.sampled_from(PROVENANCES), st.data())
def test_random_programs_have_the_same_tags(source, facts, chosen, provenance, data):
    source.rules += data.draw(closures(source))
    chance = st.sampled_from([0.25, 0.5, 0.75])
    facts = {name: [(data.draw(chance), row) for row in rows] for name, rows in facts.items()}
    set_rows, tags = data.draw(SET_ROWS), []
    for shortcuts in (SHORTCUTS, chosen):
        with settings_of(0, set_rows), small_levels(), by_bits(), under(shortcuts=shortcuts):
            found = dv.Program(source.text()).run(facts, provenance)
        tags.append({name: dict(found[name].items()) for name in source.derived})
    assert tags[0] == tags[1]


PAIRS = "rel p(x, y) = e(x, y)\n"
LENGTHS = "type p(x: i32, y: i32, min n: u32)\nrel p(x, y, 1) = e(x, y)\n"
# (rules, provenance, what shows that the shortcut was taken)
FORMS = {
    "union-find": (f"{PAIRS}rel p(y, x) = p(x, y)\nrel p(x, z) = p(x, y), p(y, z)", "unit", "shortcut union-find"),
    "transitive as linear": (f"{PAIRS}rel p(x, z) = p(x, y), p(y, z)", "unit", "#base"),
    "rows of bits": (f"{PAIRS}rel p(x, z) = p(x, y), e(y, z)", "unit", "shortcut rows of bits"),
    "best first": (f"{PAIRS}rel p(x, z) = p(x, y), e(y, z)", "minmaxprob", "shortcut best first"),
    "best value first": (f"{LENGTHS}rel p(x, z, n + 1) = p(x, y, n), e(y, z)", "unit", "shortcut best value first"),
}


@pytest.mark.parametrize("shortcut", SHORTCUTS, ids=lambda one: one.name)
def test_each_is_taken_where_it_is_in_the_list(shortcut):
    rules, provenance, sign = FORMS[shortcut.name]
    random = np.random.default_rng(0)
    edges = [tuple(row) for row in np.unique(random.integers(0, 60, (150, 2)), axis=0).tolist()]
    facts = {"e": edges if provenance == "unit" else [(k % 7 / 8 + 0.1, row) for k, row in enumerate(edges)]}
    program = dv.Program(f"type e(i32, i32)\n{rules}\nquery p")
    shown, found = [], []
    for shortcuts in ((shortcut,), ()):
        with settings_of(0, 1, 64, compiled=True), small_levels(64), by_bits(), under(shortcuts=shortcuts):
            shown.append(program.explain("plan", facts, provenance=provenance))
            found.append(program.run(facts, provenance)["p"])
    assert sign in shown[0]
    assert sign not in shown[1]
    assert set(found[0]) == set(found[1])
    assert found[0].tag_list() == found[1].tag_list() if provenance != "unit" else True


SHORTCUTS_FOLDER = Path(derivable.datalog.shortcuts.__file__).parent


def test_no_other_stage_names_a_shortcut():
    named = {}
    for path in sorted(SHORTCUTS_FOLDER.parent.glob("*/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and "datalog.shortcuts" in (node.module or ""):
                named.setdefault(f"{path.parent.name}/{path.name}", set()).update(alias.name for alias in node.names)
    outside = {name: names - {"Shortcut", "shortcuts"} for name, names in named.items() if "shortcuts/" not in name}
    # What makes rows of bits of a relation is there for devices too.
    assert {name: names for name, names in outside.items() if names} == {
        "apm/bit_matrices.py": {"Condensed", "include", "words_for"}
    }
