"""The abstract parallel machine: valid programs, which mean what RAM means, under every semiring of scalars."""

import gzip
import inspect
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from data import data_path
from datalog.naive import fact_sets, programs, text_of
from datalog.test_errors import compare
from derivable.core.diagnostics import LayoutError
from derivable.datalog.apm import check, nodes, text
from derivable.datalog.apm import lower as lowering
from derivable.datalog.apm import nodes as a
from derivable.datalog.apm.check import check_apm
from derivable.datalog.apm.interpret import Interpreter
from derivable.datalog.apm.lower import lower
from derivable.datalog.apm.text import apm_text
from derivable.datalog.facts.facts import load_program_facts, load_python_facts, new_store
from derivable.datalog.facts.inputs import taken
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.tags.provenance import provenance_of, tags_of
from derivable.datalog.values.values import show_column
from drawn import examples

CLOSURE = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))"


def run_apm(program, facts, provenance="unit", limit=None):
    """(relation -> tuple -> tag, the interpreter) of a program on the reference interpreter of APM."""
    ram = program.lowered(taken(facts))
    store = new_store(ram)
    load_program_facts(ram, store)
    load_python_facts(ram, taken(facts), store)
    compiled = lower(ram)
    check_apm(compiled)
    algebra = None if provenance == "unit" else tags_of(provenance_of(provenance), store.random, 3)
    machine = Interpreter(compiled, store, algebra, limit)
    model = {}
    for name, part in machine.run().items():
        types = ram.relations[name].types
        columns = [show_column(c, t, store.symbols).tolist() for c, t in zip(part.columns, types)]
        rows = list(zip(*columns)) if columns else [()] * len(part.tags)
        tags = [True] * len(rows) if algebra is None else algebra.show(part.tags).tolist()
        assert len(set(rows)) == len(rows)
        model[name] = dict(zip(rows, tags))
    return model, machine


@examples(60, 120, programs(), fact_sets())
def test_random_programs_agree_with_ram_and_the_machine(program, facts):
    rules, order = program
    program = dv.Program(text_of(rules))
    meaning = interpret(program.lowered(), facts)
    model, _ = run_apm(program, facts)
    db = program.run(facts=facts)
    for name in order:
        assert set(model[name]) == meaning[name] == set(db[name])


@settings(max_examples=100, deadline=None)
@given(
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
    db = program.run(facts=tagged, provenance=provenance, iteration_limit=limit)
    for name in order:
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


@examples(20, 40, fact_sets(), st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.25, 1.5, 3.0])), max_size=4))
def test_every_operator_agrees_with_the_machine(facts, weights):
    facts = {**facts, "w": list(dict.fromkeys(weights))}
    program = dv.Program(EVERYTHING)
    db = program.run(facts=facts)
    model, _ = run_apm(program, facts)
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
    assert machine.counts[a.Call] == 3


def test_a_small_real_graph():
    with gzip.open(data_path("graphs/cal.cedge.txt.gz"), "rt") as file:
        edges = np.loadtxt(file, dtype=np.int64)[:300]
    program = dv.Program(CLOSURE)
    db = program.run({"e": edges})
    model, _ = run_apm(program, {"e": edges})
    assert set(model["p"]) == set(db["p"])


def test_indexes_of_what_does_not_change_are_built_once():
    edges = [(i, i + 1) for i in range(10)]
    model, machine = run_apm(dv.Program(CLOSURE), {"e": edges})
    assert len(model["p"]) == 55
    assert machine.rounds == [0, 10]
    loop = machine.program.strata[1].loop
    static = [i for i in loop if isinstance(i, a.Build) and i.into.is_static]
    moving = [i for i in loop if isinstance(i, a.Build) and not i.into.is_static]
    assert len(static) == 1
    assert machine.counts[a.Build] == 1 + 10 * len(moving)


def test_equal_instructions_of_a_block_are_one():
    loop = lower(dv.Program(CLOSURE + "\nrel p(y, x) = p(x, z), e(z, y)").lowered()).strata[1].loop
    assert sum(isinstance(i, a.Load) and i.relation == "e" for i in loop) == 1
    assert sum(isinstance(i, a.Join) for i in loop) == 1


@pytest.mark.parametrize("module", [nodes, text, check, lowering])
def test_only_the_interpreter_knows_arrays(module):
    """What a GPU will run must not depend on how a CPU does."""
    imported = [line for line in inspect.getsource(module).splitlines() if line.startswith(("import", "from"))]
    assert not any(library in line for line in imported for library in ("numpy", "numba", "parallel", "storage"))


# The validator


def changed(program, number, make):
    """The program with another instruction in the loop of its second stratum, or with none."""
    stratum = program.strata[1]
    loop = list(stratum.loop)
    made = make(loop[number])
    loop[number : number + 1] = made if isinstance(made, list) else [made]
    strata = list(program.strata)
    strata[1] = replace(stratum, loop=tuple(loop))
    return replace(program, strata=tuple(strata))


def place(program, kind, which=0):
    return [n for n, i in enumerate(program.strata[1].loop) if isinstance(i, kind)][which]


def renamed(registers, size=None, kind=None, static=None):
    """Registers with another size, type or kind."""
    return tuple(
        replace(
            r,
            size=r.size if size is None else size,
            type=r.type if kind is None else kind,
            is_static=r.is_static if static is None else static,
        )
        for r in registers
    )


PROGRAM = lower(dv.Program(CLOSURE).lowered())


def without(kind):
    return lambda: changed(PROGRAM, place(PROGRAM, kind), lambda i: [])


def twice(kind):
    return lambda: changed(PROGRAM, place(PROGRAM, kind), lambda i: [i, i])


def wrong_size():
    def make(i):
        return replace(i, registers=renamed(i.registers, size=a.Exactly(7)))

    return changed(PROGRAM, place(PROGRAM, a.Alloc, 2), make)


def wrong_type():
    """A column is stored as the tags."""
    return changed(
        PROGRAM, place(PROGRAM, a.Store), lambda i: replace(i, table=replace(i.table, tags=i.table.columns[0]))
    )


def size_too_early():
    """The pairs of a join are allocated before they are counted."""
    join = PROGRAM.strata[1].loop[place(PROGRAM, a.Join) - 1]
    return changed(PROGRAM, place(PROGRAM, a.Count), lambda i: [join, i])


def static_of_moving():
    """The probes of the join are made static, although they come from recent rows."""
    count = place(PROGRAM, a.Count)
    program = changed(PROGRAM, count, lambda i: replace(i, into=replace(i.into, is_static=True)))
    alloc = count - 1
    return changed(program, alloc, lambda i: replace(i, registers=renamed(i.registers, static=True)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (without(a.Load), "read before it is assigned"),
        (without(a.Alloc), "assigned before it is allocated"),
        (twice(a.Alloc), "allocated twice"),
        (twice(a.Load), "assigned twice"),
        (without(a.Count), "read before it is assigned"),
        (size_too_early, "not known yet"),
        (wrong_size, "not what was allocated"),
        (wrong_type, "has type i32 where tag is wanted"),
        (static_of_moving, "static"),
    ],
)
def test_the_validator_finds(make, message):
    check_apm(PROGRAM)
    with pytest.raises(LayoutError, match=message):
        check_apm(make())


def swapped(program, old, new):
    """The program with a register exchanged everywhere, its allocation included."""

    def exchange(node):
        if node == old:
            return new
        if isinstance(node, tuple):
            return tuple(map(exchange, node))
        if isinstance(node, dict):
            return {key: exchange(value) for key, value in node.items()}
        if hasattr(node, "__dataclass_fields__") and not isinstance(node, (a.Register, a.Program)):
            fields = {name: exchange(getattr(node, name)) for name in node.__dataclass_fields__}
            return type(node)(**fields)
        return node

    strata = [replace(s, loop=exchange(s.loop)) for s in program.strata]
    return replace(program, strata=tuple(strata))


@pytest.mark.parametrize("kind", [a.Count, a.Scan, a.Compact, a.GatherTags, a.Build, a.Mask, a.Merge, a.Sort])
def test_the_validator_asks_for_sizes_and_types_of_every_instruction(kind):
    instruction = PROGRAM.strata[1].loop[place(PROGRAM, kind)]
    old = a.results(instruction)[0]
    for new in (replace(old, size=a.Exactly(1)), replace(old, type=a.HASH if old.type != a.HASH else a.TAG)):
        with pytest.raises(LayoutError, match=r"has size|has type|not what was allocated|wanted"):
            check_apm(swapped(PROGRAM, old, new))


def test_the_printed_form():
    text = apm_text(lower(dv.Program(CLOSURE + "\nrel q(x) = p(x, 3), not e(3, x)").lowered()))
    compare("explain_apm", text)
