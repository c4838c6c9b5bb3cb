"""Tags: their arithmetic is that of real numbers, and where a semiring is no probability they are its values."""

import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import derivable as dv
from derivable.algebra import Semiring, expr
from derivable.algebra.semirings import counting
from derivable.core.diagnostics import DomainError

EVERY = [
    "unit",
    "exact",
    "topkproofs",
    "minmaxprob",
    "addmultprob",
    "real",
    "max_product",
    "log",
    "min_plus",
    "counting",
]
ONE_FACT = {"unit": True, "log": math.log, "counting": 1}
PATHS = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nquery p"


def tags(text, provenance, facts=None, relation="p"):
    """Row -> tag, of a run without tags True."""
    view = dv.Program(text).run(facts, provenance=provenance)[relation]
    return dict.fromkeys(view, True) if view.tags is None else dict(view)


# Arithmetic


TAGS = {
    "rel {t}::p()": 1 / 6,
    "rel p = {{{t}::()}}": 1 / 6,
    "rel q(1)\nrel {t}::p() = q(1)": 1 / 6,
    "rel q(1, 6)\nrel (x / y)::p() = q(x, y)": 1 / 6,
    "type q(u8, u8)\nrel q(1, 6)\nrel x / y::p() = q(x, y)": 1 / 6,
    "rel q(-1, 6)\nrel $abs(x / y)::p() = q(x, y)": 1 / 6,
    "rel q(1, 6)\nrel (if x < y then x / y else 0)::p() = q(x, y)": 1 / 6,
    "rel q(1)\nrel x / (2 + 4)::p() = q(x)": 1 / 6,
    "const A = 1 const B = 6\nrel A / B::p()": 1 / 6,
    "const P = 1 / 6\nrel P::p()": 1 / 6,
    "const P = 1 / 6\nconst Q = P\nrel q(1)\nrel Q::p() = q(1)": 1 / 6,
    "rel q(5000000000)\ntype q(i64)\nrel 5000000000 / (6 * x)::p() = q(x)": 1 / 6,
}


@pytest.mark.parametrize("provenance", EVERY)
@pytest.mark.parametrize("text", TAGS)
def test_one_sixth_is_no_integer(text, provenance):
    expected = ONE_FACT.get(provenance, lambda x: x)
    expected = expected(TAGS[text]) if callable(expected) else expected
    assert tags(text.format(t="1/6"), provenance) == pytest.approx({(): expected})


def test_integers_outside_of_tags_stay_integers():
    """The constant is an integer in a column, and a real number as a tag; a declared type is kept."""
    text = "const P = 7 / 2\nrel p(P)\nrel q(P / 2)\nconst Q: i32 = 1 / 6\nrel Q::r()"
    db = dv.Program(text).run(provenance="real")
    assert list(db["p"]) == [(3,)]
    assert list(db["q"]) == [(1,)]
    assert len(db["r"]) == 0


def test_exclusive_facts_with_fractions():
    text = 'rel w = {3/10::"sun"; 7/10::"rain"}\nrel p() = w("sun"), w("rain")\nrel q() = w(_)\nquery w query p query q'
    db = dv.Program(text).run()
    assert dict(db["w"]) == pytest.approx({("sun",): 0.3, ("rain",): 0.7})
    assert len(db["p"]) == 0
    assert db["q"][()] == pytest.approx(1.0)


def test_a_tag_without_value():
    with pytest.raises(DomainError, match=r"the tag `\(0 / 0\)` has no value"):
        dv.Program("rel 0 / 0::p()")
    for rule in ("p() = q(x)", "{p(x); r(x)} = q(x)", "{p(x), r(x)} = q(x)", "p(1 + 1)"):
        with pytest.raises(DomainError, match=r"the tag `\(0 / 0\)` has no value"):
            dv.Program(f"rel q = {{1, 2}} rel 0 / 0::{rule}")
    # A row whose tag has none is not there.
    assert tags("rel q = {0, 1}\nrel x / x::p(x) = q(x)", "exact") == {(1,): 1.0}


# Values of the carrier


@pytest.fixture(scope="module")
def roads():
    graph = nx.gnm_random_graph(12, 40, seed=5, directed=True)
    for number, edge in enumerate(graph.edges):
        graph.edges[edge]["weight"] = 370.0 + 13.0 * ((number * 7) % 11)
    expected = {}
    for a, b in ((a, b) for a in graph for b in graph):
        # A closed path has at least one edge.
        found = [
            graph.edges[a, c]["weight"] + nx.shortest_path_length(graph, c, b, "weight")
            for c in graph.successors(a)
            if nx.has_path(graph, c, b)
        ]
        if found:
            expected[a, b] = min(found)
    return {(a, b): data["weight"] for a, b, data in graph.edges(data=True)}, expected


def in_text(edges, _):
    return PATHS + "\nrel e = {" + ", ".join(f"{w}::({a}, {b})" for (a, b), w in edges.items()) + "}", None


def in_single_facts(edges, _):
    return PATHS + "".join(f"\nrel {w}::e({a}, {b})" for (a, b), w in edges.items()), None


def in_rules(edges, _):
    rows = ", ".join(f"({a}, {b}, {w})" for (a, b), w in edges.items())
    return PATHS + f"\ntype length(i32, i32, f64)\nrel length = {{{rows}}}\nrel w::e(a, b) = length(a, b, w)", None


def in_mapping(edges, _):
    return PATHS, {"e": edges}


def in_pairs(edges, _):
    return PATHS, {"e": [(w, edge) for edge, w in edges.items()]}


def in_independent(edges, _):
    return PATHS, {"e": dv.independent(list(edges), list(edges.values()))}


def in_columns(edges, _):
    sources, targets = zip(*edges)
    return PATHS, {"e": {"a": sources, "b": targets, "probability": list(edges.values())}}


def in_file(edges, folder):
    path = folder / "e.csv"
    path.write_text("".join(f"{w},{a},{b}\n" for (a, b), w in edges.items()))
    return PATHS, {"e": path}


def in_parquet(edges, folder):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    sources, targets = zip(*edges)
    table = arrow.table({"tag": list(edges.values()), "a": list(sources), "b": list(targets)})
    parquet.write_table(table, folder / "e.parquet")
    return PATHS, {"e": folder / "e.parquet"}


FORMS = (
    in_text,
    in_single_facts,
    in_rules,
    in_mapping,
    in_pairs,
    in_independent,
    in_columns,
    in_file,
    in_parquet,
)


@pytest.mark.parametrize("form", FORMS)
def test_lengths_are_tags(form, roads, tmp_path):
    """The least sum of lengths of 370 and more, of which exp(-w) would leave nothing."""
    edges, expected = roads
    text, facts = form(edges, tmp_path)
    assert tags(text, "min_plus", facts) == expected
    assert tags(text, "tropical", facts) == expected
    assert set(tags(text, "unit", facts)) == set(expected)
    with pytest.raises(DomainError, match=r"the tag \d+ of .* is not a probability, which 'exact' needs") as caught:
        tags(text, None, facts)
    assert "min_plus" in caught.value.hint


def test_predicates_give_lengths():
    @dv.datalog.predicate(outputs=(int,), tagged=True)
    def road_from(x: int):
        yield 370.0, (x + 1,)
        yield 0.0, (x + 2,)

    text = "rel q = {0, 1}\nrel p(x, y) = q(x), road_from(x, y)"
    assert tags(text, "min_plus") == {(0, 1): 370.0, (1, 2): 370.0, (0, 2): 0.0, (1, 3): 0.0}
    assert set(tags(text, "unit")) == {(0, 1), (1, 2), (0, 2), (1, 3)}
    with pytest.raises(DomainError, match="the tag 370 of a row of the predicate road_from is not a probability"):
        tags(text, "exact")


def test_scores_are_tags():
    """The best score of a way, of which all are below 0; `unit` ignores them."""
    facts = {"e": {(0, 1): -2.4, (1, 2): -0.1, (0, 2): -3.0, (2, 3): 1.5, (1, 3): 0.0}}
    best = {(0, 1): -2.4, (0, 2): -2.5, (0, 3): -1.0, (1, 2): -0.1, (1, 3): 1.4, (2, 3): 1.5}
    assert tags(PATHS, "max_plus", facts) == pytest.approx(best)
    least = {(0, 1): -2.4, (0, 2): -3.0, (0, 3): -2.4, (1, 2): -0.1, (1, 3): 0.0, (2, 3): 1.5}
    assert tags(PATHS, "tropical", facts) == pytest.approx(least)
    assert set(tags(PATHS, "unit", facts)) == set(best)
    weighted = {"e": {(0, 1): -2.0, (1, 2): 0.5, (0, 2): 3.0}}
    assert tags(PATHS, "real", weighted) == pytest.approx({(0, 1): -2.0, (1, 2): 0.5, (0, 2): 2.0})


def test_multiplicities_are_tags():
    """Integers count as themselves, probabilities as one fact, 0 as none."""
    facts = {"e": {(0, 1): 2, (1, 2): 3, (0, 2): 0.25, (2, 3): 0, (1, 3): 1.0}}
    assert tags(PATHS, "counting", facts) == {(0, 1): 2, (1, 2): 3, (0, 2): 7, (1, 3): 1, (0, 3): 2}
    doubling = replace(counting, name="doubling", fact=lambda tag, variable: 2 * int(tag))
    assert tags(PATHS, doubling, {"e": {(0, 1): 2}}) == {(0, 1): 4}
    for wrong in (2.5, -1, math.inf):
        with pytest.raises(DomainError, match="is not a value of the semiring 'counting': integers from 0"):
            tags(PATHS, "counting", {"e": {(0, 1): wrong}})


@pytest.mark.parametrize("provenance", EVERY)
@pytest.mark.parametrize("text", ["rel 0.0::p(0)", "rel q = {{0}}\nrel n::p(n) = q(n)", "rel p = {{0::0}}"])
def test_a_row_with_tag_zero(text, provenance):
    """It is there where tags are ignored, and where 0 is not the zero of the semiring."""
    expected = {"unit": {(0,): True}, "min_plus": {(0,): 0.0}}.get(provenance, {})
    assert tags(text.format(), provenance) == expected


@pytest.mark.parametrize("provenance", EVERY)
@pytest.mark.parametrize(
    "text", ["rel {}::p(1)", "rel q = {{1}}\nrel {}::p(x) = q(x)", "rel q(1)\nrel b::p(x) = q(x), b == {}"]
)
def test_truth_values_are_no_numbers(text, provenance):
    """`true` is the one of every semiring, and `false` its zero."""
    one = {"unit": True, "log": 0.0, "min_plus": 0.0}.get(provenance, 1)
    assert tags(text.format("true"), provenance) == {(1,): one}
    assert tags(text.format("false"), provenance) == ({(1,): True} if provenance == "unit" else {})


@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "minmaxprob", "addmultprob"])
@pytest.mark.parametrize("tag", ["1.5", "-0.5", "2"])
@pytest.mark.parametrize("text", ["rel {}::p(1)", "rel q = {{1}}\nrel {}::p(x) = q(x)", "rel p = {{0.5::2, {}::1}}"])
def test_probabilities_are_in_their_range(text, tag, provenance):
    program = dv.Program(text.format(tag))
    with pytest.raises(DomainError, match=f"the tag {tag} of .* is not a probability, which '{provenance}' needs") as e:
        program.run(provenance=provenance)
    assert "in [0, 1]" in e.value.hint
    assert e.value.span is not None
    assert (1,) in program.run(provenance="unit")["p"]
    assert program.run(provenance="real")["p"][1] == float(tag)


LUKASIEWICZ = Semiring(
    "lukasiewicz_tags",
    plus=expr.maximum,
    times=lambda a, b: expr.maximum(a + b - 1, 0.0),
    zero=0.0,
    one=1.0,
    domain=(0.0, 1.0),
    idempotent_plus=True,
)
# The widest path: the capacity of its narrowest edge.
CAPACITY = Semiring(
    "capacity",
    plus=expr.maximum,
    times=expr.minimum,
    zero=0.0,
    one=math.inf,
    domain=(0.0, math.inf),
    idempotent_plus=True,
    selective_plus=True,
    absorptive=True,
)


def test_own_semirings_have_their_domain():
    facts = {"e": {(0, 1): 250.0, (1, 2): 90.0, (0, 2): 40.0}}
    assert tags(PATHS, CAPACITY, facts) == {(0, 1): 250.0, (1, 2): 90.0, (0, 2): 90.0}
    text = PATHS + "\nrel e = {250.0::(0, 1), 90::(1, 2), 40.0::(0, 2)}"
    assert tags(text, CAPACITY) == {(0, 1): 250.0, (1, 2): 90.0, (0, 2): 90.0}
    with pytest.raises(
        DomainError, match=r"the tag -1 of .* is not a value of the semiring 'capacity', whose domain is 0"
    ):
        tags(PATHS, CAPACITY, {"e": {(0, 1): -1}})
    with pytest.raises(DomainError, match="is not a probability, which 'lukasiewicz_tags' needs"):
        tags(PATHS, LUKASIEWICZ, facts)
    with pytest.raises(DomainError, match="the tag nan is not a number"):
        tags(PATHS, CAPACITY, {"e": {(0, 1): math.nan}})


def test_probabilities_that_are_computed_become_values():
    """Of a soft comparison and of `normalize` there are probabilities under every provenance."""
    chance = 1 / (1 + math.exp(-1.0))
    assert tags("rel q(2.0)\nrel p(x) = q(x), soft_gt(x, 1.0)", "min_plus") == pytest.approx(
        {(2.0,): -math.log(chance)}
    )
    assert tags("rel q(2.0)\nrel p(x) = q(x), soft_gt(x, 1.0)", "max_plus") == pytest.approx({(2.0,): math.log(chance)})
    text = "rel q = {{0.5::1, 0.5::2}}\nrel p(x) = x := normalize(x: q(x))".format()
    assert tags(text, "min_plus") == pytest.approx({(1,): math.log(2), (2,): math.log(2)})


def test_facts_are_added_to_lengths():
    """The range is known when facts are added later, too."""
    program = dv.Program(PATHS)
    db = program.run({"e": {(0, 1): 370.0}}, provenance="min_plus", keep=True)
    db.add({"e": {(1, 2): 400.0}})
    assert dict(db["p"]) == {(0, 1): 370.0, (1, 2): 400.0, (0, 2): 770.0}
    db = program.run({"e": {(0, 1): 0.5}}, provenance="exact", keep=True)
    with pytest.raises(DomainError, match="the tag 400 of row 0"):
        db.add({"e": {(1, 2): 400.0}})
    assert dict(db["p"]) == {(0, 1): 0.5}


def test_exclusive_lengths():
    """Exclusive facts may be any values where values do not exclude each other."""
    assert tags('rel p = {370.0::"a"; 2.0::"b"}', "min_plus") == {("a",): 370.0, ("b",): 2.0}
    with pytest.raises(DomainError, match="the tag 370 of"):
        tags('rel p = {370.0::"a"; 2.0::"b"}', "exact")


@pytest.mark.parametrize("provenance", ["exact", "topkproofs"])
@pytest.mark.parametrize(
    "numbers", [(0.334, 0.334, 0.334), (0.501, 0.501), (0.17,) * 6, (0.34, 0.34, 0.33), (0.5, 0.502)]
)
def test_rounded_choices_are_normalised(numbers, provenance):
    text = "rel c = {" + "; ".join(f"{p}::{i}" for i, p in enumerate(numbers)) + "}\nrel p() = c(x)\nrel no() = not p()"
    db = dv.Program(text).run(provenance=provenance, k=10)
    total = sum(numbers)
    assert dict(db["c"]) == pytest.approx({(i,): p / total for i, p in enumerate(numbers)})
    assert db["p"][()] == pytest.approx(1.0)
    assert not len(db["no"]) or db["no"][()] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("numbers", [(0.5, 0.6), (0.7, 0.7), (0.5, 0.52), (0.9, 0.2)])
def test_clear_excess_is_an_error(numbers):
    text = "rel p = {" + "; ".join(f"{p}::{i}" for i, p in enumerate(numbers)) + "}"
    with pytest.raises(DomainError, match="exclusive facts of `p` add up to"):
        tags(text, "exact")


# Layers


def test_layers_take_lengths():
    torch = pytest.importorskip("torch")
    edges = {(0, 1): 370.0, (1, 2): 400.0, (0, 2): 800.0, (2, 3): 1.0}
    layer = dv.nn.Logic(PATHS, {"e": dv.independent(list(edges))}, {"p": [(0, 2), (0, 3)]}, provenance="min_plus")
    lengths = torch.tensor(list(edges.values()), dtype=torch.float64, requires_grad=True)
    found = layer(lengths)
    assert found.tolist() == [770.0, 771.0]
    found[1].backward()
    assert lengths.grad.tolist() == [1.0, 1.0, 0.0, 1.0]
    with pytest.raises(DomainError, match="NaN"):
        layer(torch.tensor([1.0, math.nan, 1.0, 1.0]))
    capacity = dv.nn.Logic(PATHS, {"e": dv.independent(list(edges))}, {"p": [(0, 3)]}, provenance=CAPACITY)
    assert capacity(torch.tensor([250.0, 90.0, 40.0, math.inf])).tolist() == [90.0]
    with pytest.raises(DomainError, match="-1, which is not in 0 to inf"):
        capacity(torch.tensor([250.0, -1.0, 40.0, 1.0]))


def test_layers_take_lengths_in_their_facts():
    torch = pytest.importorskip("torch")
    text = PATHS + "\nrel 30.0::e(2, 3)\nrel near(x) = q(x), soft_gt(x, 1.0)\ntype q(f64)\nrel q(2.0)"
    outputs = {"p": [(0, 3)], "near": [(2.0,)]}
    inputs = {"e": dv.independent([(0, 1), (1, 2)])}
    layer = dv.nn.Logic(text, inputs, outputs, provenance="min_plus", facts=None)
    found = layer(torch.tensor([370.0, 400.0]))
    assert found["p"].tolist() == [800.0]
    assert found["near"].item() == pytest.approx(math.log(1 + math.exp(-1.0)), rel=1e-6)
    np.testing.assert_allclose(
        dv.nn.Logic(PATHS, inputs, {"p": [(0, 9)]}, provenance="min_plus", facts={"e": {(2, 9): 5.0}})(
            torch.tensor([1.0, 2.0])
        ).numpy(),
        [8.0],
    )


@pytest.mark.parametrize("provenance", ["unit", "min_plus", "real"])
def test_tags_of_zero_in_demand(provenance):
    """What is looked for goes through facts and rules with the tag 0 where these are there."""
    text = """
        type e(i32, i32)
        rel n = {0}
        rel w::p(x, y) = e(x, y), n(w)
        rel p(x, z) = p(x, y), e(y, z)
        query p(1, x)
    """
    found = dict.fromkeys([(1, 2), (1, 3)], {"unit": True, "min_plus": 0.0}.get(provenance))
    facts = {"e": {(1, 2): 0.0, (2, 3): 0.0, (4, 5): 1.0}}
    assert tags(text, provenance, facts, "p(1, x)") == ({} if provenance == "real" else found)
