"""The abstract parallel machine: valid programs, which mean what RAM means, under every semiring of scalars."""

import gc
import gzip
import pickle
import weakref
from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import derivable as dv
from data import data_path
from datalog.naive import fact_sets, programs, text_of
from datalog.test_errors import compare
from derivable.bridge import torch_columns, torch_rows
from derivable.bridge.torch_columns import Torch
from derivable.core.diagnostics import (
    DomainError,
    LimitError,
    OutOfMemory,
    ShapeError,
    TypeMismatchError,
    UnsupportedError,
)
from derivable.datalog.apm import host_strata
from derivable.datalog.apm.lower import lower
from derivable.datalog.apm.run import run_program
from derivable.datalog.facts.inputs import taken
from derivable.datalog.facts.load import load_python_facts
from derivable.datalog.facts.program_facts import load_program_facts
from derivable.datalog.facts.store import new_store
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.tags.provenance import provenance_of, tags_of
from derivable.datalog.tags.tags import Untagged
from derivable.datalog.values.values import show_column
from derivable.parallel.program import nodes as n
from derivable.parallel.program.check import check_program
from derivable.parallel.program.numpy_columns import NumPy
from drawn import examples

CLOSURE = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))"


class Machine(NamedTuple):
    """What a run of the machine did: rounds of each recursion, and how often each kind of node ran."""

    rounds: list[int]
    counts: Counter


def run_apm(program, facts, provenance="unit", limit=None, arrays=None, may_cut=False):
    """(relation -> tuple -> tag, what the machine did) of a program on the reference of the column program."""
    ram = program.lowered(taken(facts))
    store = new_store(ram)
    load_program_facts(ram, store)
    load_python_facts(ram, taken(facts), store)
    algebra = Untagged() if provenance == "unit" else tags_of(provenance_of(provenance), store.random, 3)
    check_program(results_of(lower(ram, getattr(algebra, "typed", None), may_cut=may_cut)))
    rounds, counts, model = {}, Counter(), {}

    def watch(loop, number, size):
        if number == limit:
            return False
        rounds[loop.text] = number + 1
        return True

    with torch.no_grad():
        found = run_program(ram, store, algebra, arrays or NumPy(), watch=watch, counts=counts, may_cut=may_cut)
    for name, part in found.items():
        types = ram.relations[name].types
        words = part.rows.T.astype(np.int64)
        columns = [show_column(c, t, store.symbols).tolist() for c, t in zip(words, types)]
        rows = list(zip(*columns)) if columns else [()] * len(part.rows)
        tags = [True] * len(rows) if part.tags is None else algebra.show(part.tags).tolist()
        assert len(set(rows)) == len(rows)
        model[name] = dict(zip(rows, tags))
    return model, Machine(list(rounds.values()), counts)


def results_of(tables):
    return [column for table in tables.values() for column in table.all]


@examples(40, 120, programs(), fact_sets())
def test_random_programs_agree_with_ram_and_the_machine(program, facts):
    rules, order = program
    program = dv.Program(text_of(rules))
    meaning = interpret(program.lowered(), facts)
    model, _ = run_apm(program, facts)
    assert run_apm(program, facts, arrays=Torch("cpu"))[0] == model
    db = program.run(facts=facts)
    for name in order:
        assert set(model[name]) == meaning[name] == set(db[name])


@examples(
    35,
    150,
    programs(),
    fact_sets(max_edges=6),
    st.sampled_from(["minmaxprob", "addmultprob", "min_plus", "max_product", "real"]),
    st.randoms(use_true_random=False),
    st.sampled_from([0, 1, 2, 7]),
)
def test_tags_agree_with_the_machine(program, facts, provenance, random, limit):
    """Also where recursion is cut off after some rounds: both look at the same rows in each."""
    rules, order = program
    tagged = {name: [(round(random.uniform(0.05, 0.95), 2), row) for row in rows] for name, rows in facts.items()}
    program = dv.Program(text_of(rules))
    if provenance == "real" and any(s.is_recursive for s in program.lowered().strata):
        return
    model, _ = run_apm(program, tagged, provenance, limit)
    on_device, _ = run_apm(program, tagged, provenance, limit, Torch("cpu"))
    db = program.run(facts=tagged, provenance=provenance, iteration_limit=limit)
    for name in order:
        assert on_device[name] == pytest.approx(model[name], rel=1e-12)
        there = {row: tag for row, tag in model[name].items() if row in db[name]}
        assert set(there) == set(db[name])
        for row, tag in db[name].items():
            assert there[row] == pytest.approx(tag, rel=1e-9), (name, row)


EVERYTHING = """
type e(i32, i32), u(i32), w(i32, f64)
rel named = {(0, "a"), (1, "b"), (2, "a")}
rel p(x, y) = e(x, y) or (p(x, z) and p(z, y))
rel odd(x) = u(x), not even(x)
rel even(x) = e(x, x)
rel even(y) = odd2(x), e(x, y)
rel odd2(y) = even(x), e(x, y)
rel counts(x, n) = n := count(y: p(x, y))
rel asked(x, n) = n := count(y: p(x, y) where x: u(x))
rel best(x, y) = y := max(y: p(x, y))
rel nothing() = not u(3)
rel both() = nothing(), u(0)
rel ranges(x, z) = e(x, y), z in x..=y, not u(z)
rel letters(x, i, c) = named(x, s), string_chars(s, i, c)
rel joined(a + b, x) = named(x, a), named(y, b), x < y
rel halves(x, v / 2.0) = w(x, v), v > 0.5
rel divided(x, y / z) = e(x, y), u(z)
rel same(x) = e(x, x), p(x, x)
rel constants(y) = e(1, y), named(y, "a"), p(_, y)
rel product(x, y) = u(x), named(y, _)
rel reach(x) = u(x)
rel reach(y) = reach(x), e(x, y), y > x
"""


@examples(10, 40, fact_sets(), st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.25, 1.5, 3.0])), max_size=4))
def test_every_operator_agrees_with_the_machine(facts, weights):
    facts = {**facts, "w": list(dict.fromkeys(weights))}
    program = dv.Program(EVERYTHING)
    db = program.run(facts=facts)
    model, _ = run_apm(program, facts)
    assert run_apm(program, facts, arrays=Torch("cpu"))[0] == model
    for name in db:
        assert set(model[name]) == set(db[name]), name


TERMS = """
type Expr = Const(i32) | Add(Expr, Expr) | Neg(Expr)
const ROOT = Add(Const(3), Neg(Const(1)))
rel root(ROOT)
rel eval(e, v) = case e is Const(v)
rel eval(e, a + b) = case e is Add(x, y) and eval(x, a) and eval(y, b)
rel eval(e, 0 - a) = case e is Neg(x) and eval(x, a)
rel result(v) = root(e), eval(e, v), kept(v)
rel word(1, "a")
rel word(n + 1, $string_concat(s, "b")) = word(n, s), n < 4
rel longest(n) = n := top<2>(n: word(n, _))
type kept(i32)
"""


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "addmultprob"])
def test_terms_texts_and_functions(provenance):
    facts = {"kept": [2, 5] if provenance == "unit" else {(2,): 0.25, (5,): 0.5}}
    program = dv.Program(TERMS, narrow=False)
    model, _ = run_apm(program, facts, provenance)
    on_device, _ = run_apm(program, facts, provenance, arrays=Torch("cpu"))
    assert all(on_device[name] == pytest.approx(model[name]) for name in model)
    db = program.run(facts=facts, provenance=provenance)
    assert set(db["result"]) == {(2,)}
    for name in ("result", "word", "longest"):
        assert model[name] == pytest.approx(dict(db[name].items())), name


@pytest.mark.parametrize("provenance", ["minmaxprob", "addmultprob"])
def test_aggregates_and_choices_are_calls(provenance):
    program = dv.Program("""type e(i32, i32), chance(i32, f64)
        rel p::kept(x) = chance(x, p), e(x, _)
        rel n(x, c) = c := count(y: e(x, y))
        rel m(y) = y := max(y: e(_, y))""")
    facts = {"e": {(0, 1): 0.5, (0, 2): 0.25, (1, 2): 0.75}, "chance": [(0, 0.5), (1, 0.25), (2, 0.75)]}
    model, machine = run_apm(program, facts, provenance)
    db = program.run(facts=facts, provenance=provenance)
    for name in db:
        assert model[name] == pytest.approx(dict(db[name].items())), name
    assert machine.counts[n.Call] == 3


def test_a_small_real_graph():
    with gzip.open(data_path("graphs/cal.cedge.txt.gz"), "rt") as file:
        edges = np.loadtxt(file, dtype=np.int64)[:300]
    program = dv.Program(CLOSURE)
    db = program.run({"e": edges})
    model, _ = run_apm(program, {"e": edges})
    assert set(model["p"]) == set(db["p"])


def loop_of(program):
    """The loop of a program with one recursion."""
    tables = lower(program.lowered())
    (loop,) = {node for node in n.nodes_of(results_of(tables)) if isinstance(node, n.Loop)}
    return loop


def test_indexes_of_what_does_not_change_are_built_once():
    edges = [(i, i + 1) for i in range(10)]
    program = dv.Program(CLOSURE)
    model, machine = run_apm(program, {"e": edges})
    assert len(model["p"]) == 55
    assert machine.rounds == [10]
    loop = loop_of(program)
    built = [node for node in n.nodes_of(loop.body) if isinstance(node, n.Build)]
    moving = [node for node in built if node in loop.moving]
    assert len(built) - len(moving) == 1
    assert machine.counts[n.Build] == 1 + 10 * len(moving)


def test_equal_nodes_are_one():
    loop = loop_of(dv.Program(CLOSURE + "\nrel p(y, x) = p(x, z), e(z, y)"))
    nodes = [node for node in n.nodes_of(loop.body) if node in loop.moving]
    assert sum(isinstance(node, n.Join) for node in nodes) == 1


def test_the_printed_form():
    program = dv.Program(CLOSURE + "\nrel q(x) = p(x, 3), not e(3, x)")
    compare("explain_apm", program.explain("apm"))


# Runs on a device: torch on the CPU stands for any.

NODES = 40
EDGES = [(i, (i * k + 1) % NODES) for i in range(NODES) for k in (2, 3)]


@pytest.mark.parametrize("kind", ["i32", "usize", "u32", "String"])
def test_a_run_on_a_device_gives_the_same_tuples(kind):
    """Keys of few bits are packed when the program is made, others by their ranges."""
    edges = [(f"n{a}", f"n{b}") for a, b in EDGES] if kind == "String" else EDGES
    program = dv.Program(f"type e({kind}, {kind})\nrel p(x, y) = e(x, y) or (p(x, z) and p(z, y))\nrel q(x) = p(x, x)")
    db, on_device = (program.run({"e": edges}, device=device) for device in (None, "torch:cpu"))
    for name in ("p", "q"):
        assert set(on_device[name]) == set(db[name])
        assert len(on_device[name]) == len(db[name])
    assert "recursion of p: " in on_device.explain()


def test_keys_without_a_common_range_are_ranked():
    far = [(a << 40, -b << 40) for a, b in EDGES]
    far += [(-b << 40, a << 40) for a, b in EDGES[::3]]
    program = dv.Program(
        "type e(i64, i64)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nrel o(x, y) = e(x, y), not p(y, x)"
    )
    db, on_device = (program.run({"e": far}, device=device) for device in (None, "torch:cpu"))
    for name in ("p", "o"):
        assert set(on_device[name]) == set(db[name])


@pytest.mark.parametrize("provenance", ["minmaxprob", "addmultprob", "max_product", "boolean"])
def test_a_run_on_a_device_gives_the_same_tags(provenance):
    program = dv.Program(CLOSURE + "\nrel q(x) = p(x, _), not e(x, x)")
    facts = {"e": [(0.5 + (7 * i % 10) / 25, edge) for i, edge in enumerate(EDGES)]}
    db, on_device = (program.run(facts, provenance=provenance, device=device) for device in (None, "torch:cpu"))
    for name in ("p", "q"):
        assert dict(on_device[name].items()) == pytest.approx(dict(db[name].items()), rel=1e-12)


def test_outputs_stay_on_the_device_until_they_are_read(calls_of):
    copied = calls_of(Torch, "to_host")
    program = dv.Program("type e(u32, u32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))")
    edges = torch.tensor(EDGES, dtype=torch.int32)
    view = program.run({"e": edges}, device="torch:cpu")["p"]
    tensors = view.to_torch()
    expected = program.run({"e": edges})["p"]
    assert len(view) == len(expected)
    assert not copied
    assert [x.dtype for x in tensors] == [torch.int64] * 2
    assert set(zip(*(x.tolist() for x in tensors))) == set(expected)
    assert [x.dtype for x in view.columns] == [np.uint32] * 2
    assert len(copied) == 2
    assert set(view) == set(expected)
    assert EDGES[0] in view
    assert (NODES, 0) not in view
    again = pickle.loads(pickle.dumps(program.run({"e": edges}, device="torch:cpu")["p"].table))
    assert set(zip(*(again.column(k).tolist() for k in (0, 1)))) == set(expected)
    assert all((x.numpy() == y).all() for x, y in zip(expected.to_torch(), expected.columns))


def test_tensors_of_a_run_have_the_types_of_its_columns():
    program = dv.Program("type w(i8, f32, bool), t(String)\nrel q(x, v / 2.0, b) = w(x, v, b)\nrel r(x) = t(x)")
    facts = {"w": {(-3, 0.5, True): 0.25, (4, 2.5, False): 0.5}, "t": [("a",)]}
    for device in (None, "torch:cpu"):
        db = program.run(facts, "minmaxprob", device=device)
        found = db["q"].to_torch()
        assert set(zip(*(x.tolist() for x in found))) == {(-3, 0.25, True, 0.25), (4, 1.25, False, 0.5)}
        with pytest.raises(TypeMismatchError, match="column 0 of the relation is String, which torch has not"):
            db["r"].to_torch()


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "real"])
def test_facts_may_be_tensors(provenance):
    program = dv.Program("type e(u8, u8)\nrel p(x, z) = e(x, y), e(y, z)\nrel s(x) = p(x, 3)\nquery s(1)")
    edges = torch.tensor([[1, 2], [2, 3], [3, 1], [0, 2]])
    for device in (None, "torch:cpu"):
        for facts in (edges, edges.to(torch.uint8), list(map(tuple, edges.tolist()))):
            db = program.run({"e": facts}, provenance, device=device)
            assert set(db["s(1)"]) == {(1,)}
        with pytest.raises(TypeMismatchError, match="row 3, column 0: expected u8, found 256"):
            program.run({"e": edges + torch.tensor([[0, 0]] * 3 + [[256, 0]])}, provenance, device=device)
        with pytest.raises(ShapeError, match="for 2 columns"):
            program.run({"e": torch.zeros(3, 3, dtype=torch.int64)}, provenance, device=device)
    undeclared = dv.Program("rel p(x, z) = f(x, y), f(y, z)")
    assert set(undeclared.run({"f": edges}, device="torch:cpu")["p"]) == set(undeclared.run({"f": edges})["p"])


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000])
def test_columns_travel_in_pieces(size):
    source = torch.arange(size) * 3
    target = torch.full_like(source, -1)
    torch_columns.copy_in_pieces(source, target, list(torch.empty(2, 32, dtype=torch.uint8)))
    assert target.equal(source)


class Reads(TorchDispatchMode):
    """Counts the operations for which the host waits, and the bytes of new tensors."""

    def __init__(self):
        super().__init__()
        self.count = self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        self.count += name in ("nonzero", "_local_scalar_dense", "bincount", "_unique2", "unique_dim")
        found = function(*args, **kwargs or {})
        there = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        tensors = [x for x in (found if isinstance(found, tuple | list) else [found]) if isinstance(x, torch.Tensor)]
        self.bytes += sum(x.nbytes for x in tensors if x.untyped_storage().data_ptr() not in there)
        return found


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "topkproofs"])
def test_what_a_round_allocates_does_not_grow_with_all_rows(provenance):
    """Twice the rounds find four times the rows; copies of all rows in each round were eight times the bytes."""
    program = dv.Program(CLOSURE)
    found = []
    for length in (40, 80):
        facts = {"e": [(i, i + 1) if provenance == "unit" else (0.9, (i, i + 1)) for i in range(length)]}
        with Reads() as counted:
            db = program.run(facts, provenance, k=1, device="torch:cpu", round_limit=99)
        assert len(db["p"]) == length * (length + 1) // 2
        found.append(counted.bytes)
    assert found[1] < 5 * found[0]


def test_joins_of_a_round_are_counted_together(calls_of):
    """Those of what is recent at once, and then those that go on from their pairs."""
    program = dv.Program(
        "type e(i32, i32), f(i32, i32)\nrel p(x, y) = e(x, y)\n"
        "rel p(x, y) = p(x, z), e(z, w), f(w, y)\nrel p(x, y) = p(x, z), f(z, w), e(w, y)"
    )
    edges = [(i, i + 1) for i in range(40)]
    joins = calls_of(torch_rows.Pairs, "count", len)
    model, machine = run_apm(program, {"e": edges, "f": edges}, arrays=Torch("cpu"))
    assert model["p"].keys() == {(i, j) for i in range(41) for j in range(i + 1, 41, 2)}
    assert joins == [2] * 2 * machine.rounds[0]


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob"])
def test_a_run_like_the_one_before_allocates_nothing_else(provenance, calls_of):
    """Sets and tags have room for all rows from the beginning, and all tensors are as large as in the run before."""
    program = dv.Program(CLOSURE)
    rooms, counts = calls_of(torch_rows, "roomier"), []
    for length in (40, 40, 41, 40, 12, 12):
        facts = {"e": [(i, i + 1) if provenance == "unit" else (0.9, (i, i + 1)) for i in range(length)]}
        with Reads() as counted:
            program.run(facts, provenance, device="torch:cpu", round_limit=99)
        counts.append((len(rooms), counted.bytes))
        rooms.clear()
    grown, sizes = zip(*counts)
    assert grown[0] > 2
    assert grown[4] > 2
    assert grown[1:4] == (1, 1, 1)
    assert grown[5] == 1
    assert sizes[1] == sizes[3] < sizes[0]
    assert sizes[5] < sizes[1] / 4


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "max_product"])
@pytest.mark.parametrize("rule", ["p(x, z) and e(z, y)", "p(x, z) and e(z, w) and e(w, y)"])
def test_a_round_on_a_device_reads_few_numbers(provenance, rule):
    program = dv.Program(f"type e(i32, i32)\nrel p(x, y) = e(x, y) or ({rule})")
    counts, rounds = [], []
    for length in (30, 60):
        facts = {"e": [(i, i + 1) if provenance == "unit" else (0.9, (i, i + 1)) for i in range(length)]}
        with Reads() as counted:
            _, machine = run_apm(program, facts, provenance, arrays=Torch("cpu"))
        counts.append(counted.count)
        rounds += machine.rounds
    assert counts[1] - counts[0] <= 10 * (rounds[1] - rounds[0])


def test_coins_and_aggregates_are_called_on_the_host():
    program = dv.Program(
        "type e(i32, i32)\nrel 0.5::h(x) = e(x, y)\nrel n(c) = c := count(x: h(x))\nrel m(x) = x := max(x: e(x, _))"
    )
    facts = {"e": [(0.75, (1, 2)), (0.5, (1, 3)), (0.25, (2, 3))]}
    db, on_device = (program.run(facts, provenance="addmultprob", device=device) for device in (None, "torch:cpu"))
    for name in ("h", "n", "m"):
        assert dict(on_device[name].items()) == pytest.approx(dict(db[name].items()))


SMALL_AND_LARGE = """
type e(i32, i32), big(i32, i32)
rel p(x, y) = e(x, y) or (p(x, z) and e(z, y))
rel t(x, "a") = e(x, _)
rel q(x, y) = big(x, y), p(x, _)
rel r(x, n) = n := count(y: q(x, y))
rel s(a) = r(a, _), not e(a, a)
"""


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "addmultprob"])
@pytest.mark.parametrize("rows", [30, 20_000])
def test_small_strata_are_on_the_host(provenance, rows, monkeypatch):
    """Where launches take time, which they do not on the CPU."""
    monkeypatch.setitem(host_strata.LAUNCH, "cpu", 1e-5)
    pairs = [(0, 1), (1, 2), (2, 0), (3, 3)]
    facts = {
        "e": pairs if provenance == "unit" else list(zip((0.5, 0.25, 0.75, 0.4), pairs)),
        "big": np.random.default_rng(0).integers(0, 50, (rows, 2)),
    }
    program = dv.Program(SMALL_AND_LARGE)
    db, on_device = (program.run(facts, provenance=provenance, device=device) for device in (None, "torch:cpu"))
    assert ("on the host: e, p, t\n" in f"{on_device.explain()}\n") == (rows > 30)
    assert "on the host: e" in on_device.explain()
    assert "line 3: rel p(x, y)" in on_device.explain()
    assert "by columns (no kernel: too few rows; it needs thousands)" in on_device.explain()
    plan = program.explain("plan", facts, provenance, device="torch:cpu")
    assert plan.startswith("on torch:cpu")
    assert "on the host: e" in plan
    for name in db:
        assert dict(on_device[name].items()) == pytest.approx(dict(db[name].items()), rel=1e-12)
        assert len(on_device[name].to_torch()[0]) == len(db[name]) if name != "t" else True


@pytest.mark.parametrize(("of", "largest"), [("u8", 255), ("u32", (1 << 32) - 1), ("u64", (1 << 64) - 1)])
def test_unsigned_integers_are_compared_on_the_device(of, largest):
    """Words have a sign, which matters to the order of 64 bits alone."""
    values = [0, 1, largest // 2, largest // 2 + 1, largest]
    facts = {"e": [(x, y) for x in values for y in values]}
    conditions = {"==": "y", "!=": "y", "<": "y", ">=": "y", "<=": "200", ">": "0", "<  ": "y / 2"}
    for operator, other in conditions.items():
        program = dv.Program(f"type e({of}, {of})\nrel r(x, y) = e(x, y), x {operator} {other}")
        db, on_device = (program.run(facts, device=device, provenance="unit") for device in (None, "torch:cpu"))
        assert set(on_device["r"]) == set(db["r"])
        is_called = "call" in program.explain("apm")
        assert is_called == ("/" in other or (of == "u64" and operator not in ("==", "!=")))


def test_limits_of_a_run_on_a_device():
    program = dv.Program(CLOSURE)
    chain = {"e": [(i, i + 1) for i in range(30)]}
    cut, on_device = (program.run(chain, iteration_limit=3, device=device) for device in (None, "torch:cpu"))
    assert set(cut["p"]) == set(on_device["p"])
    # Those of the last round were not propagated.
    assert f"recursion of p: 3 rounds, {len(cut['p']) - 27} rows" in on_device.explain()
    with pytest.raises(dv.DerivableError, match="round_limit = 4"):
        program.run(chain, round_limit=4, device="torch:cpu")
    with pytest.raises(dv.DerivableError, match="tuple_limit = 20"):
        program.run(chain, tuple_limit=20, device="torch:cpu")


def test_what_a_device_refuses():
    program = dv.Program(CLOSURE)
    facts = {"e": [(0.5, (0, 1))]}
    with pytest.raises(UnsupportedError, match="'exact' does not run on a device"):
        program.run(facts, device="torch:cpu")
    with pytest.raises(DomainError, match="no device 'gpu'"):
        program.run(facts, "unit", device="gpu")
    with pytest.raises(DomainError, match="the CPU is what a run without"):
        program.run(facts, "unit", device="cpu")
    with pytest.raises(DomainError, match="a run on a device has nothing to go on from"):
        program.run(facts, "unit", device="torch:cpu", keep=True)
    with pytest.raises(DomainError, match="goes to the end"):
        program.run(facts, "unit", device="torch:cpu", stop_at_goal=True)
    # The first number that is none.
    number = torch.cuda.device_count()
    with pytest.raises(UnsupportedError, match=f"torch finds {number} CUDA devices, .* asks for 'cuda:{number}'"):
        program.run(facts, "unit", device=f"cuda:{number}")

    with (
        under(device=partial(Torch, piece=0, pairs_at_once=0)),
        pytest.raises(LimitError, match="a join has 1 pairs, and 0 rows at most are sorted at once"),
    ):
        program.run({"e": [(0.5, (0, 1)), (0.5, (1, 2))]}, "minmaxprob", device="torch:cpu", round_limit=9)
    with pytest.raises(LimitError, match="2 rows are to be sorted, and torch sorts 1 at most"):
        torch_rows.sorted_keys(torch.arange(2), 1)


@examples(20, 120, programs(), fact_sets(max_edges=8), st.sampled_from(["unit", "minmaxprob", "addmultprob", "real"]))
def test_rules_in_pieces_mean_the_same(program, facts, provenance):
    rules, _ = program
    program = dv.Program(text_of(rules))
    if provenance != "unit":
        facts = {name: [(0.5, row) for row in rows] for name, rows in facts.items()}
    for arrays in (NumPy(), Torch("cpu"), Torch("cpu", piece=2)):
        whole, cut = (run_apm(program, facts, provenance, 6, arrays, may_cut) for may_cut in (False, True))
        assert whole[0].keys() == cut[0].keys()
        for name, model in whole[0].items():
            assert cut[0][name] == pytest.approx(model, rel=1e-12), name
        assert cut[1].rounds == whole[1].rounds


CUTS = {
    "unit": "rel p(x, y) = e(x, y) or (p(x, z) and e(z, w) and e(w, y))\nrel q(x, z) = e(x, y), e(y, z)",
    "minmaxprob": "rel p(x, y) = e(x, y) or (p(x, z) and p(z, y))\nrel q(x, z) = e(x, y), not e(y, x), p(y, z)",
    "topkproofs": "rel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nrel q(x, z) = p(x, y), e(y, w), e(w, z)",
}


@pytest.mark.parametrize("provenance", list(CUTS))
def test_joins_of_more_pairs_than_torch_sorts_are_cut(provenance):
    """Rows whose joins have too many pairs are cut, and later runs of the program begin so."""
    program = dv.Program("type e(i32, i32)\n" + CUTS[provenance])
    edges = EDGES[:60]
    facts = {"e": edges if provenance == "unit" else [(0.3 + k / 200, row) for k, row in enumerate(edges)]}
    db = program.run(facts, provenance, k=2)
    whole = program.run(facts, provenance, k=2, device="torch:cpu", round_limit=99)
    assert "joins: " not in whole.explain()
    for most in (100, 1 << 31):
        with under(device=partial(Torch, piece=40, pairs_at_once=most)):
            cut = program.run(facts, provenance, k=2, device="torch:cpu", round_limit=99)
        assert "joins: in pieces of at most 40 pairs" in cut.explain()
        for name in ("p", "q"):
            assert dict(cut[name].items()) == dict(db[name].items()) == dict(whole[name].items())


def test_a_device_without_memory(monkeypatch, costs):
    """The error says what torch wanted, nothing on the device is kept, and later runs go on."""
    program = dv.Program(CLOSURE)
    facts = {"e": EDGES[:40]}
    expected = set(program.run(facts)["p"])
    kept = []

    def full(columns, room):
        kept.extend(weakref.ref(column) for column in columns)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    with monkeypatch.context() as patched:
        patched.setattr(torch_rows, "roomier", full)
        with pytest.raises(OutOfMemory, match="no memory left for the run: CUDA out of memory") as error:
            program.run(facts, device="torch:cpu", round_limit=99)
    gc.collect()
    assert kept
    assert not any(reference() is not None for reference in kept)
    assert isinstance(error.value, MemoryError)
    assert "Tried to allocate 2.00 GiB" in str(error.value)
    assert set(program.run(facts, device="torch:cpu", round_limit=99)["p"]) == expected

    rows = torch_rows.Pairs.rows
    costs(device=partial(Torch, piece=16))

    def small(self, start, stop):
        if stop - start > 32:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return rows(self, start, stop)

    monkeypatch.setattr(torch_rows.Pairs, "rows", small)
    tagged = {"e": [(0.5, row) for row in facts["e"]]}
    cut = program.run(tagged, "minmaxprob", device="torch:cpu", round_limit=99)
    assert set(cut["p"]) == expected
    assert "joins: in pieces of at most 16 pairs" in cut.explain()
