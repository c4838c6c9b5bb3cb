"""Databases that facts are removed from are those of a run without them."""

import itertools

import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog.growing import (
    AGGREGATES,
    EDGES,
    LABELS,
    MADE,
    PROVENANCES,
    TERMS,
    WEIGHED,
    assert_same,
    content,
    drawn_program,
    united,
)
from datalog.naive import fact_sets, least_model, programs, splits, text_of
from datalog.test_fused import settings_of
from derivable.core.diagnostics import BindingError, DomainError, UnsupportedError
from derivable.datalog.api.evaluation import Evaluation
from derivable.datalog.facts.columns import FactPart
from derivable.datalog.policy.costs import under
from derivable.datalog.tables.row_set import RowSet
from derivable.datalog.tables.storage import Table
from drawn import examples


def is_tagged(fact):
    return isinstance(fact, tuple) and len(fact) == 2 and isinstance(fact[1], tuple)


def row_of(fact):
    return fact[1] if is_tagged(fact) else fact


def left_of(facts, gone):
    """The facts without others: a tuple without a tag is all facts of it, one with a tag the first with that tag."""
    left = {name: list(rows) for name, rows in facts.items()}
    for name, rows in gone.items():
        for fact in sorted(rows, key=lambda fact: not is_tagged(fact)):
            if is_tagged(fact):
                left[name].remove(fact)
            else:
                left[name] = [one for one in left[name] if row_of(one) != fact]
    return left


def some_of(data, facts):
    return {name: [fact for fact in rows if data.draw(st.booleans())] for name, rows in facts.items()}


@examples(
    20,
    120,
    programs(),
    fact_sets(max_edges=6),
    st.data(),
    st.sampled_from(PROVENANCES),
    st.randoms(use_true_random=False),
)
def test_removing_is_running_without(program, facts, data, provenance, random):
    made, parts = drawn_program(data, program, facts, provenance, random)
    first = united(*parts[:2])
    # The facts may lose all that is random, and the default is chosen by the facts.
    provenance = provenance or "exact"
    db = made.run(facts=first, provenance=provenance, keep=True)
    branch = db.fork()
    gone = some_of(data, first)
    db.remove(gone)
    left = left_of(first, gone)
    assert_same(db, made.run(facts=left, provenance=provenance))
    assert_same(branch, made.run(facts=first, provenance=provenance))
    # Facts come and go in one step.
    gone = some_of(data, left)
    db.add(parts[2], remove=gone)
    assert_same(db, made.run(facts=united(left_of(left, gone), parts[2]), provenance=provenance))
    # And all come back.
    branch.remove(first)
    assert_same(branch, made.run(facts={name: [] for name in first}, provenance=provenance))
    branch.add(united(*parts))
    assert_same(branch, made.run(facts=united(*parts), provenance=provenance))


@examples(
    15,
    80,
    programs(),
    fact_sets(),
    st.data(),
    st.sampled_from([1, 3, 1 << 60]),
)
def test_removing_from_sets_and_layers(program, facts, data, set_rows):
    rules, order = program
    parts = data.draw(splits(facts, 3))
    made = dv.Program(text_of(rules))
    # However much goes, it goes row by row.
    with settings_of(1 << 60, set_rows), under(recomputed_part=1e9):
        db = made.run(facts=united(*parts), keep=True)
        branch = db.fork() if data.draw(st.booleans()) else None
        left = united(*parts)
        for _ in range(3):
            gone, more = some_of(data, left), some_of(data, facts)
            db.add(more, remove=gone)
            left = united(left_of(left, gone), more)
            model = least_model(rules, {name: set(left.get(name, ())) for name in facts}, order)
            for name in order:
                assert set(db[name]) == model[name]
    if branch is not None:
        model = least_model(rules, facts, order)
        for name in order:
            assert set(branch[name]) == model[name]


@examples(
    15,
    80,
    programs(),
    fact_sets(),
    st.data(),
    st.sampled_from([1, 1 << 60]),
    st.sampled_from([2, 1 << 60]),
)
def test_a_history_of_changes_branches_and_failures(program, facts, data, least, few_rows):
    """Each branch is what its own changes make it; a change that fails half-way is none."""
    rules, order = program
    made = dv.Program(text_of(rules))

    def fails(*_):
        raise KeyboardInterrupt

    # Rows are looked for by their numbers, by indexes or one by one.
    with under(set_rows=least, few=few_rows, recomputed_part=1e9):
        branches = [(made.run(facts=facts, keep=True), facts)]
        for _ in range(data.draw(st.integers(2, 6))):
            place = data.draw(st.integers(0, len(branches) - 1))
            db, left = branches[place]
            if data.draw(st.booleans()):
                branches.append((db.fork(), left))
            gone, more = some_of(data, left), some_of(data, facts)
            if data.draw(st.booleans()):
                with pytest.MonkeyPatch.context() as failing:
                    failing.setattr(Evaluation, "shown", fails)
                    with pytest.raises(KeyboardInterrupt):
                        db.add(more, remove=gone)
            else:
                db.add(more, remove=gone)
                branches[place] = db, united(left_of(left, gone), more)
            for one, own in branches:
                model = least_model(rules, {name: set(own.get(name, ())) for name in facts}, order)
                for name in order:
                    assert set(one[name]) == model[name]
                    assert all(row in one[name] for row in model[name])
                    assert len(one[name]) == len(model[name])


@examples(
    25,
    80,
    st.fixed_dictionaries({"edge": EDGES, "label": LABELS}),
    st.data(),
    st.sampled_from(
        [
            (AGGREGATES, "exact"),
            (AGGREGATES, "minmaxprob"),
            (WEIGHED, "minmaxprob"),
            (TERMS, "unit"),
            (TERMS, "exact"),
            (TERMS, "topkproofs"),
        ]
    ),
)
def test_removing_under_aggregates_choices_texts_and_terms(facts, data, kind):
    text, provenance = kind
    made = MADE[text] = MADE.get(text) or dv.Program(text)
    if text is WEIGHED or provenance != "minmaxprob":
        # All different, so that there is one best.
        chances = (0.3 + 0.011 * number for number in itertools.count())
        facts = {name: [(next(chances), row) for row in rows] for name, rows in facts.items()}
    gone = some_of(data, facts)
    db = made.run(facts=facts, provenance=provenance, keep=True)
    db.remove(gone)
    assert_same(db, made.run(facts=left_of(facts, gone), provenance=provenance))


GROUPED = """
type edge(a: i32, b: i32), label(a: i32, s: String)
rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
rel node(x) = edge(x, _) or edge(_, x)
rel leaf(x) = node(x), not edge(x, _)
rel apart(x, y) = node(x), node(y), not path(x, y), not label(y, _), x != y + 1
rel open(x, y) = edge(x, y), not leaf(y) or (open(x, z) and edge(z, y) and not label(y, _))
rel degree(x, n) = n := count(y: edge(x, y))
rel reached(x, n) = n := count(y: path(x, y) where x: node(x))
rel total(x, n, m, k) = n := sum(y: path(x, y)), m := max(y: path(x, y)), k := min(y: edge(x, y))
rel best(x, y, s) = (y, s) := top<2>(y, s: edge(x, y), label(y, s))
rel joined(x, t) = t := string_join<",">(s: label(x, s))
rel order(x, i, y) = (i, y) := sort(y: edge(x, y))
rel drawn(x, y) = y := uniform<1>(y: edge(x, y))
rel alone(x) = node(x), b := exists(y: path(x, y), label(y, _)), b == false
rel all() = n := count(x: leaf(x)), n > 1
rel busy(x) = degree(x, n), n > 1
rel calm(x, n) = node(x), not busy(x), reached(x, n)
rel round(n, k) = k := count(x: calm(x, n))
rel chain(x, y) = apart(x, y), calm(x, _) or (chain(x, z) and edge(z, y) and not busy(z))
"""
RESULTS = ("path", "node", "leaf", "apart", "open", "degree", "reached", "total", "best", "joined", "order", "drawn",
           "alone", "all", "busy", "calm", "round", "chain")  # fmt: skip
GROUPED += "".join(f"query {name}\n" for name in RESULTS)


@examples(
    20,
    150,
    st.dictionaries(st.integers(0, 4), st.sets(st.integers(0, 4), max_size=3), min_size=1),
    st.sets(st.tuples(st.integers(0, 4), st.sampled_from("abc")), max_size=5),
    st.data(),
    st.sampled_from([1, 1 << 60]),
    st.sampled_from([2, 1 << 60]),
)
def test_groups_and_negations_go_on(edges, labels, data, least, few_rows):
    """Branches of a database whose facts come and go are what runs of their facts are; nothing with groups is
    recomputed."""
    program = MADE[GROUPED] = MADE.get(GROUPED) or dv.Program(GROUPED)
    facts = {"edge": [(x, y) for x, ends in edges.items() for y in sorted(ends)], "label": sorted(labels)}
    with under(set_rows=least, few=few_rows, recomputed_part=1e9):
        branches = [(program.run(facts, "unit", keep=True), facts)]
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(branches) - 1))
            db, left = branches[place]
            if data.draw(st.booleans()):
                branches.append((db.fork(), left))
            gone = some_of(data, left)
            more = some_of(data, {"edge": [(x, y) for x in range(5) for y in (0, x)], "label": [(1, "a"), (3, "d")]})
            done = db.add(more, remove=gone)
            assert few_rows == 2 or set(done.recomputed) <= {"all"}
            branches[place] = db, united(left_of(left, gone), more)
            for one, own in branches:
                assert_same(one, program.run({name: sorted(set(rows)) for name, rows in own.items()}, "unit"))


PATH = "type edge(a: i32, b: i32)\nrel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))\nquery path"


@pytest.mark.parametrize("provenance", ["exact", "minmaxprob", "addmultprob", "topkproofs", None])
def test_a_probability_is_corrected(provenance):
    program = dv.Program(PATH)
    db = program.run({"edge": {(0, 1): 0.5, (1, 2): 0.4}}, provenance, keep=True)
    db.add({"edge": {(1, 2): 0.9}}, remove={"edge": [(1, 2)]})
    assert_same(db, program.run({"edge": {(0, 1): 0.5, (1, 2): 0.9}}, provenance))
    product = min if provenance == "minmaxprob" else lambda pair: pair[0] * pair[1]
    assert db["path"][0, 2] == pytest.approx(product((0.5, 0.9)))


def test_one_of_several_facts_of_a_tuple_goes_by_its_tag():
    program = dv.Program(PATH)
    db = program.run({"edge": [(0.5, (0, 1)), (0.4, (0, 1)), (0.5, (0, 1))]}, "exact", keep=True)
    db.remove({"edge": [(0.5, (0, 1))]})
    assert db["path"][0, 1] == pytest.approx(1 - 0.6 * 0.5)
    db.remove({"edge": [(0, 1)]})
    assert (0, 1) not in db["path"]


def test_facts_go_as_they_came():
    """In every form in which facts come; what follows from none of them stays."""
    program = dv.Program(PATH)
    forms = [
        [(1, 2), (2, 3)],
        np.array([[1, 2], [2, 3]]),
        {"a": [1, 2], "b": [2, 3]},
        {(1, 2): 0.25, (2, 3): 0.75},
        [(0.25, (1, 2)), (0.75, (2, 3))],
        dv.independent([(1, 2), (2, 3)], [0.25, 0.75]),
        dv.categorical([(1, 2), (2, 3)], [0.25, 0.75]),
    ]
    for form in forms:
        db = program.run({"edge": [(7, 8)]}, "exact", keep=True)
        before = content(db)
        db.add({"edge": form})
        assert {(1, 2), (2, 3)} <= set(db["path"])
        done = db.remove({"edge": form})
        assert "`edge` has lost facts" in str(done)
        assert content(db) == before


def test_facts_of_the_program_and_without_columns():
    program = dv.Program("type on()\nrel a = {1, 2}\nrel b(x) = a(x), on()\nquery b")
    db = program.run({"on": [()]}, keep=True)
    db.remove({"a": [2]})
    assert set(db["b"]) == {(1,)}
    db.remove({"on": [()]})
    assert not len(db["b"])


def test_what_is_not_there_is_an_error_and_changes_nothing():
    program = dv.Program(PATH)
    db = program.run({"edge": {(0, 1): 0.5, (1, 2): 0.4}}, "exact", keep=True)
    before = content(db)
    with pytest.raises(BindingError, match=r"`edge\(0, 2\)` is no fact"):
        db.remove({"edge": [(0, 2)]})
    with pytest.raises(BindingError, match=r"`edge\(0, 1\)` is no fact with the tag 0.7"):
        db.add({"edge": [(4, 5)]}, remove={"edge": {(0, 1): 0.7}})
    with pytest.raises(BindingError, match=r"`edge\(0, 1\)` is no fact"):
        db.remove({"edge": [(0.5, (0, 1)), (0.5, (0, 1))]})
    with pytest.raises(BindingError, match="`path"):
        db.remove({"path": [(0, 2)]})
    with pytest.raises(BindingError, match="unknown relation"):
        db.remove({"edges": [(0, 1)]})
    assert content(db) == before
    with pytest.raises(UnsupportedError, match="keep=True"):
        program.run({"edge": [(0, 1)]}).remove({"edge": [(0, 1)]})


@pytest.mark.parametrize("provenance", ["unit", "boolean", "minmaxprob"])
def test_what_replaces_a_fact_is_news(provenance):
    """`h(1, 2)` would follow from the fact that goes and one that comes, and does follow from another."""
    program = dv.Program("""
        type a(x: i32), b(x: i32), c(x: i32, y: i32), s(x: i32)
        rel h(x, y) = (a(x) and b(y)) or c(x, y)
        rel g(x) = h(x, _)
        rel f(y) = s(x), c(x, y), not s(y)
        rel e(y) = f(y), c(_, y)
        query g
        query e
    """)
    db = program.run({"a": [1], "b": [], "c": [(5, 6)], "s": [5, 6]}, provenance, keep=True)
    assert not len(db["g"]) - 1
    assert not len(db["e"])
    db.add({"b": [2], "c": [(1, 2), (7, 6)], "s": [7]}, remove={"a": [1], "s": [5, 6]})
    assert set(db["g"]) == {(1,), (5,), (7,)}
    assert set(db["e"]) == {(6,)}


def test_a_choice_goes_as_a_whole():
    program = dv.Program("type c(x: i32)\nrel d(x) = c(x)\nquery d")
    db = program.run({"c": dv.categorical([1, 2, 3], [0.2, 0.3, 0.5])}, "exact", keep=True)
    with pytest.raises(DomainError, match="a choice of `c` has 3 facts, of which 1 are to go"):
        db.remove({"c": [2]})
    db.remove({"c": [1, 2, 3]})
    assert not len(db["d"])


def test_strata_that_lose_nothing_are_kept():
    text = PATH + "\ntype other(x: i32)\nrel also(x) = other(x)\nquery also"
    db = dv.Program(text).run({"edge": [(0, 1), (1, 2)], "other": [(5,)]}, keep=True)
    done = db.remove({"edge": [(1, 2)]})
    assert {name for step in done.steps for name in step.relations} == {"edge", "path"}
    # Another fact of the same tuple stays: nothing that reads it has to be looked at.
    db = dv.Program(PATH).run({"edge": [(0.5, (0, 1)), (0.5, (0, 1))]}, "minmaxprob", keep=True)
    done = db.remove({"edge": [(0.5, (0, 1))]})
    assert {name for step in done.steps for name in step.relations} == {"edge"}


IDEMPOTENT = """
type edge(x: i32, y: i32), start(x: i32)
rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
rel twice(x + 1, y) = path(x, y), path(y, x)
rel 0.7::from(y) = start(x), path(x, y), not start(y)
rel both(x) = from(x), twice(x, _)
rel odd(x, y) = edge(x, y) or (even(x, z) and edge(z, y))
rel even(x, y) = (odd(x, z) and edge(z, y)) or start(x), x == y
query path
query odd
query even
query twice
query from
query both
"""


@examples(
    20,
    300,
    st.sampled_from(["minmaxprob", "max_product", "min_plus", "boolean"]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=14),
    st.lists(st.tuples(st.integers(0, 4)), min_size=1, max_size=4),
    st.data(),
)
def test_tags_of_idempotent_sums_go_and_come_back(provenance, edges, starts, data):
    """Facts go, and get better or worse, until none is left; expected is a run of what is there."""
    program = dv.Program(IDEMPOTENT)
    chance = st.sampled_from([0.1, 0.25, 0.5, 0.8, 1.0]) if provenance != "boolean" else st.just(1.0)
    left = {"edge": [(data.draw(chance), row) for row in edges], "start": [(data.draw(chance), row) for row in starts]}
    db = program.run(left, provenance, keep=True)
    while left["edge"]:
        gone = some_of(data, left)
        gone["edge"] = gone["edge"] or left["edge"][:1]
        more = {"edge": [(data.draw(chance), row) for _, row in gone["edge"] if data.draw(st.booleans())][:-1]}
        done = db.add(more, remove=gone)
        assert not {"edge", "path", "twice", "odd", "even"} & set(done.recomputed)
        left = united(left_of(left, gone), more)
        assert_same(db, program.run(left, provenance))


def chains(count, length):
    """Edges of as many chains of so many edges."""
    starts = np.arange(count)[:, None] * (length + 1) + np.arange(length)
    return np.stack([starts.ravel(), starts.ravel() + 1], 1)


def test_rows_go_from_large_tables_and_come_back(costs):
    """From sets by prefix, of bits and hashed, and as often as one likes; only what follows from them is looked at."""
    costs(recomputed_part=1e9)
    edges = chains(150, 30)
    # One long chain, whose sets become bits.
    edges = np.concatenate([edges, 10_000 + chains(1, 200)])
    program = dv.Program(PATH)
    db = program.run({"edge": edges}, "unit", keep=True)
    before = content(db)
    gone = edges[[5, 17, 333, 4600]]
    for _ in range(2):
        done = db.remove({"edge": gone})
        assert done.recomputed == ()
        assert set(db["path"]) == set(program.run({"edge": np.delete(edges, [5, 17, 333, 4600], 0)}, "unit")["path"])
        db.add({"edge": gone})
        assert content(db) == before


def test_what_has_another_derivation_stays():
    program = dv.Program(PATH + "\nrel far(x) = path(x, 3)\nquery far")
    edges = [(0, 1), (1, 3), (0, 2), (2, 3), (3, 4), (4, 3)]
    db = program.run({"edge": edges}, "unit", keep=True)
    done = db.remove({"edge": [(1, 3)]})
    assert done.recomputed == ()
    assert "path went on; 2 tuples fewer" in str(done)
    assert set(db["path"]) == set(program.run({"edge": [e for e in edges if e != (1, 3)]}, "unit")["path"])
    # A cycle does not keep itself alive.
    db.remove({"edge": [(2, 3)]})
    assert set(db["far"]) == {(3,), (4,)}


def made_of_whole_tables(monkeypatch):
    """The sizes of tables that are copied, or get a set or an index, from now on."""
    made = []
    for owner, name in ((Table, "without"), (Table, "index"), (RowSet, "_rehash"), (RowSet, "update")):
        plain = getattr(owner, name)

        def counted(of, *arguments, plain=plain):
            is_made = plain.__name__ != "update" or of.is_stale
            is_made = is_made and (plain.__name__ != "index" or arguments[0] not in of.indexes)
            table = of if isinstance(of, Table) else arguments[0]
            made.append((plain.__name__, table.size) if is_made else ("", 0))
            return plain(of, *arguments)

        monkeypatch.setattr(owner, name, counted)
    return lambda: [one for one in made if one[1] > 1000]


def test_what_a_removal_touches_does_not_depend_on_the_rows(monkeypatch):
    """No table is copied, and no set or index made by the first removals; later ones read what has been made since."""
    program = dv.Program(PATH)
    edges = chains(5000, 3)
    db = program.run({"edge": edges}, "unit", keep=True)
    made = made_of_whole_tables(monkeypatch)
    places = [*range(5, 9), *range(100, 2000, 19)]
    assert db.remove({"edge": edges[places[:2]]}).recomputed == ()
    assert made() == []
    for place in places[2:]:
        db.remove({"edge": edges[[place]]})
    assert 0 < len(made()) < 10
    before = len(made())
    done = db.remove({"edge": edges[[3000, 9000]]})
    assert done.recomputed == ()
    assert len(made()) == before
    left = np.delete(edges, [*places, 3000, 9000], 0)
    assert set(db["path"]) == set(program.run({"edge": left}, "unit")["path"])


def test_limits_do_not_count_what_goes():
    """`tuple_limit` counts the tuples of the database."""
    program = dv.Program(PATH)
    edges = chains(300, 4)
    db = program.run({"edge": edges}, "unit", keep=True)
    size = len(edges) + len(db["path"])
    db.remove({"edge": edges[:3]}, tuple_limit=size)
    assert len(db["path"]) == size - len(edges) - 9


def test_a_removal_that_reaches_much_ends_early():
    program = dv.Program(PATH)
    edges = chains(1, 300)
    db = program.run({"edge": edges}, "unit", keep=True)
    done = db.remove({"edge": edges[[150]]})
    assert "path recomputed, because it may lose much" in str(done)
    assert set(db["path"]) == set(program.run({"edge": np.delete(edges, [150], 0)}, "unit")["path"])


@pytest.mark.parametrize("order", ["by first", "by last", "none", "twice"])
def test_facts_in_the_order_of_a_column_are_removed_without_a_pass(order, calls_of):
    rng = np.random.default_rng(2)
    edges = np.stack([np.arange(4000) // 3, 5000 + rng.permutation(4000)], 1)
    match order:
        case "by last":
            edges = edges[np.argsort(edges[:, 1])]
        case "none":
            edges = rng.permutation(edges)
        case "twice":
            edges = np.concatenate([edges, edges[:50]])
    passes = calls_of(FactPart, "among")
    program = dv.Program("type e(a: i32, b: i32)\nrel p(b, a) = e(a, b)\nquery e\nquery p")
    db = program.run({"e": edges}, keep=True)
    left = set(map(tuple, edges.tolist()))
    for _ in range(3):
        gone = rng.permutation(sorted(left))[:30]
        db.remove({"e": gone})
        left -= set(map(tuple, gone.tolist()))
        assert set(db["e"]) == left
        assert set(db["p"]) == {(b, a) for a, b in left}
        with pytest.raises(BindingError, match="is no fact"):
            db.remove({"e": gone[:1]})
    assert len(passes) == {"by first": 3, "by last": 3}.get(order, 6)
