"""Limits of runs: their errors name the rule that grew; times are kept in long steps too. Golden files as elsewhere."""

import contextlib
import gc
import gzip
import io
import itertools
import random
import re
import sys
import time
import warnings
import weakref
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import derivable as dv
from datalog.test_errors import compare
from derivable.cli.main import main
from derivable.core import progress
from derivable.core.diagnostics import CompileTimeout, DomainError, LimitError, OutOfMemory, UnsupportedError
from derivable.core.progress import Deadline
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.exact.exact import compiled_form
from derivable.datalog.policy.costs import under
from derivable.datalog.run import limits
from derivable.datalog.run.execute import Executor
from derivable.datalog.run.limits import Watch, checked_limits, size_in_bytes
from derivable.datalog.run.profile import Effort
from derivable.datalog.run.queries import Queries
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.symbols import SymbolTable
from derivable.device.cpu import compile_time, memory
from work import processor_seconds

DIVERGING = """type start(x: i64)
rel n(x) = start(x)
rel n(x + 1) = n(x)
rel even(x) = n(x), x % 2 == 0
"""
DOUBLING = """type edge(a: i32, b: i32)
rel walk(a, b, 1) = edge(a, b)
rel walk(a, c, n + 1) = walk(a, b, n), edge(b, c)
rel other(x) = walk(x, _, _)
"""
PRODUCT = """type a(x: i32)
rel b(x, y, z) = a(x), a(y), a(z)
rel c(n) = n := count(x, y, z: b(x, y, z))
"""
GROUPED = """type a(x: i32)
rel b(n) = n := count(x, y: a(x), a(y), x < y)
"""
CASES = {
    "limit_tuples_of_recursion": (DIVERGING, {"start": [0]}, {"tuple_limit": 1000}),
    "limit_rounds": (DIVERGING, {"start": [0]}, {"round_limit": 50}),
    "limit_tuples_doubling": (DOUBLING, {"edge": [(0, 1), (1, 0), (1, 2), (2, 0)]}, {"tuple_limit": 150}),
    "limit_tuples_of_product": (PRODUCT, {"a": range(40)}, {"tuple_limit": 5000}),
    "limit_tuples_of_aggregate": (GROUPED, {"a": range(200)}, {"tuple_limit": 10000}),
    "limit_tuples_of_facts": (DIVERGING, {"start": range(2000)}, {"tuple_limit": 100}),
}


@pytest.mark.parametrize("name", CASES)
def test_messages(name):
    text, facts, given = CASES[name]
    with pytest.raises(LimitError) as caught:
        dv.Program(text, "demo.scl").run(facts, **given)
    compare(name, caught.value.report())


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "addmultprob", "topkproofs", "exact", "real"])
def test_every_provenance_has_limits(provenance):
    program = dv.Program(DIVERGING)
    for given in ({"tuple_limit": 300}, {"round_limit": 30}, {"time_limit": 0.3}):
        with pytest.raises(LimitError, match="the rule of `n`, which has"):
            program.run({"start": [(0.5, (0,))]}, provenance, **given)
    # What a run needs exactly is within its limits.
    bounded = dv.Program("rel 0.5::n(0) rel n(x + 1) = n(x), x < 9")
    assert len(bounded.run(provenance=provenance, tuple_limit=10, round_limit=10)["n"]) == 10


def test_layers_have_limits():
    nn = pytest.importorskip("derivable.nn")
    inputs, outputs = {"start": dv.independent([0])}, {"even": [2]}
    for provenance in ("exact", "minmaxprob", "topkproofs"):
        for given in ({"tuple_limit": 100}, {"round_limit": 10}, {"time_limit": 0.2}):
            with pytest.raises(LimitError):
                nn.Logic(DIVERGING, inputs, outputs, provenance, **given)


@pytest.mark.parametrize(
    ("given", "size"), [(5, 5), ("7", 7), ("2 GB", 2 * 10**9), ("1.5kB", 1500), ("3MiB", 3 << 20), (" 8 b ", 8)]
)
def test_sizes(given, size):
    assert size_in_bytes(given) == size


@pytest.mark.parametrize("given", [0, -1, True, "x", "GB", "-3 MB", "0", 2.5, None])
def test_bad_sizes(given):
    with pytest.raises(DomainError, match="memory_limit"):
        size_in_bytes(given)


@pytest.mark.parametrize("option", ["tuple_limit", "round_limit", "time_limit", "memory_limit"])
def test_bad_limits(option):
    for bad in (-1, "x", True):
        with pytest.raises(DomainError, match=option):
            dv.Program("rel a(1)").run(**{option: bad})


def test_a_run_ends_before_the_machine_has_no_memory(costs):
    """Without a limit a run ends when it has taken what there was, but for a tenth."""
    taken = iter(range(10**8, 10**12, 10**8))
    memory = SimpleNamespace(resident_bytes=lambda: next(taken), available_bytes=lambda: max(0, 10**10 - next(taken)))
    costs(look_seconds=0.0, memory=memory)
    with pytest.raises(OutOfMemory, match=r"the run took [\d.]+ GB of memory and [\d.]+ MB are left"):
        dv.Program(DIVERGING).run({"start": [0]})


def times_out(work):
    with pytest.raises(CompileTimeout):
        work()


@pytest.mark.slow
def test_times_are_kept_in_long_steps():
    """Products, sorts of aggregates, facts to read and derivations to ground."""
    many = np.arange(1 << 12)
    pairs = np.random.default_rng(0).integers(0, 1 << 20, (3_000_000, 2))
    edges, more = (
        [(0.5, (int(a), int(b))) for a, b in np.random.default_rng(1).integers(0, nodes, (count, 2))]
        for nodes, count in ((60, 500), (500, 30_000))
    )
    closure = "rel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nquery p"
    works = {
        "product": ("type a(x: i64) rel b(x, y, z) = a(x), a(y), a(z)", {"a": many}, None),
        "aggregate": (
            "type a(x: i64, y: i64) rel b(x, m) = m := max(y: a(x, y)) rel c(y, m) = m := count(x: a(x, y))",
            {"a": pairs},
            None,
        ),
        "join": ("type a(x: i64, y: i64) rel b(x, z) = a(x, y), a(z, y)", {"a": pairs % 3000}, None),
        "tagged": ("type e(x: i64, y: i64) " + closure, {"e": more}, "topkproofs"),
        "exact": ("type e(x: i64, y: i64) " + closure, {"e": edges}, "exact"),
    }
    for name, (text, facts, provenance) in works.items():
        program = dv.Program(text)
        with contextlib.suppress(LimitError):
            program.run(facts, provenance, time_limit=2)
        limit = 0.02 if name == "aggregate" else 1.0
        work = partial(program.run, facts, provenance, time_limit=limit)
        assert processor_seconds(partial(times_out, work)) < 4 * limit + 1, name


# Goals


GOAL = """
    type edge(a: usize, b: usize)
    rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
    rel far(x, y) = path(x, y), x + 1 < y
    @goal rel found() = far(0, 5)
    rel number(n) = n := count!(x, y: path(x, y))
"""


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "topkproofs", "exact", "real"])
def test_a_run_stops_at_its_goal(provenance):
    program = dv.Program(GOAL)
    facts = {"edge": [(i, i + 1) for i in range(100)]}
    db = program.run(facts, provenance, stop_at_goal=True)
    assert list(db["found"]) == [()]
    assert 0 < len(db["path"]) < 1000
    assert not len(db["number"])
    assert len(program.run(facts, provenance)["path"]) == 5050
    # Without the tuple all is computed.
    none = program.run({"edge": [(i, i + 1) for i in range(4)]}, provenance, stop_at_goal=True)
    assert not len(none["found"])
    assert len(none["path"]) == 10
    assert list(none["number"]) == [(10,)]


def test_a_goal_behind_negation_and_aggregates():
    program = dv.Program("""
        type edge(a: i32, b: i32)
        rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
        rel number(n) = n := count(x, y: path(x, y))
        rel apart(x, y) = edge(x, _), edge(_, y), not path(x, y)
        rel big(n) = number(n), n > 2
        @goal rel found() = big(n), apart(_, _)
        rel later(n) = n := count(x: apart(x, _))
        query later
        query found
    """)
    db = program.run({"edge": [(0, 1), (1, 2)]}, stop_at_goal=True)
    assert list(db["found"]) == [()]
    assert not len(db["later"])
    assert list(program.run({"edge": [(0, 1)]}, stop_at_goal=True)["later"]) == [(0,)]


def test_a_program_that_only_ends_at_its_goal():
    program = dv.Program("@goal rel found() = n(700)\nrel n = {0}\nrel n(x + 1) = n(x)\nquery n")
    assert 700 < len(program.run(stop_at_goal=True)["n"]) < 710


def test_bad_goals():
    with pytest.raises(DomainError, match="no goal to stop at"):
        dv.Program("rel a(1)").run(stop_at_goal=True)
    with pytest.raises(DomainError, match="nothing to go on from"):
        dv.Program(GOAL).run({"edge": [(0, 1)]}, stop_at_goal=True, keep=True)


# Progress


def test_a_long_run_shows_how_far_it_is(monkeypatch, costs):
    notes = []

    @contextlib.contextmanager
    def bar(description, total=None, *, enabled=None):
        assert description == "running"
        yield lambda amount=1, note="": notes.append(note)

    monkeypatch.setattr(limits, "progress", bar)
    costs(quiet_seconds=0.05)
    program = dv.Program(DIVERGING)
    with pytest.raises(CompileTimeout):
        program.run({"start": [0]}, time_limit=0.4, progress=True)
    assert notes
    assert "stratum 2 of 3 (n), round" in notes[-1]
    assert "tuples" in notes[-1]
    assert "a second" in notes[-1]
    notes.clear()
    costs(look_seconds=0.0, quiet_seconds=0.0)
    program.run({"start": range(1 << 17)}, iteration_limit=1, progress=True)
    assert notes[0] == "loading facts"
    notes.clear()
    for quiet in (False, None):
        with pytest.raises(CompileTimeout):
            program.run({"start": [0]}, time_limit=0.2, progress=quiet)
    assert not notes


def test_who_sees_progress(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert not progress.is_seen()
    with contextlib.redirect_stderr(Terminal()):
        assert progress.is_seen()
        monkeypatch.setenv("DERIVABLE_PROGRESS", "0")
        assert not progress.is_seen()


@pytest.mark.slow
def test_times_are_kept_while_facts_are_loaded():
    pairs = "type e(a: usize, b: usize) rel n(c) = c := count!(x, y: e(x, y)) query n"
    texts = "type e(a: usize, b: String) rel n(c) = c := count!(x, y: e(x, y)) query n"
    numbers = range(1_500_000)
    for text, facts in (
        (pairs, [(i, i + 1) for i in numbers]),
        (texts, [(i, str(i)) for i in numbers]),
        (pairs, [(0.5, (i, i + 1)) for i in numbers]),
        (pairs, {(i, i + 1): 0.5 for i in numbers}),
    ):
        program = dv.Program(text)
        program.run({"e": facts[:9] if isinstance(facts, list) else {(0, 1): 0.5}}, "minmaxprob")
        work = partial(program.run, {"e": facts}, "minmaxprob", time_limit=0.3)
        assert processor_seconds(partial(times_out, work)) < 2


def test_errors_in_many_facts_count_all_rows():
    program = dv.Program("type e(a: usize, b: usize)")
    rows = [(i, i) for i in range(70_000)]
    for bad in ((5, "x"), (5,)):
        with pytest.raises(dv.DerivableError, match="row 68000"):
            program.run({"e": [*rows[:68_000], bad, *rows[:9]]})
    with pytest.raises(dv.DerivableError, match=r"the tag 1\.5 of row 66000"):
        program.run({"e": [(1.5 if i == 66_000 else 0.5, row) for i, row in enumerate(rows)]})


CLOSURE = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\n"


def _hard_edges(nodes, count):
    chosen = random.Random(0)
    edges = {}
    while len(edges) < count:
        a, b = chosen.randrange(nodes), chosen.randrange(nodes)
        if a != b:
            edges[a, b] = 0.3 + 0.4 * chosen.random()
    return edges


LATE = {
    "pairs of proofs": lambda limit: dv.Program("rel a() = u(x)\nrel b() = v(x)\nrel c() = a(), b()").run(
        {name: dict.fromkeys(range(6000), 0.5) for name in "uv"}, "topkproofs", k=6000, time_limit=limit
    ),
    "a circuit": lambda limit: dv.Program(CLOSURE + "query p(0, 7)").run(
        {"e": _hard_edges(24, 90)}, "exact", time_limit=limit
    ),
    "clauses": lambda limit: dv.circuit.compile(
        [[v, -(v % 60000 + 1), (7 * v) % 60000 + 1] for v in range(1, 60001)], time_limit=limit
    ),
}


@pytest.mark.parametrize("work", LATE)
def test_time_limit_is_kept(work):
    """Long operations on proofs, graphs and clauses look at the clock; without a limit they take minutes."""

    def limited():
        with pytest.raises(CompileTimeout, match="did not finish within 1 s"):
            LATE[work](1.0)

    assert processor_seconds(limited) < 6.0


@pytest.mark.parametrize(
    ("text", "provenance"),
    [
        ("rel n = {0}\nrel n(x + 1) = n(x), x < 300\ntype n(x: i64)\nquery n", "unit"),
        ("rel e = {(0, 1), (1, 2)}\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), e(y, z)\nquery p", "minmaxprob"),
    ],
    ids=["rows", "tags"],
)
def test_a_run_leaves_no_cycle_that_would_keep_its_tables(text, provenance, costs):
    program = dv.Program(text)
    costs(has_small_runs=False)

    def executors():
        return {id(thing) for thing in gc.get_objects() if type(thing) is Executor}

    gc.collect()
    gc.disable()
    try:
        before = executors()
        database = program.run(provenance=provenance)
        assert not executors() - before
        kept = weakref.ref(database)
        del database
        assert kept() is None
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """A file of one MB that holds 400 MB."""
    path = tmp_path_factory.mktemp("bomb") / "e.csv"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(b"0,0\n" * (1 << 20))
    return path


def test_limits_hold_while_equal_rows_are_read(tmp_path, costs, monkeypatch):
    # Not by the clock, so that what is taken between two looks is the same on a machine that is busy.
    costs(look_seconds=0.0)
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = pa.table({"a": np.zeros(20_000_000, np.int32), "b": np.zeros(20_000_000, np.int32)})
    parquet.write_table(rows, tmp_path / "e.parquet", row_group_size=len(rows))
    assert (tmp_path / "e.parquet").stat().st_size < 1 << 20
    program = dv.Program("type e(i32, i32)\nquery e")
    read = []

    def counted(file, *arguments, iter_batches=parquet.ParquetFile.iter_batches):
        for batch in iter_batches(file, *arguments):
            read.append(len(batch))
            yield batch

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", counted)
    with pytest.raises(OutOfMemory, match="passed memory_limit = 60 MB: it took"):
        program.run({"e": tmp_path / "e.parquet"}, memory_limit="60 MB")
    # Not by the memory that was taken, since Arrow reads a part of the file ahead in threads of its own.
    assert 0 < sum(read) < len(rows) / 2
    # Those that fit are read as they are.
    parquet.write_table(rows.slice(0, 5_000_000), tmp_path / "e.parquet")
    assert list(program.run({"e": tmp_path / "e.parquet"}, memory_limit="4 GB")["e"]) == [(0, 0)]


@pytest.fixture
def memory_to_spare():
    """400 MB that were freed and still lie in the process: half is the C library's, half left behind by arrays."""
    # From here on the C library takes blocks of this size from memory that it holds.
    threshold = bytearray(31 << 20)
    del threshold
    size, count = 1 << 20, 200
    blocks, arrays, between = [], [], []
    for _ in range(count):
        blocks.append(bytes(size))
        arrays.append(memory.zeros(size, np.uint8))
        # What is in use lies among what is free, or the system would get it back.
        between.append(bytes(1000))
    del blocks, arrays
    yield between
    memory.empty_cache()


@pytest.mark.parametrize("way", ["declared", "path", "folder"])
@pytest.mark.usefixtures("memory_to_spare")
def test_limits_hold_while_a_file_is_decompressed(bomb, way, capsys, costs):
    costs(look_seconds=0.0)
    text = "type e(i32, i32)\nquery e"
    if way == "folder":
        program = bomb.parent / "p.scl"
        program.write_text(text)
        assert main(["run", str(program), "--facts", str(bomb.parent), "--memory-limit", "60 MB"]) == 1
        message = capsys.readouterr().err
    else:
        program = dv.Program(f'@file("{bomb}") {text}' if way == "declared" else text)
        with pytest.raises(OutOfMemory) as caught:
            program.run({"e": bomb} if way == "path" else None, memory_limit="60 MB")
        message = caught.value.message
    took = re.search(r"passed memory_limit = 60 MB: it took ([\d.]+) MB", message)
    assert took, message
    # A run without a limit takes 3 GB.
    assert float(took[1]) < 150


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob"])
@pytest.mark.parametrize(
    "text", ["rel a(x) = range(0, 30000000, x)", "rel a(x, y) = range(0, 30000, x), range(0, 3000, y)"]
)
def test_generators_stop_at_the_limit_of_tuples(text, provenance):
    assert stopped(text, 1000, provenance=provenance) <= 2 * 1024


def stopped(text, limit, facts=None, **options):
    """The tuples of a run that its limit of tuples ends."""
    with pytest.raises(LimitError, match=f"tuple_limit = {limit:,}") as caught:
        dv.Program(text + "\nquery a").run(facts, tuple_limit=limit, time_limit=20, **options)
    found = re.search(r"with ([\d,]+) tuples in all", caught.value.message)
    assert found
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "topkproofs", "exact"])
def test_joins_stop_at_the_limit_of_tuples(provenance):
    text, facts = "type r(i32)\nrel a(x, y) = r(x), r(y)", {"r": range(1500)}
    assert stopped(text, 2000, facts, provenance=provenance) <= 2000 + 1024
    assert stopped(text, 50_000, facts, provenance=provenance) <= 50_000 + (1 << 13)


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "topkproofs"])
def test_what_is_found_often_is_counted_once(provenance):
    """Of 40,000 pairs there are 200 rows."""
    program = dv.Program("type r(i32)\nrel a(x) = r(x), r(y)\nquery a")
    facts = {"r": [(0.5, (k,)) for k in range(200)]} if provenance != "unit" else {"r": range(200)}
    assert len(program.run(facts, provenance, tuple_limit=400)["a"]) == 200
    with pytest.raises(LimitError):
        program.run(facts, provenance, tuple_limit=399)


@dv.datalog.predicate(name="coins_without_end", tagged=True)
def coins_without_end(x: np.int64) -> Iterator[tuple[float, tuple[np.int64]]]:
    yield from ((0.5, (np.int64(k),)) for k in itertools.count(int(x)))


@dv.datalog.predicate(name="many_answers")
def many_answers(x: np.int64) -> Iterator[tuple[np.int64]]:
    yield from ((np.int64(k),) for k in range(70_000))


@dv.datalog.predicate(name="often", tagged=True)
def often(x: np.int64) -> Iterator[tuple[float, tuple[np.int64]]]:
    yield from ((0.5, (np.int64(k % 2),)) for k in range(4))


@dv.datalog.predicate(name="without_end")
def without_end(x: np.int64) -> Iterator[tuple[np.int64]]:
    yield from ((np.int64(k),) for k in itertools.count(int(x)))


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "topkproofs", "exact"])
@pytest.mark.parametrize("body", ["s(x), without_end(x, y)", "s(x), coins_without_end(x, y)"])
def test_predicates_stop_at_the_limit_of_tuples(body, provenance):
    text = f"type s(x: i64)\nrel s = {{1}}\nrel a(y) = {body}"
    assert stopped(text, 1000, provenance=provenance) <= 1000 + 1024


def test_answers_in_parts_are_those_at_once():
    """Rows of more answers than a part has, and one row given twice, which is two facts: 1 - 0.5 ** 2."""
    head = "type s(x: i64)\nrel s = {1, 2}\n"
    found = dv.Program(head + "rel a(x, y) = s(x), many_answers(x, y)\nquery a").run()["a"]
    assert sorted(found) == [(x, y) for x in (1, 2) for y in range(70_000)]
    often = dv.Program(head + "rel a(y) = s(1), often(1, y)\nquery a").run(provenance="exact", tuple_limit=4)["a"]
    assert dict(zip(often, often.tags.tolist())) == pytest.approx({(0,): 0.75, (1,): 0.75})


def test_limits_hold_while_a_predicate_answers():
    program = dv.Program("type s(x: i64)\nrel s = {1}\nrel a(y) = s(x), without_end(x, y)\nquery a")
    with pytest.raises(CompileTimeout) as caught:
        program.run(time_limit=0.3)
    assert "the rule of `a`" in caught.value.message


@dv.datalog.function(name="twice_the_text")
def twice_the_text(text: str) -> str:
    return text + text


@pytest.mark.parametrize(
    "function",
    ["$string_concat(x, x)", '$format("{}{}", x, x)', '$string_replace(x, "ab", "abab")', "$twice_the_text(x)"],
)
@pytest.mark.usefixtures("memory_to_spare")
def test_limits_hold_before_texts_are_made(function, calls_of, costs):
    """A text doubles each round; the one that would pass the limit is not made, unless a user makes it."""
    costs(look_seconds=0.0)
    made = calls_of(SymbolTable, "intern_all", lambda own, texts: max(map(len, texts), default=0))
    program = dv.Program(f'rel s("ab")\nrel s({function}) = s(x)\nquery s')
    with pytest.raises(OutOfMemory, match="memory_limit = 60 MB") as caught:
        program.run(memory_limit="60 MB")
    assert "the rule of `s`" in caught.value.message
    assert max(made) < 60e6


def test_memory_that_the_system_does_not_give_is_laid_to_the_rule(monkeypatch):
    def refuse(*_, **__):
        raise MemoryError("an array of 9 GB")

    program = dv.Program("type a(x: i32)\nrel b(x) = a(x)\nrel c(x, y) = b(x), b(y)\nquery c", "demo.scl")
    for kind, name, provenance in ((Queries, "matches", "minmaxprob"), (Queries, "matches", "unit")):
        monkeypatch.setattr(kind, name, refuse)
        with pytest.raises(OutOfMemory, match="an array of 9 GB") as caught:
            program.run({"a": range(5)}, provenance, keep=True)
        assert "the rule of `c`" in caught.value.message
        assert caught.value.report().startswith("demo.scl:3:1")


def test_a_product_that_the_memory_does_not_hold_is_a_warning(costs):
    # What freed arrays leave behind comes and goes; nothing else is taken.
    costs(memory=SimpleNamespace(resident_bytes=memory.kept_bytes, available_bytes=lambda: 1 << 20))
    facts = {"a": np.arange(600)[:, None], "b": np.arange(600)[:, None]}
    head = "type a(x: i32), b(x: i32)\nrel "
    with pytest.warns(dv.DerivableWarning, match=r"the rule of `c` joins .* about 360,000 rows are expected"):
        dv.Program(head + "c(x, y) = a(x), b(y)\nquery c").run(facts)
    count = dv.Program(head + "n(k) = k := count(x, y: a(x), b(y))\nquery n")
    with pytest.warns(dv.DerivableWarning, match=r"^[^#]*a part of a rule joins [^#]* about 360,000 rows"):
        assert set(count.run(facts, keep=True)["n"]) == {(360_000,)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Pairs that are counted, and held nowhere.
        with under(few_rows=1, many_rows=1):
            assert set(count.run(facts)["n"]) == {(360_000,)}
        # Few different rows, few rows, and a shared variable.
        dv.Program(head + "c(x) = a(x), b(y)\nquery c").run(facts)
        dv.Program(head + "c(x, y) = a(x), b(y)\nquery c").run({"a": range(600), "b": [1]})
        dv.Program(head + "c(x, y) = a(x), b(x), y == x + 1\nquery c").run(facts)


def test_the_time_before_derivations_are_compiled_is_told():
    deadline = Deadline(100.0, "the run", "raise time_limit")
    deadline.end -= 99.0

    def compiled(*_, time_limit, **__):
        assert time_limit < 1.5
        raise CompileTimeout("late")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("derivable.circuit.compilation.choice.compile_formula_dag", compiled)
        form = SimpleNamespace(arrays=(), num_nodes=287, literal=np.zeros(0, int), kind=np.zeros(0, int))
        with pytest.raises(CompileTimeout, match=r"287 nodes over 0 random facts; 99\.0 s had passed before") as caught:
            compiled_form(form, 0, [], deadline)
    assert "most of it passed before" in caught.value.hint


def test_the_time_that_kernels_take_to_compile_is_told():
    @dv.datalog.function(name="slow_kernel")
    def slow_kernel(x: int) -> int:
        with compile_time.counted():
            time.sleep(0.05)
        return x + 1

    program = dv.Program("type s(x: i32)\nrel s = {1}\nrel s($slow_kernel(x)) = s(x)\nquery s")
    with pytest.raises(CompileTimeout) as caught:
        program.run(time_limit=0.3)
    assert re.search(r"0\.[2-4] s of these went into compiling kernels", caught.value.message)
    assert "run it again, as compiled kernels are reused" in caught.value.hint


@pytest.mark.parametrize("way", ["path", "declared", "folder"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_of_more_rows_than_tuples_are_not_read_whole(tmp_path, way, ending, capsys):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / f"e.{ending}"
    columns = {"a": list(range(1001)), "b": list(range(1001))}
    if ending == "csv":
        path.write_text("a,b\n" + "".join(f"{k},{k}\n" for k in range(1001)))
    else:
        parquet.write_table(pa.table(columns), path)
    text = "type e(a: i32, b: i32)\nquery e"
    if way == "folder":
        (tmp_path / "p.scl").write_text(text)
        command = ["run", str(tmp_path / "p.scl"), "--facts", str(tmp_path), "--tuple-limit"]
        assert main([*command, "1000"]) == 1
        assert "tuple_limit = 1,000: it read 1,001 rows" in capsys.readouterr().err
        assert main([*command, "1001"]) == 0
        return
    program = dv.Program(f'@file("{path}") {text}' if way == "declared" else text)
    facts = {"e": path} if way == "path" else None
    with pytest.raises(LimitError, match="tuple_limit = 1,000: it read 1,001 rows"):
        program.run(facts, tuple_limit=1000)
    assert len(program.run(facts, tuple_limit=1001)["e"]) == 1001


SUM = "type e(x: i32)\nrel p({}) = e(x)\nquery p"


@pytest.fixture
def usual_stack():
    """The depth that Python has when it starts: ProbLog, once imported, has raised it for the process."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_stack")
@pytest.mark.parametrize("provenance", ["unit", "exact"])
@pytest.mark.parametrize("terms", [300, 5000])
def test_sums_that_are_too_deep_for_the_stack(terms, provenance):
    text, facts = SUM.format(" + ".join(["x"] * terms)), {"e": [(0.5, (1,))]}
    too_deep = partial(pytest.raises, UnsupportedError, match=r"nested too deep\nhelp: name parts of it")
    with too_deep():
        dv.Program(text).run(facts, provenance)
    with too_deep():
        dv.Program(text).explain("plan", facts, provenance)
    # A layer may do without what goes through them one by one.
    with contextlib.suppress(UnsupportedError):
        dv.nn.Logic(text, inputs={"e": dv.independent([(1,)])}, outputs={"p": [(terms,)]}, provenance="exact")(
            e=torch.ones(1)
        )


def test_sums_that_are_not_too_deep():
    assert list(dv.Program(SUM.format(" + ".join(["x"] * 150))).run({"e": [(2,)]})["p"]) == [(300,)]


WEIGHTED = """type edge(i32, i32)
rel path(0, y) = edge(0, y)
rel path(x, z) = path(x, y), edge(y, z)
"""
# (semiring, weights of the edges of a cycle): a tag gets better whenever it goes round.
ENDLESS = [("max_plus", (1.0, -0.5)), ("min_plus", (2.0, -2.5))]


@pytest.mark.parametrize("device", [None, "torch:cpu"])
@pytest.mark.parametrize(("semiring", "weights"), ENDLESS)
def test_tags_that_get_better_for_ever_are_an_error(semiring, weights, device, monkeypatch):
    if device is not None:
        # A round there takes half a millisecond.
        monkeypatch.setattr(limits, "MANY_ROUNDS", 100)
    program = dv.Program(WEIGHTED)
    edges = {"edge": [*zip(weights, [(0, 1), (1, 0)]), (1.0, (5, 6))]}
    for _ in range(3):
        with pytest.raises(LimitError, match=f"still get better after .* no best one in '{semiring}'"):
            program.run(edges, semiring, device=device, time_limit=60)
    stopped = program.run(edges, semiring, iteration_limit=11)["path"]
    assert stopped[0, 1] == weights[0] + 5 * sum(weights)


@pytest.mark.parametrize("semiring", ["max_plus", "min_plus"])
def test_many_rounds_of_tags_that_end_are_no_error(semiring, monkeypatch):
    monkeypatch.setattr(limits, "MANY_ROUNDS", 10)
    sign, length = 1 if semiring == "max_plus" else -1, 3000
    # Weights that are better than one on a chain, and a cycle at its end that gives them back.
    chain = [(sign * 1.0, (k, k + 1)) for k in range(length)]
    back = [(-sign * 2.0, (length, length - 2))]
    path = dv.Program(WEIGHTED).run({"edge": chain + back}, semiring, time_limit=60)["path"]
    assert path[0, length] == sign * length
    assert len(path) == length


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ({"tuple_limit": 100_000}, "it read 1"),
        ({"time_limit": 0.3}, "0.3 s"),
        ({"memory_limit": "1 MB"}, "memory_limit = 1 MB"),
    ],
)
def test_limits_hold_while_endless_iterables_are_gone_through(limit, error):
    with pytest.raises(LimitError, match=error):
        dv.Program("rel z(x) = r(x)\nquery z").run({"r": ((i,) for i in itertools.count())}, **limit)


def test_limits_hold_before_a_hash_of_terms_is_made_larger(monkeypatch):
    """A hash that doubles is most of what terms take, and is made between two looks at the memory."""
    monkeypatch.setattr(limits.Watch, "bytes_used", 999_000_000)
    text = "type T = N(i64) | L(T, i64)\ntype r(x: i64)\nrel t(new N(0))\nrel t(new L(y, x)) = t(y), r(x)\nquery t"
    wanted = r"tables of [\d.]+ MB would pass memory_limit = 1 GB, of which 999 MB are taken"
    with pytest.raises(OutOfMemory, match=wanted) as caught:
        dv.Program(text).run({"r": range(50)}, memory_limit="1 GB")
    assert "the rule of `t`" in caught.value.message


def test_rows_that_came_as_sets_are_written_only_where_there_is_room():
    """A closure is 16 million pairs in few bytes, until a rule joins them row by row."""
    text = "type e(u32, u32) rel p(x, y) = e(x, y) rel p(x, z) = p(x, y), p(y, z) rel t(x, z) = p(x, y), p(z, y), x < z"
    edges = [(i, (i + 1) % 4000) for i in range(4000)]
    with pytest.raises(OutOfMemory, match=r"tables of 128 MB would pass memory_limit = 100 MB"):
        dv.Program(text + " query t").run({"e": edges}, memory_limit="100 MB")


def test_rows_that_came_as_sets_are_written_in_parts_between_which_the_clock_is_looked_at(monkeypatch):
    write, clock, ends = Table._write_log, time.monotonic, []

    def late(table):
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 1000.0)
        try:
            write(table)
        finally:
            monkeypatch.setattr(time, "monotonic", clock)
            ends.append(table.has_log)

    text = "type e(u32, u32) rel p(x, y) = e(x, y) rel p(x, z) = p(x, y), p(y, z) rel t(x, z) = p(x, y), p(z, y), x < z"
    edges = [(i, (i + 1) % 200) for i in range(200)]
    monkeypatch.setattr(Table, "_write_log", late)
    with pytest.raises(CompileTimeout, match="within 500 s"):
        dv.Program(text + " query t").run({"e": edges}, time_limit=500)
    assert ends == [False]


def watched_run(*efforts):
    """A watch over a run of one stratum that had five seconds."""
    watch = Watch(checked_limits(time_limit=5.0))
    watch.began, watch.next_check = watch.began - 5.0, float("inf")
    strata = [SimpleNamespace(is_recursive=False, relations=[effort.instruction.relation for effort in efforts])]
    watch.executor = SimpleNamespace(
        ram=SimpleNamespace(strata=strata, source=None, text=None),
        efforts=dict(enumerate(efforts)),
        tables={name: SimpleNamespace(num_known=number) for name, number in (("#c", 0), ("#c_body", 1000))},
    )
    return watch


def test_the_time_before_rules_is_laid_to_facts_only_where_these_took_it():
    watch = watched_run()
    assert "run it again, as the first run of a process loads modules" in watch.error().hint
    watch.loaded = 4.0
    assert "give fewer facts" in watch.error().hint


def test_facts_that_are_loaded_take_their_time():
    watch = Watch(checked_limits(time_limit=5.0))
    with watch.loading():
        time.sleep(0.02)
    assert watch.loaded >= 0.02
    assert not watch.is_loading


def test_an_aggregate_is_named_with_its_rows():
    rule = AggregateRule("#c", "count", "#c_body", 0, 0, 1)
    error = watched_run(Effort(rule, began=time.perf_counter() - 4.0, is_running=True)).error()
    assert "\n  `count` over 1,000 rows has run for 4.0 s" in str(error)
    assert "let fewer rows into the aggregate" in error.hint
