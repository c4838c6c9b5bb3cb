"""Rules as kernels agree with the same rules over columns and with the naive evaluator.

Kernels are interpreted here, a statement at a time with every position checked, so that each random program may have
new ones; buffers hold few rows, so that kernels go on from every loop.
"""

import ctypes
import math
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.naive import fact_sets, least_model, programs, text_of
from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import max_product
from derivable.datalog.policy.costs import policy, under
from derivable.datalog.policy.kernels import Kernels
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.values import TYPES
from derivable.device.cpu import threads
from derivable.kernel import nodes
from derivable.kernel.interpret import interpret
from drawn import examples

NEVER = 1 << 60


def interpreted(kernel):
    def run(*arguments):
        found = interpret(kernel, *arguments)
        return found[0].item() if len(found) == 1 else tuple(value.item() for value in found)

    return run


ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class InterpretedPacked:
    """A kernel with packed arguments, whose address is that of a function which interprets it.

    arrays  those that have been given to the driver, by address
    errors  what interpreting raises, which compiled code does not hand on
    alive   those whose address a driver has: a program keeps it from run to run, also where the policy is another one
    """

    wanted, is_linked, is_there = 0, True, True
    arrays: ClassVar[dict] = {}
    errors: ClassVar[list] = []
    alive: ClassVar[set] = set()

    def __init__(self, kernel):
        self.kernel, self.entry = kernel, ENTRY(self.call)

    @property
    def address(self):
        self.alive.add(self)
        return ctypes.cast(self.entry, ctypes.c_void_p).value

    def call(self, memory, block):
        try:
            memory, block = self.arrays[memory], self.arrays[block]
            words = [int(memory[int(place)]) for place in block]
            given = [
                self.arrays[word].view(parameter.dtype) if isinstance(parameter, nodes.Array) else word
                for parameter, word in zip(self.kernel.parameters[2:], words, strict=True)
            ]
            (code,) = interpret(self.kernel, memory, block, *given)
            return code.item()
        except BaseException as error:
            self.errors.append(error)
            return 0


class Interpreted(Kernels):
    """Kernels as an interpreter runs them, also those that compiled drivers call.

    seen  the kernels that Python calls
    """

    def __init__(self):
        super().__init__()
        self.seen = []

    def function(self, kernel):
        # That which turns blocks of 64 rows goes through thousands of statements for each.
        if kernel.name == "transpose_bits":
            return super().function(kernel)
        self.seen.append(kernel)
        return interpreted(kernel)

    def packed(self, kernel):
        return InterpretedPacked(kernel)

    def address(self, array):
        address = super().address(array)
        # The first rows of a log may be a table of their own, and what is there lives on, so the address is not used
        # again.
        arrays = InterpretedPacked.arrays
        known = arrays.get(address)
        if known is None or known.nbytes < array.nbytes:
            arrays[address] = array.reshape(-1)
        return address

    def drive(self, driver, *arguments):
        code = super().drive(driver, *arguments)
        if InterpretedPacked.errors:
            raise InterpretedPacked.errors[0]
        return code


@contextmanager
def on_threads(number):
    before = threads.get_num_threads()
    threads.set_num_threads(number)
    try:
        yield
    finally:
        threads.set_num_threads(before)


@contextmanager
def settings_of(few, set_rows, room=3, compiled=False, num_threads=1, is_whole=False):
    """Kernels from the first row on if `few` is 0, sets of rows from `set_rows` rows on, which all threads share.

    is_whole  whether small runs of a program are one call
    """
    costs = {"few_rows": few, "many_rows": few, "cache_rows": room, "look_rows": room, "set_rows": set_rows}
    costs["few_kernels"] = 1 << 20
    if room % 2:
        # Most rounds are large ones.
        costs["many"] = 2
    if not is_whole:
        costs["has_small_runs"] = False
    if not compiled:
        costs["kernels"] = Interpreted()
    try:
        with on_threads(num_threads), under(**costs):
            yield
    finally:
        InterpretedPacked.arrays.clear()
        InterpretedPacked.errors.clear()


@contextmanager
def by_bits():
    """Recursions that can end in rows of bits do so in their first round."""
    with under(few_pairs=0, bytes_a_pair=NEVER, pairs_a_word=-1.0):
        yield


SET_ROWS = st.sampled_from([1, 4, NEVER])


@examples(75, 150, programs(), fact_sets(), SET_ROWS, st.integers(1, 4))
def test_random_programs_agree_with_the_naive_evaluator(program, facts, set_rows, room):
    rules, order = program
    model = least_model(rules, facts, order)
    with settings_of(0, set_rows, room):
        db = dv.Program(text_of(rules)).run(facts=facts)
    for name in order:
        assert set(db[name]) == model[name]


def random_facts(facts, chances):
    return {name: [(next(chances), row) for row in rows] for name, rows in facts.items()}


@examples(
    60,
    120,
    programs(),
    fact_sets(max_edges=6),
    SET_ROWS,
    st.sampled_from(["minmaxprob", "addmultprob", "topkproofs", "exact", "boolean", "min_plus"]),
    st.randoms(use_true_random=False),
)
def test_tags_agree_with_those_over_columns(program, facts, set_rows, provenance, random):
    rules, order = program
    facts = random_facts(facts, iter(lambda: round(random.uniform(0.05, 0.95), 2), None))
    text = text_of(rules)
    options = {"provenance": provenance, "iteration_limit": 12}
    expected = dv.Program(text).run(facts=facts, **options)
    with settings_of(0, set_rows):
        db = dv.Program(text).run(facts=facts, **options)
    for name in order:
        assert list(db[name]) == list(expected[name])
        np.testing.assert_allclose(
            np.array(db[name].tag_list(), float), np.array(expected[name].tag_list(), float), rtol=1e-9
        )


@contextmanager
def small_levels(round_rows=1):
    with under(levels=2, many=round_rows):
        yield


@examples(
    75,
    150,
    programs(),
    fact_sets(),
    SET_ROWS,
    st.sampled_from(["minmaxprob", "max_product", "min_plus", "boolean"]),
    st.integers(2, 9),
    st.sampled_from([0, 1, 8]),
    st.randoms(use_true_random=False),
)
def test_news_told_best_tag_first_lead_to_the_same_tags(program, facts, set_rows, provenance, few, round_rows, random):
    rules, order = program
    facts = random_facts(facts, iter(lambda: random.randrange(1, few) / few, None))
    expected = dv.Program(text_of(rules)).run(facts=facts, provenance=provenance)
    with settings_of(0, set_rows), small_levels(round_rows):
        db = dv.Program(text_of(rules)).run(facts=facts, provenance=provenance)
    for name in order:
        assert dict(db[name]) == dict(expected[name])


def test_rounds_of_the_best_rows_tell_few_again():
    """Of labels that reach a node the smallest: without an order each would pass through all nodes behind its own."""
    count = 60
    least = Semiring(
        "least",
        lambda a, b: dv.where(b < a, b, a),
        dv.maximum,
        zero=math.inf,
        one=-1.0,
        idempotent_plus=True,
        selective_plus=True,
        domain=(-1.0, math.inf),
        fact=lambda chance, variable: dv.cast(variable, "float64"),
    )
    given = {
        "start": dv.independent(list(range(count)), [0.5] * count),
        "edge": [(i, i + 1) for i in range(count - 1)],
    }
    program = dv.Program("type start(u8), edge(u8, u8)\nrel r(y) = start(y) or (r(x) and edge(x, y))\nquery r")
    with settings_of(0, NEVER), small_levels():
        db = program.run(given, least)
    assert dict(db["r"]) == {(i,): 0.0 for i in range(count)}
    assert sum(effort.candidates for effort in db.profile.rules) < count * count / 4


def test_the_best_of_many_paths_is_that_of_networkx():
    """Lengths are logarithms of probabilities, all powers of two."""
    graph = nx.gnm_random_graph(60, 240, seed=1, directed=True)
    rng = np.random.default_rng(0)
    edges = list(graph.edges)
    lengths = rng.integers(1, 50, len(edges))
    for edge, length in zip(edges, lengths.tolist()):
        graph.edges[edge]["weight"] = length
    expected = {
        (a, b): float(length)
        for a, found in nx.all_pairs_dijkstra_path_length(graph)
        for b, length in found.items()
        if a != b
    }
    text = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nrel q(x, y) = p(x, y), x != y\nquery q"
    facts = {"e": dv.independent(edges, np.exp2(-lengths.astype(float)))}
    with settings_of(0, 50, room=64, compiled=True), small_levels():
        found = dict(dv.Program(text).run(facts, provenance="max_product")["q"].items())
    assert {row: -np.log2(tag) for row, tag in found.items()} == expected


def test_tags_better_than_one_are_told_round_by_round():
    """Longest paths of an acyclic graph: products are better than their factors."""
    text = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))"
    doubling = replace(max_product, name="doubling", fact=lambda p, v: 2.0 + 0.0 * p)
    facts = {"e": [(0.5, (i, j)) for i in range(9) for j in range(i + 1, 9) if (i * j) % 3 != 1]}
    expected = dict(dv.Program(text).run(facts, provenance=doubling)["p"])
    with settings_of(0, NEVER), small_levels():
        assert dict(dv.Program(text).run(facts, provenance=doubling)["p"]) == expected


STEPS = """
type e(i32, i32), u(i32), t(i32, u8, i64)
rel sums(x, x + y) = e(x, y), u(y), x + y < 5
rel ranges(x, z) = e(x, y), z in x..=y, not u(z)
rel triples(a, b, c) = e(a, b), e(b, c), a != c
rel triples(a, b, c) = triples(b, c, a), c > 0
rel boxed(a as u8, b / c) = triples(a, b, c)
rel texts(a, (b as String) + "!") = e(a, b), u(b)
rel halves(a, b as f64 / 2.0) = e(a, b), u(a)
rel constants(x, 3, 300) = e(x, x), e(0, x)
rel products(x, y) = u(x), u(y)
rel unary(x) = u(x)
rel unary(y) = unary(x), e(x, y)
rel pairs(x, y) = u(x), unary(y), not e(x, y)
rel first(x) = e(x, _), unary(_)
rel onward(x) = e(x, y), e(y, z), e(z, w), w != x
rel onward_to(x, y + 1) = e(x, y), u(z), k in y..z, e(k, w), w > y
rel below(x, y + 1) = e(x, y), y < 3, u(z), e(z, w), w != x
rel there(y + 1) = u(y), u(x), y < 4
rel anything(x) = u(x), triples(_, b, _), triples(b, c, _), c > x
rel wide(a, b, c, d) = e(a, b), e(c, d), t(b, _, _)
rel wide(a, b, c, d) = wide(b, a, d, c)
"""


@examples(
    20,
    40,
    fact_sets(),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-2, 2)), max_size=4),
    SET_ROWS,
)
def test_every_step_agrees_with_columns(facts, triples, set_rows):
    facts = {**facts, "t": list(dict.fromkeys(triples))}
    expected = dv.Program(STEPS).run(facts=facts)
    with settings_of(0, set_rows):
        db = dv.Program(STEPS).run(facts=facts)
    for name in db:
        assert set(db[name]) == set(expected[name]), name


@pytest.mark.parametrize(
    ("provenance", "set_rows"),
    [
        *[("unit", set_rows) for set_rows in (1, 50, NEVER)],
        *[("minmaxprob", set_rows) for set_rows in (1, NEVER)],
        pytest.param("minmaxprob", 50, marks=pytest.mark.slow),
    ],
)
def test_compiled_kernels_agree(provenance, set_rows):
    text = """type e(i32, i32)
    rel p(x, y) = e(x, y) or (p(x, z) and e(z, y))
    rel d(x, y) = e(x, y) or (d(x, z) and d(z, y))
    rel q(x, y, z) = p(x, y), d(y, z), x < z, not e(x, z)"""
    edges = np.unique(np.random.default_rng(0).integers(0, 20, (30, 2)), axis=0)
    facts = {"e": edges}
    if provenance != "unit":
        facts["e"] = dv.independent([tuple(e) for e in edges.tolist()], np.linspace(0.1, 0.9, len(edges)))
    expected = dv.Program(text).run(facts=facts, provenance=provenance)
    with settings_of(0, set_rows, room=7, compiled=True):
        db = dv.Program(text).run(facts=facts, provenance=provenance)
    for name in db:
        assert dict(db[name]) == dict(expected[name])


PAIRED = Semiring(
    "paired_sums",
    plus=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    times=lambda a, b: (a[0] * b[0], a[0] * b[1] + a[1] * b[0]),
    zero=(0.0, 0.0),
    one=(1.0, 0.0),
    fact=lambda tag, variable: (tag, tag),
)


@pytest.mark.parametrize("provenance", ["real", "log", "addmultprob", PAIRED])
def test_kernels_and_columns_give_the_same_bits(provenance):
    """Which of them runs depends on what the process has run before, and sums of floats on their order."""
    random = np.random.default_rng(0)
    edges = [(i, (i * k + 1) % 30) for i in range(30) for k in (2, 3, 5)] + [(i, 40) for i in range(30)]
    facts = {"e": [(float(p), edge) for p, edge in zip(random.random(len(edges)) / 9, edges)]}
    text = "type e(i32, i32)\nrel two(x, z) = e(x, y), e(y, z)\nrel n(z) = e(_, y), e(y, z)\nrel some() = e(_, _)"
    if provenance == "addmultprob":
        text += "\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), e(y, z)"
    found = []
    for few in (0, NEVER):
        with settings_of(few, 1, room=50, compiled=True):
            db = dv.Program(text).run(facts, provenance)
        found.append({name: {row: np.asarray(tag).tobytes() for row, tag in db[name].items()} for name in db})
    assert found[0] == found[1]


I64 = TYPES["i64"]
VALUES = st.one_of(st.integers(0, 40), st.sampled_from([0, 7, 255, 256, 5000, -1, 1 << 30, (1 << 31) - 1, 1 << 40]))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.booleans(), st.data())
def test_tables_are_sets_in_order_of_entry(width, numbered, data):
    """The oracle is a dict."""
    value = data.draw(st.sampled_from([st.integers(0, 12), VALUES]))
    batches = data.draw(st.lists(st.lists(st.tuples(*[value] * width), max_size=60), min_size=1, max_size=5))
    with settings_of(0, 4):
        table = Table("t", [I64] * width, (lambda count: np.empty(count)) if numbered else None)
        rows: dict[tuple, int] = {}
        for batch in batches:
            columns = [np.array([row[c] for row in batch], np.int64) for c in range(width)]
            ids = table.insert(columns, len(batch))
            for row in batch:
                rows.setdefault(row, len(rows))
            if numbered:
                assert ids.tolist() == [rows[row] for row in batch]
            probes = [*batch, *[tuple(v + 1 for v in row) for row in batch]]
            found = table.find([np.array([row[c] for row in probes], np.int64) for c in range(width)], len(probes))
            for row, number in zip(probes, found.tolist()):
                assert (number >= 0) == (row in rows)
                if numbered and row in rows:
                    assert number == rows[row]
        # Rows without numbers that come in bulk are sorted.
        order = list if numbered else sorted
        assert order(map(tuple, table.log[: table.size].tolist())) == order(rows)


def test_sets_become_dense_and_widen():
    rng = np.random.default_rng(1)
    for numbered in (False, True):
        table = Table("t", [I64] * 2, (lambda count: np.empty(count)) if numbered else None)
        expected: dict[tuple, int] = {}
        for top in (50, 300, 5000):
            rows = rng.integers(0, top, (20_000, 2))
            ids = table.insert(list(rows.T), len(rows))
            numbers = [expected.setdefault(row, len(expected)) for row in map(tuple, rows.tolist())]
            table.row_set.update(table)
            assert table.row_set.prefix_sets is not None
            assert (table.row_set.prefix_sets.slots < 0).any() == (top < 5000 or not numbered)
            if numbered:
                assert ids.tolist() == numbers
        assert table.size == len(expected)
        order = list if numbered else sorted
        assert order(map(tuple, table.log[: table.size].tolist())) == order(expected)


def test_sets_are_given_up_where_each_prefix_has_one_row():
    rows = np.arange(200_000)
    table = Table("t", [I64] * 3)
    for part in np.array_split(rows, 10):
        table.insert([part, part % 7, part % 5], len(part))
    assert table.row_set.prefix_sets is None
    assert table.size == len(rows)
    table.insert([rows, rows % 7, rows % 5], len(rows))
    assert table.size == len(rows)


def test_rules_of_one_shape_share_a_kernel():
    with settings_of(0, NEVER):
        dv.Program("rel e = {(0, 1)}\nrel p(x, z) = e(x, y), e(y, z)").run()
        dv.Program("rel road = {(5, 1)}\nrel way(b, a) = road(b, c), road(c, a)").run()
        assert len(policy().kernels.seen) == 1
        dv.Program("rel r = {(0, 1)}\nrel s(x) = r(x, y), r(y, _), x != 3").run()
        dv.Program("rel r = {(0, 1)}\nrel s(x) = r(x, y), r(y, _), x != -40").run()
        assert len(policy().kernels.seen) == 2


GOLDEN = """\
kernel store(i: int64, stop: int64, room: int64, p0: int64, log0: int64[], offsets1: int64[], top1: int64, \
low1: int64, values1: int64[], out0: int64[], out1: int64[])
  written = 0
  while i < stop
    x = log0[i * 2 + 0]
    x_1 = log0[i * 2 + 1]
    key = x_1 - low1
    if 0 <= key & key < top1
      if p0 < 0
        p0 = offsets1[key]
      end = offsets1[key + 1]
      while p0 < end
        x_2 = values1[p0]
        if written == room
          return written, i, p0
        out0[written] = x
        out1[written] = x_2
        written = written + 1
        p0 = p0 + 1
    p0 = -1
    i = i + 1
  return written, i, p0"""


def test_the_kernel_of_a_join():
    with settings_of(0, NEVER):
        dv.Program("type edge(i32, i32)\nrel edge = {(0, 1)}\nrel path(x, z) = edge(x, y), edge(y, z)").run()
        made = policy().kernels.seen
    assert [*map(str, made)] == [GOLDEN]
