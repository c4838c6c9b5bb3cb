"""Proofs of tuples, checked by a checker that reads the rules again, and why there are none."""

import itertools
import json
import math
import pickle
import re
from xml.etree import ElementTree

import networkx
import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog import programs
from datalog.proof_checker import Solver, check, heights
from derivable.cli.main import main
from derivable.core.diagnostics import (
    AbsentTupleError,
    BindingError,
    DomainError,
    LimitError,
    OutOfMemory,
    TypeMismatchError,
    UnsupportedError,
)
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.ram.lower import lower
from derivable.datalog.reasons.proof import Absence
from derivable.datalog.reasons.rows import Rows
from derivable.datalog.rules.new_terms import with_terms
from derivable.datalog.rules.strata import stratify
from derivable.datalog.syntax.parse import parse
from drawn import examples

# As where relations are large: some words are looked for by passes, then there are indexes of all rows.
LARGE = {"few": 0, "layer_times": 1, "far_off": 3}
# As where searches are long: the heights of all rows are computed.
LONG = {"few": 0, "many": 0, "layer_times": 1 << 40}


@pytest.mark.parametrize("costs", [{}, LARGE, LONG], ids=["small", "as if large", "as if long"])
@examples(25, 2000, st.data(), programs.sources(rule=programs.RichRule), programs.inputs())
def test_proofs_of_drawn_programs_are_proofs_of_least_height(costs, data, source, facts):
    program = dv.Program(source.text(source.derived))
    database = program.run(facts)
    model = interpret(lower(stratify(with_terms(program.desugared()))), facts)
    least = heights(program, facts, model)
    for name in source.derived:
        rows = sorted(database[name])
        assert set(rows) == model[name]
        for row in data.draw(st.permutations(rows))[:4]:
            with under(**costs):
                proof = database.why(name, row)
            check(proof, facts, model)
            assert (proof.relation, proof.row) == (name, row)
            assert proof.height == least[name][row]
        types = source.relations[name]
        absent = data.draw(st.tuples(*(st.integers(0, 4) if t == "i" else st.sampled_from("abc") for t in types)))
        if absent not in model[name]:
            with under(**costs), pytest.raises(AbsentTupleError):
                database.why(name, absent)
            with under(**costs):
                absence = database.why_not(name, absent, depth=3)
            assert len(absence.attempts) >= sum(rule.startswith(f"rel {name}(") for rule in source.rules)
            check_absence(absence, facts, model)


def check_absence(absence, facts, model):
    """Each atom that is said to hold does, and each that is said to fail does not, at every depth, by a whole run."""
    assert not rows_like(absence.row, model[absence.relation]), str(absence)
    for attempt in absence.attempts:
        for text in attempt.held:
            assert holds(text, model) is not False, f"{text} does not hold: {attempt}"
        if attempt.relation is not None:
            is_there = holds(re.sub(r", and so with .*", "", attempt.failed), model)
            assert is_there is not True, f"{attempt.failed} holds: {attempt}"
            if None not in attempt.row:
                is_there = attempt.row in model[attempt.relation]
                assert is_there == attempt.failed.startswith("not "), str(attempt)
        if isinstance(attempt.because, Absence):
            check_absence(attempt.because, facts, model)
        elif attempt.because is not None:
            check(attempt.because, facts, model)


def rows_like(row, rows):
    return [other for other in rows if all(a is None or a == b for a, b in zip(row, other))]


def holds(text, model):
    """Whether an atom as a text, maybe negated, with its variables free, holds in a model; None for other literals."""
    atom = re.fullmatch(r"(not )?(\w+)\((.*)\)", text)
    if atom is None or atom[2] not in model:
        return None
    (item,) = parse(f"rel goal() = {text}").items
    return any(True for _ in Solver(model, model).solutions(item.body, {}))


# The recursion of `p` is demanded for what all literals of `q` before it leave, and `none` leaves nothing.
IDLE = """
    type e(i32, i32), none(i32)
    rel p(x, y) = e(x, y)
    rel p(x, z) = p(x, y), e(y, z)
    rel size(x, n) = n := count(z: p(x, z) where x: e(x, _))
    {relation}
    rel q(x) = {literal}, none(x)
    rel r(x) = q(1), {literal}, none(x)
    query q  query r
"""


@pytest.mark.parametrize(
    ("literal", "holding"),
    {
        "a positive atom": ("p(1, 3)", "p(1, 3)"),
        "an unknown column": ("p(1, y)", "p(1, "),
        "a negated atom": ("not p(1, 9)", "not p(1, 9)"),
        "a negated atom that fails": ("not p(1, 3)", None),
        "an aggregate": ("m == 2, size(1, m)", "size(1, 2)"),
        "a relation with a demand": ("d(1, 3)", "d(1, 3)"),
    }.values(),
)
def test_a_missing_row_that_is_not_demanded_is_not_said_to_fail(literal, holding):
    relation = "type d(bound x: i32, y: i32) rel d(x, y) = p(x, y)" if "d(" in literal else ""
    program = dv.Program(IDLE.format(literal=literal, relation=relation))
    database = program.run({"e": [(1, 2), (2, 3)], "none": []})
    (attempt,) = database.why_not("q", (5,)).attempts
    (outer,) = database.why_not("r", (5,), depth=2).attempts
    assert outer.failed == "q(1)"
    (inner,) = outer.because.attempts
    for one, failed in ((attempt, "none(5)"), (inner, "none(1)")):
        if holding is None:
            assert one.failed == "not p(1, 3)"
        else:
            assert any(text.startswith(holding) for text in one.held)
            assert one.failed.split(", and")[0] == failed
    if holding is None:
        (attempt,) = database.why_not("q", (5,), depth=2).attempts
        check(attempt.because, {"e": [(1, 2), (2, 3)]}, {})


PATHS = """
    type edge(i32, i32)
    rel path(x, z) = edge(x, z)
    rel path(x, z) = path(x, y), edge(y, z)
    query path
"""
RIGHT = PATHS.replace("path(x, y), edge(y, z)", "edge(x, y), path(y, z)")
# Every way to split a path is a proof.
SPLIT = PATHS.replace("path(x, y), edge(y, z)", "path(x, y), path(y, z)")
chances = st.sampled_from([0.1, 0.25, 0.5, 0.9])
graphs = st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), chances, min_size=1, max_size=7)


def walks(edges, start, end, passed=()):
    """The edges of each walk that ends nowhere twice: what a proof of the left-linear rules has."""
    for (x, y), chance in edges.items():
        if x == start and y not in passed:
            if y == end:
                yield [chance]
            yield from ([chance, *rest] for rest in walks(edges, y, end, (*passed, y)) if end not in (*passed, y))


@examples(20, 300, graphs, st.integers(1, 6))
def test_the_k_most_probable_proofs_are_the_best_of_all(edges, k):
    database = dv.Program(PATHS).run({"edge": edges})
    for (start, end), _ in list(database["path"].items())[:4]:
        expected = sorted((math.prod(walk) for walk in walks(edges, start, end)), reverse=True)
        proofs = database.why("path", (start, end), k=k)
        assert proofs.is_complete
        assert [proof.probability for proof in proofs] == pytest.approx(expected[:k])
        assert all(
            math.prod(f.probability for f in proof.facts) == pytest.approx(proof.probability) for proof in proofs
        )


@examples(10, 200, graphs)
def test_all_proofs_together_are_as_probable_as_the_tuple(edges):
    """Against exact inference: the union of the sets of facts, world by world."""
    names, program = list(edges), dv.Program(SPLIT)
    database = program.run({"edge": edges})
    for row, tag in list(database["path"].items())[:3]:
        proofs = database.why("path", row, k=200)
        for proof in proofs:
            check(proof, {"edge": names}, {})
        sets = [{fact.row for fact in proof.facts} for proof in proofs]
        total = 0.0
        for world in itertools.product((False, True), repeat=len(names)):
            there = {name for name, holds in zip(names, world) if holds}
            if any(facts <= there for facts in sets):
                total += math.prod(edges[name] if name in there else 1 - edges[name] for name in names)
        assert total == pytest.approx(tag, abs=1e-9)


def test_a_fact_that_is_used_twice_counts_once():
    program = dv.Program("""
        rel 0.5::a()  rel 0.8::b()
        rel left() = a(), b()
        rel both() = left(), a()
        query both
    """)
    (proof,) = program.run().why("both", k=3)
    assert proof.probability == pytest.approx(0.4)
    assert sorted(fact.text for fact in proof.facts) == ["a()", "b()"]


def test_facts_that_exclude_each_other_are_no_proof():
    program = dv.Program("""
        type digit(i32, i32)
        rel digit = {0.6::(0, 3); 0.4::(0, 4)}
        rel odd() = digit(0, 3), digit(0, 4)
        rel even() = digit(0, x), digit(0, y), x + y == 8
        rel odd() = even(), digit(0, 4)
        query odd
    """)
    database = program.run()
    # The rule of least height needs both.
    assert database.why("odd").height == 2
    assert database.why("odd").probability == pytest.approx(0.4)
    assert [proof.height for proof in database.why("odd", k=5)] == [2]


def test_rules_with_probabilities_and_choices_of_heads_count():
    program = dv.Program("""
        rel coin = {1, 2}
        rel {heads(c); tails(c)} = coin(c)
        rel 0.9::won(c) = heads(c)
        query won
    """)
    (proof,) = program.run().why("won", 1, k=5)
    assert proof.probability == pytest.approx(0.45)
    assert [node.kind for node in proof.nodes()] == ["rule", "rule", "fact", "chance", "chance"]


def test_what_is_uncertain_under_a_negation_is_no_product():
    program = dv.Program("""
        rel 0.5::rain()  rel 0.25::sprinkler()
        rel dry() = not rain(), not sprinkler(), not snow()
        rel snow() = rain(), sprinkler(), 1 > 2
        query dry
    """)
    proof = program.run().why("dry")
    assert proof.probability is None
    assert [node.probability for node in proof.premises] == [None, None, 1.0]


@pytest.mark.parametrize(
    "provenance", [None, "unit", "exact", "topkproofs", "minmaxprob", "addmultprob", "max_product"]
)
@pytest.mark.parametrize("keep", [False, True])
def test_proofs_under_any_provenance(provenance, keep):
    database = dv.Program(PATHS).run({"edge": {(0, 1): 0.5, (1, 2): 0.9, (2, 0): 0.3}}, provenance, keep=keep)
    proof = database.why("path", (0, 0))
    assert proof.height == 3
    assert [fact.probability for fact in proof.facts] == [0.5, 0.9, 0.3]
    assert database.why("path", (0, 0), k=1)[0].probability == pytest.approx(0.135)


def test_tags_that_are_no_probabilities_have_no_most_probable_proof():
    database = dv.Program(PATHS).run({"edge": {(0, 1): 4.0, (1, 2): 9.0}}, "min_plus")
    assert [fact.probability for fact in database.why("path", (0, 2)).facts] == [4.0, 9.0]
    assert database.why("path", (0, 2)).probability is None
    with pytest.raises(UnsupportedError, match="no probabilities"):
        database.why("path", (0, 2), k=2)


def test_what_add_remove_and_fork_change():
    database = dv.Program(PATHS).run({"edge": [(0, 1), (1, 2)]}, keep=True)
    assert database.why("path", (0, 2)).height == 2
    branch = database.fork()
    branch.add({"edge": [(0, 2), (2, 3)]})
    assert branch.why("path", (0, 2)).height == 1
    assert database.why("path", (0, 2)).height == 2
    assert branch.why("path", (0, 3)).facts[-1].row == (2, 3)
    branch.remove({"edge": [(0, 2)]})
    assert branch.why("path", (0, 2)).height == 2
    branch.remove({"edge": [(1, 2)]})
    with pytest.raises(AbsentTupleError):
        branch.why("path", (0, 2))
    assert branch.why_not("path", (0, 2)).attempts[0].failed == "edge(1, 2)"
    assert database.why("path", (0, 2)).height == 2


def test_facts_that_make_a_run_exact_later():
    database = dv.Program(PATHS).run({"edge": [(0, 1)]}, keep=True)
    database.add({"edge": {(1, 2): 0.5}})
    assert database.why("path", (0, 2), k=2)[0].probability == 0.5


def test_relations_that_are_computed_for_what_is_asked():
    program = dv.Program("""
        type fib(bound n: i32, v: i32)
        rel fib = {(0, 1), (1, 1)}
        rel fib(n, a + b) = fib(n - 1, a), fib(n - 2, b), n > 1
        query fib(30, v)
    """)
    database = program.run()
    proof = database.why("fib(30, v)", (30, 1346269))
    assert proof.height == 29
    # Each number once, though the tree has millions of them.
    assert len({node.row for node in proof.nodes() if node.relation == "fib"}) == 31
    assert str(proof).count("as above") == 27
    assert database.why("fib", (3, 3)).height == 2
    assert database.why_not("fib", (3, 4)).attempts[0].held[:2] == ("fib(2, 2)", "fib(1, 1)")


def test_terms_texts_and_dates():
    program = dv.Program("""
        type Expr = Const(i32) | Add(Expr, Expr)
        const E = Add(Const(1), Add(Const(2), Const(3)))
        rel root(E, t"2026-03-05", "a \\"b\\"")
        rel value(e, n) = case e is Const(n)
        rel value(e, a + b) = case e is Add(x, y), value(x, a), value(y, b)
        rel result(n, t + d"1d", s) = root(e, t, s), value(e, n)
        query result
    """)
    database = program.run()
    (row,) = database["result"]
    proof = database.why("result", row)
    assert proof.row == row
    assert proof.height == 4
    assert proof.premises[0].text.startswith("root(Add(Const(1), Add(Const(2), Const(3))), ")
    assert proof.premises[0].row[2] == 'a "b"'


def test_lattices_have_the_proof_of_the_value_that_is_kept():
    program = dv.Program("""
        type distance(node: usize, min length: f64)
        rel edge = {(0, 1, 2.5), (1, 2, 1.0), (0, 2, 9.0)}
        rel distance(0, 0.0)
        rel distance(y, d + w) = distance(x, d), edge(x, y, w)
        query distance
    """)
    database = program.run()
    assert [fact.text for fact in database.why("distance", (2, 3.5)).facts] == [
        *("distance(0, 0.0)", "edge(0, 1, 2.5)", "edge(1, 2, 1.0)")
    ]
    with pytest.raises(AbsentTupleError):
        database.why("distance", (2, 9.0))


def test_aggregates_of_a_recursion():
    program = dv.Program("""
        rel level(0, 0)
        rel score = {1, 2, 3, 5}
        rel level(k + 1, n) = level(k, _), n := count(z: score(z) and z > k), k < 4
        query level
    """)
    proof = program.run().why("level", (2, 3))
    found = next(node for node in proof.premises if node.kind == "aggregate")
    assert found.row == (3,)
    assert [premise.premises[0].row for premise in found.premises] == [(2,), (3,), (5,)]


def test_many_rows_of_an_aggregate_are_counted():
    program = dv.Program("type p(i32) rel n(c) = c := count(x: p(x)) query n")
    (found,) = program.run({"p": range(100)}).why("n", 100).premises
    assert (len(found.premises), found.more) == (20, 80)
    assert "of 100 rows" in str(found)
    assert "80 more rows" in str(found)


def test_a_long_proof_is_shown_and_drawn():
    database = dv.Program(PATHS).run({"edge": [(i, i + 1) for i in range(1000)]})
    proof = database.why("path", (0, 1000))
    assert (proof.height, len(proof.facts)) == (1000, 1000)
    assert len(str(proof).splitlines()) == 2000
    assert proof._repr_html_().startswith("<div")
    assert ElementTree.fromstring(proof.svg()).tag.endswith("svg")
    document = json.loads(json.dumps(proof.to_dict()))
    assert document["nodes"][0]["premises"] == [1, 1999]


def test_a_search_looks_at_little_of_a_large_relation():
    edges = [(i, (i + step) % 400) for i in range(400) for step in (1, 399)]
    database = dv.Program(PATHS).run({"edge": edges})
    assert len(database["path"]) == 160_000
    assert database.why("path", (0, 100)).height == 100
    (explainer,) = database._explained().explainers.values()
    derivations = explainer.derivations
    # The kernel has an instance for each step at least; Python evaluates none.
    assert 100 <= derivations.search.looked < 1000
    assert derivations.looked < 1000
    database.why("path", (0, 100))
    assert 100 <= derivations.search.looked < 1000
    assert derivations.looked < 1000


def test_questions_have_limits_of_memory(tmp_path, capsys):
    """A search for the most probable of very many proofs ends, as does one at the command line; others answer."""
    text = "type e(u32, u32)\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), p(y, z)\nquery p\n"
    edges = [(i, (i + 1) % 200) for i in range(200)]
    database = dv.Program(text).run({"e": edges})
    with under(look_seconds=0.0):
        with pytest.raises(OutOfMemory, match=r"passed memory_limit = 20 MB: it took 2\d\.?\d* MB") as caught:
            database.why("p", (3, 150), k=5, memory_limit="20 MB")
        assert "raise memory_limit" in caught.value.hint
        assert database.why("p", (3, 7), memory_limit="200 MB").height == 3
        assert database.why_not("p", (0, 200), memory_limit="200 MB").attempts
        with pytest.raises(DomainError, match="memory_limit"):
            database.why_not("p", (0, 200), memory_limit="much")
        program = tmp_path / "p.scl"
        program.write_text(f"{text}rel e = {{{', '.join(map(str, edges))}}}\n")
        assert main(["run", str(program), "--why", "p(3, 150)", "-k", "5", "--memory-limit", "20 MB"]) == 1
    assert "passed memory_limit = 20 MB" in capsys.readouterr().err


@pytest.mark.parametrize("spread", [10, 1 << 40, 1 << 62])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_indexes_have_all_rows_in_order(spread, width):
    rng = np.random.default_rng(width)
    columns = [rng.choice(rng.integers(-spread, spread, 9), 500) for _ in range(width)]
    rows = Rows(columns, 500)
    for key in {rows.row(number) for number in range(500)} | {(spread,) * width}:
        wanted = np.flatnonzero(np.logical_and.reduce([c == word for c, word in zip(columns, key)]))
        assert list(rows.find(key)) == wanted.tolist()
    (index,) = rows.indexes.values()
    order = range(500) if index.order is None else index.order.tolist()
    assert [rows.row(number) for number in order] == sorted(map(rows.row, range(500)))


@pytest.mark.parametrize("text", ["left", "right", "texts", "negated", "facts of path"])
def test_a_question_sorts_few_rows_of_a_large_relation(text):
    """And all rows when questions about other rows come again and again."""
    program = {"right": RIGHT, "texts": PATHS.replace("i32", "String")}.get(text, PATHS)
    name = "node {}".format if text == "texts" else int
    facts = {"edge": [(name(i), name((i + step) % 300)) for i in range(300) for step in (1, 299)]}
    large = "path"
    if text == "negated":
        program = program.replace("edge(y, z)", "edge(y, z), not closed(x, z)").replace(
            "edge(i32, i32)", "edge(i32, i32), closed(i32, i32)"
        )
        facts["closed"] = [(i, j) for i in range(300, 600) for j in range(300)]
        large = "closed"
    elif text == "facts of path":
        program = program.replace("edge(i32, i32)", "edge(i32, i32), path(i32, i32)")
        facts["path"] = [(i, j) for i in range(300, 600) for j in range(300)]
    database = dv.Program(program).run(facts)
    assert database.why("path", (name(0), name(100))).height == 100
    (explainer,) = database._explained().explainers.values()
    tables = [explainer.model.rows(large)]
    tables += [explainer.model.facts_of(large)[0]] if text == "facts of path" else []
    for rows in tables:
        assert rows.size >= 90_000
        assert (len(rows.indexes), len(rows.parts) > 0) == (0, True)
        assert all(len(index.sorted) <= 600 for index in rows.parts.values())
    for start in range(1, 20):
        assert database.why("path", (name(start), name((start + 5) % 300))).height == 5
    if large == "path":
        assert tables[0].indexes


def test_facts_of_a_wide_relation_that_has_rules():
    names = ", ".join(f"x{i}" for i in range(70))
    program = f"""
        type wide({", ".join(["i32"] * 70)}), more(i32)
        rel wide({names.replace("x0", "y")}) = wide({names}), more(x0), y == x0 + 1
        query wide
    """
    database = dv.Program(program).run({"wide": [tuple(range(70))], "more": [(0,), (1,)]})
    assert database.why("wide", (2, *range(1, 70))).height == 2


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("text", ["left", "right", "split", "texts", "wide values"])
def test_heights_are_lengths_of_shortest_paths(text, long, costs):
    """In a graph whose searches need more room than they begin with, and by the heights of all rows."""
    if long:
        costs(**LONG)
    program = {"right": RIGHT, "split": SPLIT}.get(text, PATHS)
    name, spread = int, 1
    if text == "texts":
        program, name = program.replace("i32", "String"), "node {}".format
    elif text == "wide values":
        # Two columns of these do not fit in one word.
        program, spread = program.replace("i32", "i64"), 1 << 50
    graph = networkx.gnm_random_graph(300, 1200, seed=3, directed=True)
    edges = [(name(a * spread), name(b * spread)) for a, b in graph.edges]
    database = dv.Program(program).run({"edge": edges})
    for start in (0, 7):
        lengths = networkx.single_source_shortest_path_length(graph, start)
        for goal in sorted(lengths)[1:60:9]:
            proof = database.why("path", (name(start * spread), name(goal * spread)))
            length = lengths[goal] if text != "split" else 1 + math.ceil(math.log2(lengths[goal]))
            assert (proof.height, proof.is_least) == (length, True)
    if long:
        assert len(search_of(database).heights) == search_of(database).total


def search_of(database):
    (explainer,) = database._explained().explainers.values()
    return explainer.derivations.search


POINTS_TO = """
    type alloc(u32, u32), copy(u32, u32), load(u32, u32, u32), store(u32, u32, u32)
    rel points_to(x, o) = alloc(x, o)
    rel points_to(x, o) = copy(x, y), points_to(y, o)
    rel held(o, f, p) = store(x, f, y), points_to(x, o), points_to(y, p)
    rel points_to(x, p) = load(x, y, f), points_to(y, o), held(o, f, p)
    query points_to
"""


def test_after_a_long_search_heights_are_known(costs):
    """Most of a points-to analysis lies behind each of its tuples; a question looks at little of it."""
    costs(**LONG)
    rng = np.random.default_rng(1)
    shapes = {"alloc": (150, 600, 150), "copy": (600, 600, 600)}
    shapes |= {"load": (75, 600, 600, 8), "store": (75, 600, 8, 600)}
    facts = {name: np.stack([rng.integers(0, n, rows) for n in to], 1) for name, (rows, *to) in shapes.items()}
    database = dv.Program(POINTS_TO).run({name: rows.astype(np.uint32) for name, rows in facts.items()})
    rows = sorted(database["points_to"])
    database.why("points_to", rows[0])
    search = search_of(database)
    assert search.looked < 1000
    assert len(search.heights) == search.total
    given = {name: set(map(tuple, part.tolist())) for name, part in facts.items()}
    least = points_to_heights(given, rows)
    some = rows[:: len(rows) // 20]
    for row in some:
        proof = database.why("points_to", row)
        check(proof, given, {})
        assert (proof.height, proof.is_least) == (least[row], True)
    assert search.looked < 1000 * len(some)


def points_to_heights(given, rows):
    """The least heights by instances of all rules, over and over."""
    objects = {}
    for x, o in rows:
        objects.setdefault(x, []).append(o)
    held = {(o, f, p) for x, f, y in given["store"] for o in objects.get(x, ()) for p in objects.get(y, ())}
    fields = {}
    for o, f, p in held:
        fields.setdefault((o, f), []).append(p)
    instances = [((x, o), ((y, o),)) for x, y in given["copy"] for o in objects.get(y, ())]
    for x, f, y in given["store"]:
        pairs = itertools.product(objects.get(x, ()), objects.get(y, ()))
        instances += [((o, f, p), ((x, o), (y, p))) for o, p in pairs]
    for x, y, f in given["load"]:
        instances += [((x, p), ((y, o), (o, f, p))) for o in objects.get(y, ()) for p in fields.get((o, f), ())]
    least = dict.fromkeys(given["alloc"], 1)
    is_new = True
    while is_new:
        is_new = False
        for head, needs in instances:
            height = 1 + max(least.get(need, math.inf) for need in needs)
            if height < least.get(head, math.inf):
                least[head], is_new = height, True
    return least


def test_columns_that_nobody_reads_and_variables_that_stand_twice():
    database = dv.Program("""
        type e(i32, i32), u(i32)
        rel both(x) = u(x), e(_, 1), e(_, 3)
        rel loop(x) = u(x), e(w, w)
        rel pair(x) = loop(x), both(x), e(x, _), e(_, x)
        query both  query loop  query pair
    """).run({"e": [(0, 1), (2, 3), (4, 4), (7, 0), (0, 9)], "u": [(7,), (0,)]})
    assert [proof.row for proof in database.why("both", (7,)).facts] == [(7,), (0, 1), (2, 3)]
    assert [proof.row for proof in database.why("loop", (0,)).facts] == [(0,), (4, 4)]
    assert set(database["pair"]) == {(0,)}
    check(database.why("pair", (0,)), {"e": [(0, 1), (2, 3), (4, 4), (7, 0), (0, 9)], "u": [(7,), (0,)]}, {})


def test_where_a_proof_is_not_shown_to_be_least(costs):
    costs(most_instances=20)
    edges = {(i, (i + step) % 20): 0.5 for i in range(20) for step in (1, 19)}
    database = dv.Program(PATHS).run({"edge": edges}, "minmaxprob")
    proofs = database.why("path", (0, 1), k=2)
    assert not proofs.is_complete
    assert proofs[0].probability == 0.5


def test_some_proof_where_there_are_too_many_ways(costs):
    costs(most_instances=40)
    edges = [(i, (i + step) % 20) for i in range(20) for step in (1, 19)]
    database = dv.Program(SPLIT).run({"edge": edges})
    proof = database.why("path", (0, 7))
    check(proof, {"edge": edges}, {})
    assert not proof.is_least
    assert "before it was known that no proof is lower" in str(proof)
    assert database.why("path", (0, 2)).height == 2
    costs(most_instances=1)
    with pytest.raises(LimitError, match="no proof is among"):
        dv.Program(SPLIT).run({"edge": edges}).why("path", (0, 9))


def test_questions_that_cannot_be_answered():
    database = dv.Program(PATHS).run({"edge": [(3, 2), (2, 1)]})
    for question, kind, message in (
        (("pth", (3, 1)), BindingError, "did you mean `path`"),
        (("path", (3,)), TypeMismatchError, "has 1 value"),
        (("path", ("a", 1)), TypeMismatchError, "does not fit"),
        (("path", (9, 1)), AbsentTupleError, "why_not"),
    ):
        with pytest.raises(kind, match=message):
            database.why(*question)
    with pytest.raises(DomainError, match="holds"):
        database.why_not("path", (3, 1))
    with pytest.raises(DomainError, match="number of proofs"):
        database.why("path", (3, 1), k=0)
    copy = pickle.loads(pickle.dumps(database))
    with pytest.raises(UnsupportedError, match="no proofs"):
        copy.why("path", (3, 1))
    database.freeze()
    with pytest.raises(UnsupportedError, match="no proofs"):
        database.why_not("path", (9, 1))


def test_programs_of_other_languages():
    souffle = dv.Program.from_souffle("""
        .decl edge(x: symbol, y: symbol)
        edge("a", "b"). edge("b", "c").
        .decl path(x: symbol, y: symbol)
        path(x, y) :- edge(x, y).
        path(x, z) :- path(x, y), edge(y, z).
        .output path
    """)
    proof = souffle.run().why("path", ("a", "c"))
    assert (proof.rule, proof.line) == ("path(x, z) :- path(x, y), edge(y, z).", 6)
    problog = dv.Program.from_problog("""
        0.3::edge(a, b). 0.4::edge(b, c). 0.5::edge(a, c).
        path(X, Y) :- edge(X, Y).
        path(X, Z) :- edge(X, Y), path(Y, Z).
        query(path(a, _)).
    """)
    proofs = problog.run().why("path", ("a", "c"), k=5)
    assert [proof.probability for proof in proofs] == pytest.approx([0.5, 0.12])


@pytest.mark.parametrize(
    ("text", "facts", "question", "leaves"),
    {
        "groups that a recursion finds": (
            """
            rel edge = {(0, 1), (0, 2), (1, 3), (5, 6)}
            rel reach(0)
            rel deg(x, n) = n := count(z: edge(x, z) where x: reach(x))
            rel reach(y) = deg(x, n), edge(x, y), n > 0
            query deg
            """,
            {},
            ("deg", (1, 1)),
            ["edge(0, 1)", "edge(0, 2)", "edge(1, 3)", "reach(0)"],
        ),
        "a recursion through time": (
            """
            rel kick = {0, 3}
            rel step = {0, 1, 2, 3}
            rel on(t) = kick(t), not on(t - 1)
            rel on(t) = step(t), on(t - 1), not kick(t)
            query on
            """,
            {},
            ("on", (2,)),
            ["kick(0)", "step(1)", "step(2)"],
        ),
        "integers of 128 bits": (
            """
            type q(i128, i128)
            rel q = {(4611686018427387902, 4611686018427387907)}
            rel r(x) = q(a, b), x in a..b
            query r
            """,
            {},
            ("r", (4611686018427387904,)),
            ["q(4611686018427387902, 4611686018427387907)"],
        ),
        "an uncertain predicate that is negated": (
            "type v(f32) rel far(x) = v(x), not soft_eq(x, 2.0) query far",
            {"v": [1.0]},
            ("far", (1.0,)),
            ["v(1.0)"],
        ),
        "terms that another rule makes": (
            """
            type N = Zero() | Next(N)
            rel start(1)
            rel made(new Next(new Zero())) = start(_)
            rel inner(x) = case _ is Next(x)
            query made  query inner
            """,
            {},
            ("inner", (dv.datalog.Entity("Zero"),)),
            [],
        ),
    }.values(),
)
def test_the_facts_behind_what_is_computed_in_other_ways(text, facts, question, leaves):
    provenance = "exact" if "soft" in text else None
    proof = dv.Program(text).run(facts, provenance).why(*question)
    assert sorted({fact.text for fact in proof.facts}) == leaves
    assert (proof.relation, proof.row) == question


def test_a_recursion_that_stops_after_some_rounds():
    program = dv.Program("type N = Zero() | Next(N) rel n(Zero()) rel n(new Next(x)) = n(x) query n")
    database = program.run(iteration_limit=5)
    assert max(database.why("n", row).height for row in database["n"]) == len(database["n"]) - 1


def test_a_value_that_several_derivations_join_has_no_proof():
    program = dv.Program("type m(i32, bit_or b: u32) rel m = {(0, 1), (0, 4), (1, 2)} rel m(0, b) = m(1, b) query m")
    database = program.run()
    assert (0, 7) in database["m"]
    assert database.why("m", (1, 2)).kind == "fact"
    with pytest.raises(UnsupportedError, match="joins the values of several derivations"):
        database.why("m", (0, 7))
