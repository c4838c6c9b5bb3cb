"""On each number of threads the tuples and tags of one; databases stay as they were when something ends a run."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog.naive import fact_sets, least_model, programs, text_of
from datalog.test_fused import on_threads, settings_of
from datalog.test_interrupts import run_child
from derivable.algebra import semirings
from derivable.core.diagnostics import DerivableError, LimitError
from derivable.datalog.policy.costs import under
from derivable.datalog.shortcuts import SHORTCUTS
from derivable.datalog.tables import sets
from drawn import examples

CLOSURE = """
type edge(x: i64, y: i64)
rel path(x, y) = edge(x, y)
rel path(x, z) = path(x, y), edge(y, z)
query path
"""


def graph(nodes, edges, seed=0):
    return np.random.default_rng(seed).integers(0, nodes, (edges, 2))


def closure(edges):
    """The pairs of a path of one edge or more, by squaring a matrix."""
    count = int(edges.max()) + 1
    there = np.zeros((count, count), bool)
    there[edges[:, 0], edges[:, 1]] = True
    while True:
        more = there | (there.astype(np.float32) @ there.astype(np.float32) > 0)
        if (more == there).all():
            return set(map(tuple, np.argwhere(there).tolist()))
        there = more


def rows_of(text, facts, **given):
    (view,) = dv.Program(text).run(facts, **given).values()
    return np.stack(list(view.columns), axis=1)


@examples(30, 60, programs(), fact_sets(), st.integers(2, 4), st.integers(1, 4))
def test_random_programs_agree_with_the_naive_evaluator(program, facts, num_threads, room):
    rules, order = program
    model = least_model(rules, facts, order)
    with settings_of(0, 1, room, num_threads=num_threads):
        db = dv.Program(text_of(rules)).run(facts=facts)
    for name in order:
        assert set(db[name]) == model[name]


def test_values_that_grow_out_of_reach():
    """A step makes wider sets of a table, and then has it leave its sets, in the middle of shares."""
    text = """
    type start(x: i64, y: i64)
    rel n(x, y) = start(x, y)
    rel n(x, 3 * y + x) = n(x, y), y < 200000000000
    query n
    """
    begin = [(x, y) for x in range(60) for y in range(1, 20)]
    wanted = set()
    for x, y in begin:
        while (x, y) not in wanted:
            wanted.add((x, y))
            if y < 200000000000:
                y = 3 * y + x
    with on_threads(2), under(set_rows=1):
        found = rows_of(text + "rel n(x, y) = start(x, y), n(x, _)", {"start": begin})
    assert set(map(tuple, found.tolist())) == wanted


def test_exact_inference_with_thresholds_of_a_few_rows():
    """The tuples of a recursion have numbers there, with which threads that share it could not agree."""
    edges = [(0.5 if (x, y) == (3, 14) else 1.0, (x, y)) for x, y in {*map(tuple, graph(14, 20).tolist()), (3, 14)}]
    certain = nx.DiGraph(edge for weight, edge in edges if weight == 1.0)
    every = nx.DiGraph(edge for _, edge in edges)
    wanted = dict.fromkeys(reachable(every), 0.5) | dict.fromkeys(reachable(certain), 1.0)
    assert 0.5 in wanted.values()
    for number in (2, 3):
        with settings_of(0, 1, room=20, num_threads=number):
            db = dv.Program(CLOSURE).run({"edge": edges}, provenance="exact")
        assert dict(db["path"].items()) == wanted


def reachable(edges):
    """The pairs of a path of one edge or more."""
    return {(x, z) for x in edges for y in edges[x] for z in (y, *nx.descendants(edges, y))}


LAYERS, WIDTH = 7, 120


def layered_edges():
    """Edges from each layer to the next: rounds with more candidates than the thresholds, and 109,463 paths."""
    rng, places = np.random.default_rng(0), np.repeat(np.arange(WIDTH), 4)
    pairs = [np.stack([places + WIDTH * k, rng.integers(0, WIDTH, 4 * WIDTH) + WIDTH * (k + 1)], 1) for k in range(6)]
    return np.unique(np.concatenate(pairs), axis=0)


JOIN = """
type edge(x: i64, y: i64)
rel path(x, y) = edge(x, y)
rel far(x, w) = path(x, y), edge(y, z), path(z, w)
query far
"""
WIDE = """
type edge(x: i64, y: i64)
rel path(x % 3, x, y) = edge(x, y)
rel path(c, x, z) = path(c, x, y), edge(y, z)
query path
"""
UNTAGGED = ("unit", "exact")
# Each form of storage: the program, and the value for a node of the graph.
FORMS = {
    "sets by prefix": (CLOSURE, lambda nodes: nodes),
    "rows of bits": (CLOSURE, lambda nodes: nodes),
    "sorted rows": (JOIN.replace("path", "edge").replace("rel edge(x, y) = edge(x, y)", ""), lambda nodes: nodes),
    "longer prefixes": (WIDE, lambda nodes: nodes),
    "a hash of rows": (CLOSURE, lambda nodes: nodes - (1 << 40)),
    "a hash of floats": (CLOSURE.replace("i64", "f64"), lambda nodes: nodes / 8),
}


def wanted_of(form, edges):
    """The rows of a form by networkx, and how many paths each has by powers of the matrix of edges."""
    size = LAYERS * WIDTH
    matrix = np.zeros((size, size))
    matrix[edges[:, 0], edges[:, 1]] = 1.0
    powers = [matrix]
    while powers[-1].any():
        powers.append(powers[-1] @ matrix)
    counts = powers[2] if form == "sorted rows" else sum(powers)
    if form != "sorted rows":
        assert set(map(tuple, np.argwhere(counts).tolist())) == reachable(nx.DiGraph(edges.tolist()))
    value = FORMS[form][1]
    prefix = (lambda x: (x % 3,)) if form == "longer prefixes" else lambda x: ()
    return {
        (*prefix(x), *(number.item() for number in value(np.array([x, y])))): counts[x, y]
        for x, y in np.argwhere(counts).tolist()
    }


# Tagged rows are never rows of bits.
# Those that threads share columns of; sets of proofs and objects of classes are columns of numbers.
NAMES = {"unit", "exact", "topkproofs", *semirings.names()}
CASES = [(form, name) for form in FORMS for name in sorted(NAMES) if form != "rows of bits" or name in UNTAGGED]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "provenance"), CASES)
def test_every_provenance_and_form_of_storage_on_each_number_of_threads(form, provenance, costs):
    if form == "rows of bits":
        costs(few_pairs=0, pairs_a_word=-1.0)
    elif provenance in UNTAGGED:
        costs(shortcuts=tuple(one for one in SHORTCUTS if one.name != "rows of bits"))
    text, value = FORMS[form]
    edges = layered_edges()
    wanted = wanted_of(form, edges)
    made = {}
    for number in (1, 2, 3):
        with on_threads(number):
            (view,) = dv.Program(text).run({"edge": value(edges)}, provenance=provenance).values()
            made[number] = dict(view.items()) if provenance != "unit" else dict.fromkeys(view, 1.0)
        assert made[number].keys() == wanted.keys()
        assert made[number] == made[1]
    if provenance in ("real", "counting"):
        assert made[1] == wanted


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_large_recursion_of_exact_inference(number):
    nodes = 400
    edges = [(i, (i * k + 1) % nodes) for i in range(nodes) for k in (2, 3, 5)]
    with on_threads(number):
        view = dv.Program(CLOSURE).run({"edge": edges}, provenance="exact")["path"]
    assert dict(view.items()) == dict.fromkeys(reachable(nx.DiGraph(edges)), 1.0)


def test_a_failure_leaves_the_database_as_it_was():
    first, more = graph(600, 900), graph(600, 40, seed=1)
    insert_some, calls = sets.PrefixSets.insert_some, []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise MemoryError("in a set")
        return insert_some(*arguments)

    with settings_of(0, 1, 256, compiled=True):
        database = dv.Program(CLOSURE).run({"edge": first}, keep=True)
        before = set(database["path"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sets.PrefixSets, "insert_some", failing)
            with pytest.raises(DerivableError, match="there is not enough memory for the run: in a set"):
                database.add({"edge": more})
        assert set(database["path"]) == before
        database.add({"edge": more})
    assert set(database["path"]) == closure(np.concatenate([first, more]))


@pytest.mark.parametrize("limit", [{"tuple_limit": 50_000}, {"round_limit": 4}, {"time_limit": 1e-4}])
def test_limits(limit):
    with on_threads(2), pytest.raises(LimitError, match=next(iter(limit)) if "time_limit" not in limit else "0.0001 s"):
        rows_of(CLOSURE, {"edge": graph(600, 900)}, **limit)


def test_additions_end_at_any_moment():
    run_child("""
        from derivable.datalog.policy.costs import under
        from derivable.device.cpu.threads import set_num_threads
        under(few_rows=0, many_rows=0).__enter__()
        set_num_threads(2)
        program = dv.Program('''
            type edge(a: usize, b: usize)
            rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
        ''')
        rng = np.random.default_rng(0)
        first, more = ({"edge": rng.integers(0, 1500, (count, 2))} for count in (1400, 700))
        db = program.run(first, keep=True)
        before = set(db["path"])
        wanted = set(program.run({"edge": np.concatenate([first["edge"], more["edge"]])})["path"])
        ended, after, through = 0, 0.002, 0
        while through < 20:
            branch = db.fork()
            ended += interrupted(lambda: branch.add(more), after)
            if (found := set(branch["path"])) == wanted:
                # On a busy machine the signal may come when all is done.
                if ended > 2:
                    break
                through, after = through + 1, 0.002
                continue
            assert found == before
            if ended == 3:
                branch.add(more)
                assert set(branch["path"]) == wanted
            after *= 1.5
        assert ended > 2, ended
        assert set(db["path"]) == before
    """)
