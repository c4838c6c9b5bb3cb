"""The core rules' expressions, as scalar expressions over columns, against plain Python numbers."""

import math

import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog.scalar_oracle import NoValueError, evaluate
from derivable.algebra import expr
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.interpret import _NoValueError
from derivable.datalog.ram.interpret import evaluate as evaluate_row
from derivable.datalog.rules.nodes import variables
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Apply, Const, Var
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import BOOL, TYPES, show_column, word_of
from drawn import examples

TEXTS = ["", "a", "ab", "12", "-7", "300", "1.5", "true", "nan", "inf", "1e400", "\u00e9"]
NUMBERS = [t for t in TYPES.values() if t.is_number]
INTEGERS = [t for t in TYPES.values() if t.is_integer]
# Dates, durations and tensors are in test_datetimes and test_tensors.
SCALARS = [t for t in TYPES.values() if t.family not in ("datetime", "duration", "tensor")]


def edges(t):
    if t.is_integer:
        low, high = t.limits
        return sorted({low, low + 1, high - 1, high, high // 2, 0, 1, 2, 7, 97} | ({-1, -2, -7} if low else set()))
    if t.family == "float":
        values = [
            0.0,
            1.0,
            -1.0,
            0.5,
            -2.75,
            3.0,
            1e-30,
            200.5,
            2.0**31,
            2.0**63,
            -(2.0**63),
            1e30,
            math.inf,
            -math.inf,
        ]
        return [float(np.float32(v)) if t.bits == 32 else v for v in values]
    return {"bool": [False, True], "char": ["a", "0", "9", "\x00", "\U0010ffff"], "text": TEXTS}[t.family]


def values(t):
    if t.is_integer:
        return st.sampled_from(edges(t)) | st.integers(*t.limits)
    if t.family == "float":
        # Adding zero turns -0.0 into 0.0: a column holds no -0.0.
        return st.sampled_from(edges(t)) | st.floats(width=t.bits, allow_nan=False).map(lambda value: value + 0.0)
    return st.sampled_from(edges(t))


def castable(t):
    """The types with casts to `t`."""
    return [s for s in SCALARS if not (s.family == "float" and t.family == "char")]


@st.composite
def expressions(draw, t, depth):
    def part(of):
        return draw(expressions(of, depth - 1))

    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.booleans()):
            return Const(draw(values(t)), t)
        return Var(f"{t.name.lower()}_{draw(st.integers(0, 1))}", t)
    kinds = ["if", "cast"]
    kinds += ["binary"] * 3 + ["neg"] if t.is_number else []
    kinds += ["compare", "compare", "logic", "!"] if t.family == "bool" else []
    kinds += ["binary"] if t.family == "text" else []
    match draw(st.sampled_from(kinds)):
        case "binary":
            exact = ["+!", "-!"] if t.is_integer else []
            operator = draw(st.sampled_from([*"+-*/%", *exact])) if t.is_number else "+"
            return Apply(operator, (part(t), part(t)), t)
        case "compare":
            of = draw(st.sampled_from(SCALARS))
            operator = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
            return Apply(operator, (part(of), part(of)), BOOL)
        case "logic":
            return Apply(draw(st.sampled_from(["&&", "||", "^"])), (part(t), part(t)), t)
        case "if":
            return Apply("if", (part(BOOL), part(t), part(t)), t)
        case "cast":
            return Apply("cast", (part(draw(st.sampled_from(castable(t)))),), t)
        case unary:
            return Apply(unary, (part(t),), t)


def oracle(e, row):
    try:
        return evaluate(e, row)
    except NoValueError:
        return None


def over_columns(e, rows):
    """The values of an expression row by row, None where there is none."""
    symbols = SymbolTable()
    types = {v.name: v.type for v in variables(e)}
    columns = {name: np.array([word_of(row[name], t, symbols) for row in rows], np.int64) for name, t in types.items()}
    words, valid = arithmetic.evaluate(e, columns, len(rows), symbols)
    if e.type.family == "bool":
        mask = arithmetic.condition(e, columns, len(rows), symbols)
        assert (mask == ((words != 0) & (True if valid is None else valid))).all()
    there = np.ones(len(rows), bool) if valid is None else valid
    shown = iter(show_column(words[there], e.type, symbols).tolist())
    return [next(shown) if here else None for here in there]


@examples(150, 300, st.data())
def test_random_expressions_of_all_types(data):
    t = data.draw(st.sampled_from(SCALARS))
    e = data.draw(expressions(t, 3))
    types = {v.name: v.type for v in variables(e)}
    rows = data.draw(
        st.lists(st.fixed_dictionaries({n: values(of) for n, of in types.items()}), min_size=1, max_size=9)
    )
    with under(cache_rows=4):
        got = over_columns(e, rows)
    expected = [oracle(e, row) for row in rows]
    assert got == expected
    for row, value in zip(rows[:2], expected):
        try:
            assert evaluate_row(e, row) == value
        except _NoValueError:
            assert value is None


@pytest.mark.parametrize("t", SCALARS, ids=str)
def test_every_operation_on_all_pairs_of_edge_values(t):
    x, y = Var("x", t), Var("y", t)
    rows = [{"x": a, "y": b} for a in edges(t) for b in edges(t)]
    found = [Apply(operator, (x, y), BOOL) for operator in ("==", "!=", "<", "<=", ">", ">=")]
    if t.is_number:
        found += [Apply(operator, (x, y), t) for operator in "+-*/%"] + [Apply("neg", (x,), t)]
    if t.family == "text":
        found.append(Apply("+", (x, y), t))
    if t.family == "bool":
        found += [Apply(operator, (x, y), t) for operator in ("&&", "||", "^")] + [Apply("!", (x,), t)]
    found += [Apply("cast", (x,), to) for to in SCALARS if t in castable(to)]
    for e in found:
        assert over_columns(e, rows) == [oracle(e, row) for row in rows], e


def test_a_foreign_function_sees_only_values_that_are_there():
    x, text = Var("x", TYPES["f64"]), TYPES["String"]
    quotient = Apply("/", (x, Apply("-", (x, x), x.type)), x.type)
    shown = Apply("+", (Apply("cast", (quotient,), text), Const("!", text)), text)
    rows = [{"x": v} for v in (0.0, 1.0, -2.0, math.inf)]
    assert over_columns(shown, rows) == [None, "inf!", "-inf!", None]


def test_constants_beyond_the_largest_int64():
    wrapped = Apply("cast", (Const(-1, TYPES["i8"]),), TYPES["u64"])
    assert over_columns(wrapped, [{}, {}]) == [2**64 - 1] * 2
    assert over_columns(Apply("cast", (wrapped,), TYPES["String"]), [{}]) == [str(2**64 - 1)]


def test_infinity_as_text():
    assert set(dv.Program("rel p = {1.0} rel r((x / 0.0) as String) = p(x)").run()["r"]) == {("inf",)}


def test_products_with_infinity_are_not_simplified():
    t = TYPES["f64"]
    x, zero = Var("x", t), Const(0.0, t)
    product = Apply("*", (x, zero), t)
    rows = [{"x": 2.0}, {"x": math.inf}]
    assert over_columns(product, rows) == [0.0, None]
    assert over_columns(Apply("==", (product, zero), BOOL), rows) == [True, None]


def test_translation_is_in_the_scalar_table():
    t = TYPES["i8"]
    x, y = Var("x", t), Var("y", t)
    found = arithmetic.translate(Apply("/", (Apply("+", (x, y), t), y), t)).result
    assert str(found.value) == "truncate_divide(saturating_add(x, y), y)"
    a, b = (expr.Argument(k, "int8", name) for k, name in enumerate("xy"))
    compiled = expr.compile_numba((found.value, found.valid), [a, b])
    assert compiled(100, 100) == (1, True)
    assert compiled(100, 0)[1] is False
    assert compiled(-128, -1) == (-128, False)
