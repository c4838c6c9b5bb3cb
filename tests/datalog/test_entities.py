"""Algebraic data types: programs of the usual kinds against plain Python recursion; all routes agree."""

import copy
import datetime as dt
import itertools
import pickle
import random
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog import naive_terms
from datalog.test_apm import run_apm
from datalog.test_functions import siphash
from datalog.worlds import probabilities, worlds
from derivable.datalog import Entity
from derivable.datalog.desugar import desugar
from derivable.datalog.foreign.standard import FUNCTIONS
from derivable.datalog.ram.check import check_ram
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.ram.lower import lower
from derivable.datalog.rules.check import check_rules
from derivable.datalog.rules.new_terms import with_terms
from derivable.datalog.rules.strata import check_strata, stratify
from derivable.datalog.syntax.parse import parse
from derivable.datalog.syntax.text import syntax_text
from derivable.datalog.types import infer
from derivable.datalog.values.terms import subterms
from drawn import examples


def run(text, facts=None, machine=True):
    """The relations of a run as sets, when all routes agree on them, `machine` the abstract one too."""
    facts = facts or {}
    syntax = parse(text)
    assert parse(syntax_text(syntax)).items == syntax.items
    core = with_terms(desugar(infer(syntax)))
    check_rules(core)
    strata = stratify(core)
    check_strata(strata)
    ram = lower(strata)
    check_ram(ram)
    program = dv.Program(text)
    found = program.run(facts)
    meaning = interpret(program.lowered(facts), facts)
    for provenance in ("exact", "minmaxprob", "addmultprob", "topkproofs"):
        tagged = program.run(facts, provenance=provenance)
        for name in found:
            assert set(tagged[name]) == set(found[name]), (provenance, name)
            assert all(tag == pytest.approx(1.0) for tag in tagged[name].tag_list())
    abstract = run_apm(program, facts)[0] if machine else found
    for name in found:
        assert set(found[name]) == meaning[name] == set(abstract[name]), name
    return {name: set(found[name]) for name in found}


def term(functor, *fields):
    return Entity(functor, *fields)


LEAF = term("Leaf")


def node(x, left=LEAF, right=LEAF):
    return term("Node", x, left, right)


def entity(value):
    return Entity(value[0], *map(entity, value[1:])) if isinstance(value, tuple) else value


TREE = "type Tree = Leaf() | Node(i32, Tree, Tree)\ntype tree(t: Tree)\n"
trees = st.recursive(st.just(LEAF), lambda inner: st.builds(node, st.integers(-9, 9), inner, inner), max_leaves=8)


def parts(t):
    """A term and all terms in it, by recursion."""
    return {t}.union(*(parts(f) for f in t.fields if isinstance(f, Entity)))


def size(t):
    return 0 if t.functor == "Leaf" else 1 + size(t.fields[1]) + size(t.fields[2])


def total(t):
    return 0 if t.functor == "Leaf" else t.fields[0] + total(t.fields[1]) + total(t.fields[2])


def mirrored(t):
    return t if t.functor == "Leaf" else node(t.fields[0], mirrored(t.fields[2]), mirrored(t.fields[1]))


@settings(max_examples=10, deadline=None)
@given(st.lists(trees, max_size=3, unique=True))
def test_trees_agree_with_recursion(given_trees):
    found = run(
        TREE
        + """
        rel size(t, 0) = case t is Leaf()
        rel size(Node(_, l, r), 1 + a + b) = size(l, a) and size(r, b)
        rel total(t, s) = case t is Leaf(), s == 0
        rel total(t, x + a + b) = case t is Node(x, l, r), total(l, a), total(r, b)
        rel mirror(t, t) = case t is Leaf()
        rel mirror(t, new Node(x, r1, l1)) = case t is Node(x, l, r), mirror(l, l1), mirror(r, r1), tree(_)
        rel balanced(t) = case t is Leaf() or (case t is Node(_, l, r) and size(l, n) and size(r, n))
        rel lopsided(t) = size(t, _), not balanced(t)
        rel inner(t) = size(t, _), not case t is Leaf()
        rel straight(t) = size(t, _), not case t is Node(_, Node(_, _, _), Node(_, _, _))
        rel same(t) = size(t, _), not case t is Node(x, Node(x, _, _), _)
        rel number(n) = n := count(t: size(t, _))
        rel has(x) = case _ is Node(x, _, _)
        """,
        {"tree": [(t,) for t in given_trees]},
        machine=False,
    )
    asked = set().union(*map(parts, given_trees))
    # The mirror images are there too, and mirrored in their turn.
    everything = asked | set().union(*(parts(mirrored(t)) for t in asked))
    assert found["size"] == {(t, size(t)) for t in everything}
    assert found["total"] == {(t, total(t)) for t in everything}
    assert found["mirror"] == ({(t, mirrored(t)) for t in everything} if given_trees else set())
    inner = {t for t in everything if t.functor == "Node"}
    balanced = everything - {t for t in inner if size(t.fields[1]) != size(t.fields[2])}
    assert found["balanced"] == {(t,) for t in balanced}
    assert found["lopsided"] == {(t,) for t in everything - balanced}
    assert found["inner"] == {(t,) for t in inner}
    assert found["straight"] == {(t,) for t in everything if t not in inner or LEAF in t.fields[1:]}
    assert found["same"] == {
        (t,) for t in everything if t not in inner or t.fields[1] is LEAF or t.fields[0] != t.fields[1].fields[0]
    }
    assert found["number"] == {(len(everything),)}
    assert found["has"] == {(t.fields[0],) for t in inner}


EXPRESSION = """
type Expr = Const(i32) | Var(String) | Add(Expr, Expr) | Mul(Expr, Expr)
type input(e: Expr)
rel part(e) = input(e)
rel {part(a), part(b)} = part(e), case e is Add(a, b) or case e is Mul(a, b)
rel simple(e, e) = part(e), case e is Const(_) or case e is Var(_)
rel simple(e, new Const(x + y)) = part(e), case e is Add(a, b), simple(a, Const(x)), simple(b, Const(y))
rel simple(e, new Const(x * y)) = part(e), case e is Mul(a, b), simple(a, Const(x)), simple(b, Const(y))
rel simple(e, c) = part(e), case e is Add(a, b), simple(a, Const(0)), simple(b, c), not case c is Const(_)
rel simple(e, c) = part(e), case e is Add(a, b), simple(b, Const(0)), simple(a, c), not case c is Const(_)
rel simple(e, new Const(0)) = part(e), case e is Mul(a, b), simple(a, Const(0)), simple(b, c), not case c is Const(_)
rel simple(e, new Const(0)) = part(e), case e is Mul(a, b), simple(b, Const(0)), simple(a, c), not case c is Const(_)
rel simple(e, new Add(c, d)) = part(e), case e is Add(a, b), simple(a, c), simple(b, d),
    not (case c is Const(_) and case d is Const(_)), not case c is Const(0), not case d is Const(0)
rel simple(e, new Mul(c, d)) = part(e), case e is Mul(a, b), simple(a, c), simple(b, d),
    not (case c is Const(_) and case d is Const(_)), c != Const(0), d != Const(0)
rel answer(e, s) = input(e), simple(e, s)
rel constant(e, n) = answer(e, Const(n))
query answer
query constant
"""
expressions = st.recursive(
    st.one_of(
        st.integers(-2, 2).map(lambda n: term("Const", n)), st.sampled_from("xy").map(lambda name: term("Var", name))
    ),
    lambda inner: st.builds(term, st.sampled_from(["Add", "Mul"]), inner, inner),
    max_leaves=6,
)


def simplified(e):
    if e.functor in ("Const", "Var"):
        return e
    a, b = map(simplified, e.fields)
    if a.functor == b.functor == "Const":
        x, y = a.fields[0], b.fields[0]
        return term("Const", x + y if e.functor == "Add" else x * y)
    zero = term("Const", 0)
    if zero in (a, b):
        return zero if e.functor == "Mul" else b if a == zero else a
    return term(e.functor, a, b)


@settings(max_examples=8, deadline=None)
@given(st.lists(expressions, min_size=1, max_size=3, unique=True))
def test_simplification_agrees_with_recursion(inputs):
    found = run(EXPRESSION, {"input": inputs}, machine=False)
    assert found["answer"] == {(e, simplified(e)) for e in inputs}
    assert found["constant"] == {(e, s.fields[0]) for e, s in found["answer"] if s.functor == "Const"}


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.5, 0.25, 1.0]), expressions), min_size=1, max_size=3))
def test_probabilities_of_made_terms_agree_with_all_worlds(inputs):
    program = dv.Program(
        EXPRESSION + "rel 0.5::kept(c) = answer(_, Const(c))\nrel n(k) = k := count(c: kept(c))\nquery kept\nquery n"
    )
    facts = {e: p for p, e in inputs}
    found = program.run({"input": [(p, (e,)) for e, p in facts.items()]})
    values = {e: simplified(e) for e in facts}
    independent = [("input", (e,), p) for e, p in facts.items()] + [("tag", (e,), 0.5) for e in facts]

    def model(given):
        present = {row[0] for row in given.get("input", ())}
        answer = {(e, values[e]) for e in present}
        heads = {e for (e,) in given.get("tag", ())}
        kept = {n for e, v in answer if e in heads and v.functor == "Const" for n in v.fields}
        return {"answer": answer, "kept": {(n,) for n in kept}, "n": {(len(kept),)}}

    wanted = probabilities(independent, (), model)
    for name in ("answer", "kept", "n"):
        expected = {row: p for (relation, row), p in wanted.items() if relation == name and p > 0}
        assert dict(found[name].items()) == pytest.approx(expected)


def test_terms_are_certain_in_every_semiring():
    """`p` has two derivations of one term; taking it apart counts none of them twice."""
    text = """
    type T = A(i32) | B(T)
    rel q = {0.5::1, 0.25::2}
    rel p(new B(new A(7))) = q(_)
    rel r(x) = p(B(A(x)))
    rel s(x) = case _ is A(x)
    query p
    query r
    query s
    """
    program = dv.Program(text)
    counted = {"exact": 1 - 0.5 * 0.75, "addmultprob": 0.75, "minmaxprob": 0.5, "topkproofs": 1 - 0.5 * 0.75}
    for provenance, value in counted.items():
        found = program.run(provenance=provenance)
        assert found["r"].tag_list() == found["p"].tag_list() == [pytest.approx(value)], provenance
        assert found["s"].tag_list() == [1.0]
    certain = dv.Program(text.replace("0.5::", "").replace("0.25::", "")).run(provenance="counting")
    assert dict(certain["r"].items()) == {(7,): 2}
    assert dict(certain["s"].items()) == {(7,): 1}


@settings(max_examples=25, deadline=None)
@given(naive_terms.programs(), naive_terms.fact_sets(), st.sampled_from(["minmaxprob", "addmultprob"]))
def test_tags_of_random_programs_agree_with_the_abstract_machine(program, facts, provenance):
    rules, signatures = program
    program = dv.Program(naive_terms.text_of(rules, signatures) + "\nrel node(t) = case t is Node(_, _, _)")
    tagged = {
        name: [(round(0.9 / (i + 1), 2), tuple(map(entity, row))) for i, row in enumerate(rows)]
        for name, rows in facts.items()
    }
    model, _ = run_apm(program, tagged, provenance)
    found = program.run(tagged, provenance=provenance)
    for name in (*signatures, "node"):
        assert dict(found[name].items()) == pytest.approx({row: tag for row, tag in model[name].items() if tag > 0})


def test_patterns_everywhere():
    found = run(
        """
        type Shape = Circle(f32) | Square(f32) | Group(Shape, Shape) | Named(String, Shape) | Flag(bool, char)
        type Any = Nothing() | Some(Shape)
        const UNIT = Circle(1.0), PAIR = Group(UNIT, Square(2))
        type shape(Shape)
        rel shape = {UNIT, PAIR, Named("a", PAIR), Flag(true, 'c'), Group(UNIT, UNIT)}
        rel area(s, 3.0 * r * r) = case s is Circle(r)
        rel area(s, r * r) = case s is Square(r)
        rel area(Group(a, b), x + y) = area(a, x), area(b, y)
        rel area(Named(_, s), x) = area(s, x)
        rel twin(s) = shape(s), case s is Group(a, a)
        rel units(s) = shape(s), case s is Group(UNIT, _) or case s is Named(_, Group(UNIT, _))
        rel by_equation(r) = shape(s), s == Group(Circle(r), Square(_))
        rel other(s) = shape(s), s != UNIT
        rel flags(b, c) = shape(Flag(b, c))
        rel no_area(s) = shape(s), not area(s, _)
        rel small(s) = shape(s), exists(x: area(s, x) and x < 6.0)
        rel every() = forall(s: shape(s) implies (area(s, _) or case s is Flag(_, _)))
        rel number(n) = n := count(s: shape(s), case s is Group(_, _))
        rel largest(s) = s := argmax[s](x: area(s, x))
        rel wrapped(new Some(s)) = shape(s), s != PAIR
        rel wrapped(if b then Nothing() else new Some(Flag(b, c))) = shape(Flag(b, c))
        rel unwrapped(s) = wrapped(Some(s))
        rel missing() = not wrapped(Some(Square(_)))
        rel unnamed() = not wrapped(Some(Named("b", PAIR)))
        rel has(x) = shape(s), (case s is Named(x, _) and not case s is Named("b", _))
        """
    )
    unit, square = term("Circle", 1.0), term("Square", 2.0)
    pair, twin = term("Group", unit, square), term("Group", unit, unit)
    named, flag = term("Named", "a", pair), term("Flag", True, "c")
    shapes = {unit, pair, named, flag, twin}
    assert found["area"] == {(unit, 3.0), (square, 4.0), (pair, 7.0), (named, 7.0), (twin, 6.0)}
    assert found["twin"] == {(twin,)}
    assert found["units"] == {(pair,), (named,), (twin,)}
    assert found["by_equation"] == {(1.0,)}
    assert found["other"] == {(s,) for s in shapes - {unit}}
    assert found["flags"] == {(True, "c")}
    assert found["no_area"] == {(flag,)}
    assert found["small"] == {(unit,)}
    assert found["every"] == {()}
    assert found["number"] == {(2,)}
    assert found["largest"] == {(pair,), (named,)}
    assert found["wrapped"] == {(term("Some", s),) for s in shapes - {pair}} | {(term("Nothing"),)}
    assert found["unwrapped"] == {(s,) for s in shapes - {pair}}
    assert found["missing"] == found["unnamed"] == {()}
    assert found["has"] == {("a",)}


def test_mutually_recursive_types_and_the_type_of_all_terms():
    found = run(
        """
        type Forest = None() | Trees(Rose, Forest)
        type Rose = Flower() | Rose(i32, Forest)
        type anything(Entity)
        const F = Trees(Rose(1, None()), Trees(Rose(2, Trees(Flower(), None())), None()))
        rel anything = {F, Flower()}
        rel anything(f) = anything(Trees(_, f))
        rel anything(r) = anything(Trees(r, _))
        rel anything(f) = anything(e), case e is Rose(_, f)
        rel count_of(n) = n := count(e: anything(e))
        rel number(x) = anything(e), case e is Rose(x, _)
        rel none(e) = anything(e), e == None()
        """
    )
    assert found["number"] == {(1,), (2,)}
    assert found["count_of"] == {(7,)}
    assert found["none"] == {(term("None"),)}


def test_terms_that_were_never_made_do_not_match():
    text = TREE + "rel p(t) = case t is Node(_, _, _)\nrel q(t) = case t is Leaf()\nrel r(Node(1, t, t)) = q(t)"
    found = run(text, {"tree": [node(3)]})
    assert found["p"] == {(node(3),)}
    assert found["q"] == {(LEAF,)}
    assert found["r"] == set()
    assert run(text)["q"] == set()


def test_a_term_that_a_query_asks_for_is_there():
    found = run(
        "type List = Cons(i32, List) | Nil()\nrel total(Nil(), 0)\nrel total(Cons(x, l), x + s) = total(l, s)\n"
        "query total(Cons(5, Cons(6, Nil())), s)\nquery total(Cons(x, Nil()), _)"
    )
    short = term("Cons", 6, term("Nil"))
    assert found["total(Cons(5, Cons(6, Nil())), s)"] == {(term("Cons", 5, short), 11)}
    assert found["total(Cons(x, Nil()), _)"] == {(short, 6)}


def test_only_derived_terms_are_there():
    """A term that a body makes and drops is not there, in whatever order the body is evaluated."""
    found = run(
        """
        type T = A(i32) | B(i32)
        rel q = {1, 2, 3}
        rel seen = {A(1)}
        rel p(x) = q(x), t == new A(x), seen(t)
        rel other(x) = q(x), t == new B(x), not seen(t)
        rel a(x) = case _ is A(x)
        rel b(x) = case _ is B(x)
        """
    )
    assert found["p"] == {(1,)}
    assert found["other"] == {(1,), (2,), (3,)}
    assert found["a"] == {(1,)}
    assert found["b"] == set()


@settings(max_examples=8, deadline=None)
@given(st.lists(trees, min_size=1, max_size=5, unique=True))
def test_the_order_of_terms(given_trees):
    found = run(
        TREE
        + """
        rel below(t, u) = tree(t), tree(u), t < u
        rel above(t, u) = tree(t), tree(u), t >= u
        rel least(t) = t := min(t: tree(t))
        rel most(t) = t := max(t: tree(t))
        rel sorted(i, t) = (i, t) := sort<asc>(t: tree(t))
        """,
        {"tree": given_trees},
    )
    pairs = set(itertools.product(given_trees, repeat=2))
    assert found["below"] == {(t, u) for t, u in pairs if t < u}
    assert found["above"] == {(t, u) for t, u in pairs if t >= u}
    assert found["least"] == {(min(given_trees),)}
    assert found["most"] == {(max(given_trees),)}
    assert found["sorted"] == set(enumerate(sorted(given_trees)))
    program = dv.Program("type T = A(f32, String) | B(T, bool) | C(u64, char, T)\ntype t(T)")
    some = [
        term("A", x, y) for x in (-1.5, 0.0, -0.0, 2.5) for y in ("", "b", "a")
    ]  # fmt: skip
    some += [term("B", a, b) for a in some[:5] for b in (True, False)]
    some += [term("C", n, c, a) for n in (2**64 - 1, 3) for c in "xa" for a in some[::6]]
    view = program.run({"t": some})["t"]
    assert [t for (t,) in view] == sorted(set(some))


@settings(max_examples=10, deadline=None)
@given(naive_terms.programs(), naive_terms.fact_sets())
def test_probabilities_of_random_programs_agree_with_all_worlds(program, facts):
    rules, signatures = program
    chances = itertools.cycle([0.5, 0.25, 0.75])
    independent = [(name, row, next(chances)) for name, rows in facts.items() for row in rows[:3]]
    # A term that is there in some world is there in all.
    there, size = set(), -1
    while len(there) > size:
        size = len(there)
        models = [naive_terms.least_model(rules, given, signatures, there) for _, given in worlds(independent)]
        there = there.union(*(terms for _, terms in models))
    wanted = probabilities(independent, (), lambda given: naive_terms.least_model(rules, given, signatures, there)[0])
    tagged = {name: [] for name in facts}
    for name, row, p in independent:
        tagged[name].append((p, tuple(map(entity, row))))
    found = dv.Program(naive_terms.text_of(rules, signatures)).run(tagged, provenance="exact")
    for name in signatures:
        expected = {tuple(map(entity, row)): p for (relation, row), p in wanted.items() if relation == name}
        assert dict(found[name].items()) == pytest.approx(expected), name


def test_texts_and_terms():
    program = dv.Program(
        """
        type Tree = Leaf() | Node(i32, Tree)
        type List = Nil() | Cons(String, List)
        type word(String)
        rel parsed(w, $parse_entity(w)) = word(w)
        rel tree(w, w as Tree) = word(w)
        rel text(t as String) = parsed(_, t)
        rel narrowed(t as List) = parsed(_, t)
        rel number(x) = case _ is Node(x, _)
        rel hashed(t, $hash(t, 1)) = parsed(_, t)
        rel shown($format("<{}>", t)) = tree(_, t)
        """
    )
    words = ["Node(3, Node(-4, Leaf()))", 'Cons("a, (b)", Nil())', "Leaf( )", "Leaf", "Nodes(1)", "Node(1)", "", "3"]
    found = program.run({"word": words})
    t, c, leaf = term("Node", 3, term("Node", -4, LEAF)), term("Cons", "a, (b)", term("Nil")), LEAF
    assert set(found["parsed"]) == {(words[0], t), (words[1], c), (words[2], leaf)}
    assert set(found["tree"]) == {(words[0], t), (words[2], leaf)}
    assert set(found["text"]) == {(str(t),), (str(c),), (str(leaf),)}
    assert set(found["narrowed"]) == {(c,)}
    assert set(found["number"]) == {(3,), (-4,)}
    assert set(found["shown"]) == {(f"<{t}>",), (f"<{leaf}>",)}

    def identity(e):
        fields = [
            identity(f)
            if isinstance(f, Entity)
            else struct.pack("<i", f)
            if isinstance(f, int)
            else f.encode() + b"\xff"
            for f in e.fields
        ]
        return b"entity\xff" + struct.pack("<Q", siphash(e.functor.encode() + b"\xff" + b"".join(fields)))

    one = struct.pack("<i", 1)
    assert set(found["hashed"]) == {(e, siphash(struct.pack("<Q", 2) + identity(e) + one)) for e in (t, c, leaf)}


@examples(15, 30, naive_terms.programs(), naive_terms.fact_sets())
def test_random_programs_agree_with_the_naive_evaluator(program, facts):
    rules, signatures = program
    model, terms = naive_terms.least_model(rules, facts, signatures)
    text = naive_terms.text_of(rules, signatures) + "\nrel node(t) = case t is Node(_, _, _)"
    found = run(text, {name: [tuple(map(entity, row)) for row in rows] for name, rows in facts.items()})
    for name in signatures:
        assert found[name] == {tuple(map(entity, row)) for row in model[name]}, name
    assert found["node"] == {(entity(t),) for t in terms if t[0] == "Node"}


def test_functions_of_terms():
    @dv.datalog.function(name="depth_of_term")
    def depth(t: Entity) -> int:
        return t.height

    @dv.datalog.function(name="twice_of_term")
    def twice(t: Entity) -> Entity:
        return Entity("Node", 0, t, t) if t.height < 2 else None

    try:
        program = dv.Program(
            TREE + "rel depth(t, d) = tree(t), d == $depth_of_term(t)\nrel twice($twice_of_term(t)) = "
            "tree(t)\nrel number(t) = case t is Node(0, _, _)"
        )
        found = program.run({"tree": [LEAF, node(1, node(2))]})
        assert set(found["depth"]) == {(LEAF, 0), (node(1, node(2)), 2)}
        assert set(found["twice"]) == set(found["number"]) == {(node(0),)}
    finally:
        for name in ("depth_of_term", "twice_of_term"):
            FUNCTIONS.remove(name)


ADDED = """
type Expr = Const(i32) | Add(Expr, Expr)
type input(e: Expr)
rel part(e) = input(e)
rel {part(a), part(b)} = part(e), case e is Add(a, b)
rel simple(e, e) = part(e), case e is Const(_)
rel simple(e, new Const(x + y)) = part(e), case e is Add(a, b), simple(a, Const(x)), simple(b, Const(y))
rel number(x) = case _ is Const(x)
rel n(k) = k := count(x: number(x))
"""


@pytest.mark.parametrize("provenance", ["unit", "exact", "minmaxprob", "addmultprob", "topkproofs", "counting"])
def test_terms_are_added_to_finished_databases(provenance):
    program = dv.Program(ADDED)
    a, b = "Add(Const(1), Const(2))", "Add(Const(3), Add(Const(4), Const(5)))"
    found = program.run({"input": [a]}, provenance=provenance, keep=True)
    branch = found.fork()
    found.add({"input": [b]})
    # The terms are there already, and no event.
    found.add({"input": ["Add(Const(2), Const(1))", "Const(1)"]})
    whole = program.run({"input": [a, b, "Add(Const(2), Const(1))", "Const(1)"]}, provenance=provenance)
    for name in whole:
        assert dict(found[name].items()) == dict(whole[name].items()), name
    assert set(branch["number"]) == {(1,), (2,), (3,)}
    branch.add({"input": ["Const(90)"]})
    assert set(branch["number"]) == {(1,), (2,), (3,), (90,)}
    assert (90,) not in found["number"]


def test_terms_are_made_above_aggregates_and_negations_of_what_takes_them_apart():
    found = run(
        TREE
        + """
        rel leftmost(t, x) = tree(t), case t is Node(x, Leaf(), _)
        rel leftmost(t, x) = tree(t), case t is Node(_, Node(x, Leaf(), _), _)
        rel number(n) = n := count(t: leftmost(t, _))
        rel summary(new Node(n as i32, t, t)) = number(n), tree(t), not leftmost(t, 1)
        rel bare(t) = tree(t), not case t is Node(_, _, Node(_, _, _))
        rel again(new Node(0, t, new Leaf())) = bare(t)
        rel roots(x) = case _ is Node(x, _, _)
        """,
        {"tree": [node(1), node(2, node(3)), LEAF]},
    )
    assert found["leftmost"] == {(node(1), 1), (node(2, node(3)), 3)}
    made = {node(2, t, t) for t in (node(2, node(3)), LEAF)}
    assert found["summary"] == {(t,) for t in made}
    assert found["bare"] == {(node(1),), (node(2, node(3)),), (LEAF,)}
    assert found["roots"] == {(0,), (1,), (2,), (3,)}


def test_many_terms():
    """So many that tables are built in bulk, and stores run as kernels."""
    program = dv.Program(
        "type T = A(i32) | B(T, i32)\ntype q(i32)\nrel p(new B(new A(x % 5000), x)) = q(x)\n"
        "rel r(x, y) = p(B(A(x), y))\nrel n(x, k) = k := count(y: r(x, y))\nquery p\nquery r\nquery n"
    )
    found = program.run({"q": range(12000)})
    assert set(found["r"]) == {(x % 5000, x) for x in range(12000)}
    assert set(found["n"]) == {(x, 3 if x < 2000 else 2) for x in range(5000)}
    assert set(found["p"]) == {(term("B", term("A", x % 5000), x),) for x in range(12000)}
    facts = {"q": [(0.25 if x % 2 else 0.5, (x,)) for x in range(12000)]}
    for provenance in ("minmaxprob", "addmultprob", "exact"):
        tagged = program.run(facts, provenance=provenance)["r"]
        assert dict(tagged.items()) == {(x % 5000, x): 0.25 if x % 2 else 0.5 for x in range(12000)}
    assert dict(program.run(facts, provenance="minmaxprob")["n"].items())[0, 1] == 0.5


def test_recursion_that_makes_ever_more_terms_meets_limits():
    program = dv.Program("type N = Zero() | Next(N)\nrel n(Zero())\nrel n(new Next(x)) = n(x)")
    assert len(program.run(iteration_limit=5)["n"]) == 6
    for limit in ({"round_limit": 50}, {"tuple_limit": 500}, {"time_limit": 0.5}):
        with pytest.raises(dv.DerivableError, match="n"):
            program.run(**limit)


def test_deep_terms_in_programs():
    deep = str(list_of(300))
    found = dv.Program(
        LIST
        + f"const X = {deep}\nrel list = {{{deep}}}\nrel total(Nil(), 0)\nrel total(Cons(x, l), x + s) = total(l, s)\n"
        f"rel same(s) = list(X), total(X, s)\nquery same\nquery list\nquery total({deep}, s)"
    ).run()
    assert set(found["same"]) == {(300 * 299 // 2,)}
    assert set(found["list"]) == {(list_of(300),)}
    assert set(found[f"total({deep}, s)"]) == {(list_of(300), 300 * 299 // 2)}
    for wrong, message in (("Cons(99, 1, ", "has 3 fields for 2"), ("Con(99, ", "did you mean `Cons`")):
        with pytest.raises(dv.DerivableError, match=message):
            dv.Program(LIST + "rel list = {" + deep.replace("Cons(99, ", wrong) + "}")
    with pytest.raises(dv.DerivableError, match='expected i32, found "a"'):
        dv.Program(LIST + "rel list = {" + deep.replace("Cons(99, ", 'Cons("a", ') + "}")


def test_terms_with_dates():
    utc = dt.UTC
    found = run(
        """
        type Event = At(DateTime, String) | Lasts(Duration, Event) | None()
        type event(e: Event)
        rel event = {At(t"2024-01-01", "x"), Lasts(d"1y5d", At(t"2023-05-01T10:00:00Z", "y")), Lasts(d"3h", None())}
        rel time(t) = event(At(t, _))
        rel made(new Lasts(d, new At(t, "n"))) = event(Lasts(d, _)), time(t)
        rel first(e) = e := min(e: event(e))
        query time
        query made
        query first
        """
    )
    new_year, hours = dt.datetime(2024, 1, 1), dt.timedelta(hours=3)
    assert term("Lasts", hours, term("At", new_year.replace(tzinfo=utc), "n")) in {e for (e,) in found["made"]}
    assert found["first"] == {(term("At", new_year, "x"),)}
    program = dv.Program(
        "type Event = At(DateTime) | Lasts(Duration)\ntype e(Event)\nrel same(e as String as Event) = e(e)"
    )
    events = [
        term("At", new_year),
        term("Lasts", hours),
        term("Lasts", dt.timedelta(days=-1)),
        term("At", dt.datetime.max),
    ]
    found = program.run({"e": events})
    assert [e for (e,) in found["e"]] == sorted(events)
    assert set(found["same"]) == set(found["e"])


def test_texts_that_read_as_durations_are_texts():
    text = """
        type Word = Word(String) | No()
        const X = Word("1")
        rel w = {X, Word("10d"), Word("9d")}
        rel t(s) = w(Word(s))
        rel first(x) = x := min(x: w(x))
    """
    db = dv.Program(text).run()
    assert set(db["t"]) == {("1",), ("10d",), ("9d",)}
    assert db["w"].columns[0].tolist()[0].fields == ("1",)
    assert sorted(Entity("Word", s) for s in ("9d", "10d")) == [Entity("Word", "10d"), Entity("Word", "9d")]


# Python values


def test_terms_are_values():
    t = node(1, node(2), LEAF)
    assert str(t) == repr(t) == "Node(1, Node(2, Leaf(), Leaf()), Leaf())"
    assert t == node(1, node(2), LEAF)
    assert hash(t) == hash(node(1, node(2), LEAF))
    assert t != node(1, LEAF, node(2))
    assert t != "Node"
    assert t != (1,)
    assert pickle.loads(pickle.dumps(t)) == t
    assert copy.copy(t) is t
    assert copy.deepcopy([t])[0] is t
    with pytest.raises(AttributeError):
        t.functor = "Leaf"
    with pytest.raises(dv.DerivableError, match="field 1 of Node is a list"):
        term("Node", [1])
    with pytest.raises(dv.DerivableError, match="identifier"):
        term("No de")
    match t:
        case Entity("Node", (x, Entity("Node", (y, *_)), _)):
            assert (x, y) == (1, 2)
    assert str(term("A", 'say "hi"\n', True, 0.5)) == 'A("say \\"hi\\"\\n", true, 0.5)'


@settings(max_examples=60, deadline=None)
@given(st.lists(trees, min_size=2, max_size=6))
def test_terms_are_ordered_by_height_functor_and_fields(given_trees):
    def key(t):
        return t.height, t.functor, tuple((1, key(f)) if isinstance(f, Entity) else (0, f) for f in t.fields)

    assert [key(t) for t in sorted(given_trees)] == sorted(map(key, given_trees))
    for a, b in itertools.product(given_trees, repeat=2):
        assert [a == b, a < b, a <= b, a > b, a >= b] == [
            key(a) == key(b), key(a) < key(b), key(a) <= key(b), key(a) > key(b), key(a) >= key(b)
        ]  # fmt: skip
    for t in given_trees:
        assert pickle.loads(pickle.dumps(t)) == t


def list_of(n):
    found = term("Nil")
    for i in range(n):
        found = term("Cons", i, found)
    return found


LIST = "type List = Cons(i32, List) | Nil()\ntype list(List)\n"


def test_deep_terms():
    deep, other = list_of(1500), list_of(1500)
    assert deep == other
    assert not deep < other
    assert hash(deep) == hash(other)
    assert deep < list_of(1501)
    assert pickle.loads(pickle.dumps(deep)) == deep
    program = dv.Program(
        LIST + "rel total(l, 0) = case l is Nil()\nrel total(l, x + s) = case l is Cons(x, t), total(t, s)\n"
        "rel answer(s) = list(l), total(l, s)\nquery answer\nquery list"
    )
    for given_list in (deep, str(deep)):
        found = program.run({"list": [given_list]})
        assert set(found["answer"]) == {(1500 * 1499 // 2,)}
        assert set(found["list"]) == {(deep,)}
        assert deep in found["list"]
        assert str(deep) in found["list"]
        assert list_of(3) not in found["list"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (term("Nope"), "row 1, column 0: unknown constructor `Nope`"),
        (term("Cons", 1), "row 1, column 0: `Cons\\(1\\)` has 1 fields for 2"),
        (term("Cons", 1, 2), "field 2 of `Cons\\(1, 2\\)`: expected List, found 2"),
        (term("Cons", "a", term("Nil")), "field 1 of `Cons\\(\"a\", Nil\\(\\)\\)`: expected i32, found \"a\""),
        (term("Cons", 2**40, term("Nil")), "field 1 of .*: expected i32"),
        (term("Cons", 1, term("Leaf")), "`Leaf\\(\\)` is Tree, expected List"),
        (term("Leaf"), "`Leaf\\(\\)` is Tree, expected List"),
        ("Cons(1, Nil)", "expected `\\(` after `Nil`"),
        ("Cons(1, Nil()", "expected `,` between the fields of `Cons`"),
        ("Cons(1, Nil(),)", "expected a field after `,`"),
        ("Cons(1, Nil()) Nil()", "expected the end of the term"),
        ("Cno(1, Nil())", "unknown constructor `Cno`"),
        ("", "expected a term, found the end"),
        (3, "expected List, found 3"),
    ],
)  # fmt: skip
def test_facts_that_are_no_terms(value, message):
    program = dv.Program(LIST + "type Tree = Leaf() | Node(i32, Tree)")
    with pytest.raises(dv.DerivableError, match=message):
        program.run({"list": [term("Nil"), value]})


def test_no_data_types_no_terms():
    with pytest.raises(dv.DerivableError, match="the program has no data types"):
        dv.Program("rel q(x) = p(x)").run({"p": [term("Leaf")]})


def test_terms_are_shown_as_terms():
    pytest.importorskip("pandas")
    program = dv.Program(LIST + "type named(name: String, l: List)\nquery list\nquery named")
    found = program.run({"list": [list_of(1), term("Nil")], "named": {("a", list_of(2)): 0.5}})
    assert str(found) == 'list: {1::(Nil()), 1::(Cons(0, Nil()))}\nnamed: {0.5::("a", Cons(1, Cons(0, Nil())))}'
    assert list(found["list"]) == [(term("Nil"),), (list_of(1),)]
    assert found["named"].to_pandas()["l"].tolist() == [list_of(2)]
    assert found["named"].to_arrow()["l"].to_pylist() == ["Cons(1, Cons(0, Nil()))"]
    assert "Cons(0, Nil())" in found["list"]._repr_html_()


def test_facts_in_every_form():
    program = dv.Program(LIST + "type named(name: String, l: List)\nrel both(n, x) = named(n, Cons(x, _))")
    for facts in (
        [("a", list_of(1)), ("b", "Nil()")],
        {"name": ["a", "b"], "l": [list_of(1), "Nil()"]},
        iter([("a", "Cons(0, Nil())"), ("b", term("Nil"))]),
    ):
        assert set(program.run({"named": facts})["both"]) == {("a", 0)}
    choice = dv.categorical([("a", list_of(1)), ("b", list_of(2))], [0.25, 0.5])
    assert dict(program.run({"named": choice})["both"].items()) == {("a", 0): 0.25, ("b", 1): 0.5}


def test_random_functions_of_random_terms():
    """Programs of random patterns and constructions against the same in Python."""
    seeded = random.Random(7)
    for _ in range(15):
        left = _random_pattern(seeded, 3, itertools.count())
        names = [w for w in left.replace("(", " ").replace(")", " ").replace(",", " ").split() if w[0] in "nt"]
        right = _random_construction(seeded, 3, names)
        inputs = list({_random_tree(seeded, 3) for _ in range(6)})
        text = TREE + f"rel f(t, {right}) = tree(t), case t is {left}\nrel g(u) = f(_, u), not case u is {left}\n"
        found = run(text + "rel h(x) = case _ is Node(x, _, _)", {"tree": inputs}, machine=False)
        images = {(t, _built(right, env)) for t in inputs if (env := _matched(left, t)) is not None}
        assert found["f"] == images, text
        assert found["g"] == {(u,) for _, u in images if _matched(left, u) is None}
        there = set().union(*map(parts, inputs), *(parts(u) for _, u in images))
        assert found["h"] == {(t.fields[0],) for t in there if t.functor == "Node"}


def _random_pattern(seeded, depth, numbers):
    kind = seeded.randrange(4) if depth else 3
    if kind == 0:
        return "Leaf()"
    if kind == 3:
        return seeded.choice(["_", f"t{next(numbers)}"]) if depth < 3 else _random_pattern(seeded, depth, numbers)
    left, right = (_random_pattern(seeded, depth - 1, numbers) for _ in range(2))
    return f"Node({seeded.choice(['_', '1', f'n{next(numbers)}'])}, {left}, {right})"


def _random_construction(seeded, depth, names):
    if depth and seeded.random() < 0.6:
        number = seeded.choice([*(n for n in names if n[0] == "n"), "1", "2"])
        left, right = (_random_construction(seeded, depth - 1, names) for _ in range(2))
        return f"new Node({number}, {left}, {right})"
    return seeded.choice([*(n for n in names if n[0] == "t"), "new Leaf()"])


def _random_tree(seeded, depth):
    if not depth or seeded.random() < 0.3:
        return LEAF
    return node(seeded.randrange(3), _random_tree(seeded, depth - 1), _random_tree(seeded, depth - 1))


def _split(text):
    """The functor and the fields of `Node(a, Node(...), c)`."""
    functor, _, rest = text.partition("(")
    fields, depth = [""], 0
    for letter in rest[:-1]:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            fields.append("")
        else:
            fields[-1] += letter
    return functor, [f.strip() for f in fields if f.strip()]


def _matched(text, value):
    if "(" not in text:
        if text == "_":
            return {}
        return {text: value} if text[0] in "nt" else {} if value == int(text) else None
    functor, fields = _split(text)
    if not isinstance(value, Entity) or value.functor != functor:
        return None
    found = {}
    for field, part in zip(fields, value.fields):
        inner = _matched(field, part)
        if inner is None:
            return None
        found |= inner
    return found


def _built(text, env):
    text = text.removeprefix("new ")
    if "(" not in text:
        return env[text] if text in env else int(text)
    functor, fields = _split(text)
    return Entity(functor, *(_built(f, env) for f in fields))


def test_terms_that_bodies_get_from_functions():
    @dv.datalog.predicate
    def test_readings(text: str) -> Iterator[tuple[float, tuple[Entity]]]:
        yield from ((0.5, (part,)) for part in text.split(";"))

    program = dv.Program(
        """
        type Tree = Leaf() | Node(i32, Tree)
        type word(i32, String), wanted(i32)
        rel size(t, 0) = case t is Leaf()
        rel size(t, n + 1) = case t is Node(_, rest), size(rest, n)
        rel parsed(i, n) = wanted(i), word(i, w), t == $parse_entity(w), size(t, n), not hidden(i)
        rel hidden(i) = word(i, w), n == $string_length(w), n > 40
        rel read(i, n) = word(i, w), test_readings(w, t), size(t, n)
        rel kept(t) = word(_, w), test_readings(w, t)
        """
    )
    words = [(1, "Node(3, Node(-4, Leaf()))"), (2, "Leaf();Node(1, Leaf())"), (3, "Leaf()"), (4, "Leaf( ) ;Bush()")]
    facts = {"word": [*words, (5, "Node(1000000000, Node(1000000000, Leaf()))")], "wanted": [1, 2, 3, 5]}
    found = program.run(facts)
    assert set(found["parsed"]) == {(1, 2), (3, 0)}
    # A term is there for certain; the reading of the text is what is random.
    assert dict(found["read"].items()) == dict.fromkeys(((1, 2), (2, 0), (2, 1), (3, 0), (4, 0), (5, 2)), 0.5)
    assert dict(found["size"].items()) == dict.fromkeys(found["size"], 1.0)
    # Nothing is there that no text says.
    assert {t for t, _ in found["size"]} <= {part for (t,) in found["kept"] for part in subterms([t])}
    assert list(program.run({"word": []})["size"]) == []


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda database: pickle.loads(pickle.dumps(database))])
def test_copies_of_a_result_have_its_terms(copied):
    program = dv.Program(
        "type Tree = Leaf(String) | Node(Tree, i32)\ntype s(String)\nrel u(new Node(new Leaf(x), 3)) = s(x)"
    )
    database = program.run({"s": [("a",), ("b",)]})
    other = copied(database)
    del database
    assert set(map(str, itertools.chain(*other["u"]))) == {'Node(Leaf("a"), 3)', 'Node(Leaf("b"), 3)'}
    assert set(other["u"]) == set(program.run({"s": [("a",), ("b",)]})["u"])


def test_what_a_body_makes_is_taken_apart_in_it():
    """No relation has these terms."""
    found = run(
        """
        type List = Nil() | Cons(i32, List)
        rel n = {1, 2}
        rel part(y) = n(x) and t == new Cons(x, new Nil()) and case t is Cons(y, Nil())
        rel deep(y) = n(x) and s == new Cons(x, new Nil()) and t == new Cons(7, s) and case t is Cons(_, r)
            and case r is Cons(y, _)
        rel picked(y) = n(x) and t == (if x == 1 then new Cons(x, new Nil()) else new Nil()) and u == t
            and case u is Cons(y, _)
        rel none(y) = n(x) and t == new Nil() and case t is Cons(y, _)
        rel same(x) = n(x) and n(y) and t == new Cons(x, new Cons(y, new Nil())) and case t is Cons(a, Cons(a, _))
        """
    )
    assert found["part"] == found["deep"] == {(1,), (2,)}
    assert found["picked"] == {(1,)}
    assert found["none"] == set()
    assert found["same"] == {(1,), (2,)}


def test_terms_that_a_rule_makes_are_there_where_no_output_needs_the_rule():
    program = dv.Program(
        """
        type List = Nil() | Cons(i32, List)
        rel n = {1, 2}
        rel made(new Cons(x, new Cons(x, new Nil()))) = n(x)
        rel size = {(Nil(), 0)}
        rel size(Cons(_, rest), k + 1) = size(rest, k)
        rel sizes(k) = n(x) and size(new Cons(x, new Cons(x, new Nil())), k)
        query sizes
        """
    )
    assert set(program.run()["sizes"]) == {(2,)}
