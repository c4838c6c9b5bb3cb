"""Passes from SDQLite to SDQLite leave the type, every entry and the pattern as they are."""

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from derivable.algebra import semirings
from derivable.tensor.analysis.anf import to_anf
from derivable.tensor.analysis.sparsity import ATOMS, propagate
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import bound_names
from derivable.tensor.language.check import check
from derivable.tensor.language.guards import guarded
from derivable.tensor.language.interpret import interpret
from derivable.tensor.language.linearity import is_linear
from derivable.tensor.language.types import INT
from derivable.tensor.optimisation.normalise import (
    RULES,
    float_bindings,
    hoist_conditions,
    normalise,
    rewrite,
    scalar_products,
)
from drawn import examples
from tensor.random_programs import INPUTS, SMOOTH, inputs, is_same, programs, with_zeros

REALS = semirings.get("real")
PASSES = {
    "propagate": propagate,
    "to_anf": to_anf,
    "scalar_products": lambda node: scalar_products(node, INPUTS),
    "normalise": lambda node: normalise(node, INPUTS),
}
RULE_SETS = {rule.__name__: (float_bindings, hoist_conditions, rule) for rule in RULES}


def assert_same(before, after, values, semiring=REALS):
    of_before, of_after = check(before, INPUTS), check(after, INPUTS)
    assert of_after == of_before or of_after is None or of_before is None
    found, expected = (interpret(node, values, semiring, is_guarded=True) for node in (after, before))
    assert is_same(expected, found), f"{before}\n~>\n{after}\n{expected}\n{found}"


@pytest.mark.parametrize("name", PASSES)
@examples(35, 100, data=st.data())
def test_passes_keep_meaning_and_pattern(name, data):
    node = data.draw(programs())
    after = PASSES[name](node)
    for _ in range(2):
        assert_same(node, after, data.draw(inputs()))
    assert str(PASSES[name](after)) == str(PASSES[name](PASSES[name](after)))


@pytest.mark.parametrize("name", RULE_SETS)
@examples(20, 60, data=st.data())
def test_every_rule_keeps_meaning_and_pattern(name, data):
    node = data.draw(programs())
    assert_same(node, rewrite(node, INPUTS, RULE_SETS[name]), data.draw(inputs()))


@pytest.mark.parametrize("semiring", ["real", "min_plus"])
@examples(35, 150, data=st.data())
def test_guards_leave_out_what_is_zero(semiring, data):
    record = semirings.get(semiring)
    node = data.draw(programs(functions=SMOOTH if semiring == "real" else ()))
    values = with_zeros(data.draw(inputs()), record.zero)
    expected = interpret(node, values, record)
    for made in (guarded(node, record), guarded(node, None), normalise(guarded(node, record), INPUTS)):
        found = interpret(made, values, record, is_guarded=True)
        assert is_same(expected, found, keeps_zeros=False, zero=record.zero), f"{node}\n~>\n{made}"


X, Y, A = t.Var("X"), t.Var("Y"), t.Var("A")
i, j, k, a, r, v = (t.Var(name) for name in "ijkarv")
TO_ZERO = t.Sum("i", "a", X, t.Singleton(t.Number(0), a))
TWICE = t.Sum("i", "a", X, t.Singleton(i, t.Multiply(a, a)))
EXPONENTIALS = t.Sum("k", "v", X, t.Singleton(k, t.Apply("exp", (v,))))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        # Keys meet, so only what is linear is computed before they do.
        (t.Sum("k", "v", TO_ZERO, t.Multiply(v, v)), "sum(<_, v> in sum(<_, a> in X) { 0 -> a }) v * v"),
        (t.Sum("k", "v", TO_ZERO, t.Multiply(v, t.Var("s"))), "sum(<_, a> in X) a * s"),
        (t.Sum("k", "v", TWICE, t.Multiply(v, v)), "sum(<_, a> in X) let v = a * a in v * v"),
        # Where X has no entry there is none of the exponentials.
        (t.Lookup(EXPONENTIALS, t.Var("n")), "(sum(<k, v> in X) { k -> exp(v) })(n)"),
        (t.Lookup(TWICE, t.Var("n")), "let a = X(n) in a * a"),
        (t.Sum("i", "a", X, t.If(t.Apply("equal", (t.Number(1), i)), t.Multiply(a, a))), "let a = X(1) in a * a"),
        (t.Sum("i", "r", A, t.Sum("j", "a", r, t.If(t.Apply("equal", (i, j)), a))), "sum(<i, r> in A) r(i)"),
        (t.Multiply(X, t.Var("s")), "sum(<i, a> in X) { i -> a * s }"),
        (t.Multiply(X, Y), "sum(<i, a> in X) { i -> sum(<i_1, a_1> in Y) { i_1 -> a * a_1 } }"),
        (t.Multiply(t.Singleton(t.Var("l"), t.One()), t.Var("s")), "{ l -> s }"),
        (t.Lookup(t.Sum("_", "j", t.Range(t.Number(0), t.Var("n")), t.Singleton(j, t.Lookup(X, j))), t.Var("l")),
         "if 0 <= l & l < n then X(l)"),
        # What a loop does not change is computed before it.
        (t.Let("v", t.Multiply(t.Var("s"), t.Var("s")), t.Sum("i", "a", X, t.Multiply(a, v))),
         "let v = s * s in sum(<_, a> in X) a * v"),
    ],
)  # fmt: skip
def test_normal_forms(node, expected):
    assert str(normalise(node, {**INPUTS, "l": INT})) == expected


def test_sizes_of_axes_need_no_bounds():
    node = t.Lookup(t.Sum("_", "j", t.Range(t.Number(0), t.Var("n")), t.Singleton(j, t.Lookup(X, j))), t.Number(7))
    assert str(normalise(node, INPUTS, {"n"})) == "X(7)"


def test_a_normal_form():
    node = t.Sum("i", "a", X, t.Multiply(t.Apply("exp", (t.Multiply(a, t.Lookup(Y, i)),)), t.Lookup(Y, i)))
    found = to_anf(node)
    assert str(found) == ("sum(<i, a> in X) let t = Y(i) in let t_1 = a * t in let t_2 = exp(t_1) in t_2 * t")


@examples(20, 50, node=programs())
def test_operands_are_atoms_and_names_are_unique(node):
    bound = []
    for part in t.walk(to_anf(node)):
        bound += bound_names(part)
        if isinstance(part, t.Sum):
            assert isinstance(part.range, ATOMS)
        elif not isinstance(part, (t.Let, t.If)):
            assert all(isinstance(child, ATOMS) for child in part.children)
    assert len(bound) == len(set(bound))
    assert not set(bound) & set(INPUTS)


@pytest.mark.parametrize("semiring", ["min_plus", "max_plus"])
@examples(35, 100, data=st.data())
def test_passes_keep_meaning_in_other_semirings(semiring, data):
    node = data.draw(programs(functions=()))
    record = semirings.get(semiring)
    values = data.draw(inputs())
    for run in PASSES.values():
        assert_same(node, run(node), values, record)


@pytest.mark.parametrize(("semiring", "is_real"), [("real", True), ("max_plus", False)])
@examples(20, 60, data=st.data())
def test_what_is_linear_is(semiring, is_real, data):
    # A few of many are linear in X.
    drawn = (data.draw(programs(depths=(1, 4))) for _ in range(12))
    found = [node for node in drawn if is_linear(propagate(node), {"X"}, is_real=is_real)]
    assume(found)
    record, values, other = semirings.get(semiring), data.draw(inputs()), data.draw(inputs({"X": INPUTS["X"]}))
    both = interpret(t.Add(X, Y), {"X": values["X"], "Y": other["X"]}, record)
    for node in found:
        left, right, whole = (interpret(node, {**values, "X": x}, record) for x in (values["X"], other["X"], both))
        added = interpret(t.Add(t.Var("l"), t.Var("r")), {"l": left, "r": right}, record)
        assert is_same(added, whole, keeps_zeros=False), str(node)
