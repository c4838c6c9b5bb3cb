"""Algebraic data types: programs of the usual kinds against plain Python recursion; all routes agree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.datalog import Entity
from derivable.datalog.desugar import desugar
from derivable.datalog.ram.check import check_ram
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.ram.lower import lower
from derivable.datalog.rules.check import check_rules
from derivable.datalog.rules.creation import with_terms
from derivable.datalog.strata import check_strata, stratify
from derivable.datalog.syntax.parse import parse
from derivable.datalog.syntax.text import syntax_text
from derivable.datalog.types import infer


def run(text, facts=None):
    """The relations of a run as sets, when all routes agree on them."""
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
    for name in found:
        assert set(found[name]) == meaning[name], name
    return {name: set(found[name]) for name in found}


def term(functor, *fields):
    return Entity(functor, *fields)


LEAF = term("Leaf")


def node(x, left=LEAF, right=LEAF):
    return term("Node", x, left, right)


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


@settings(max_examples=20, deadline=None)
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
