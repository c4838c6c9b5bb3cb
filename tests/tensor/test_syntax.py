"""The text of SDQLite: programs come back from their text, and sugar means what it stands for."""

import sys

import pytest
from hypothesis import strategies as st

from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.diagnostics import BindingError, DerivableError, DomainError, TypeMismatchError
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import alpha_equal
from derivable.tensor.language.check import check
from derivable.tensor.language.program import Program
from derivable.tensor.language.syntax import as_type, parse
from derivable.tensor.language.types import BOOL, INT, REAL, Type, array, tensor
from drawn import examples
from tensor.test_errors import TYPES

INPUTS = {
    "A": tensor(2),
    "X": tensor(1),
    "s": REAL,
    "b": BOOL,
    "n": INT,
    "idx": array("int"),
    "val": array("real"),
    "T": tensor(3),
}


@st.composite
def expressions(draw, wanted, scope=None, depth=4):
    """Any well-typed expression of that type, over the whole language."""
    scope = INPUTS if scope is None else scope

    def some(of, inner=scope):
        return draw(expressions(of, inner, depth - 1))

    def names(count):
        return draw(
            st.lists(st.sampled_from(["i", "j", "k", "a", "row", "x'"]), min_size=count, max_size=count, unique=True)
        )

    leaves = [t.Var(name) for name, of in scope.items() if of == wanted]
    if wanted == REAL:
        leaves += [t.Number(draw(st.floats(allow_nan=False))), t.One(), t.Zero()]
    elif wanted == INT:
        leaves.append(t.Number(draw(st.integers(-3, 2**62))))
    elif wanted == BOOL:
        leaves.append(t.Number(draw(st.booleans())))
    else:
        leaves.append(t.Zero())
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(leaves))
    kinds = ["let"]
    if wanted.element == "real":
        kinds += ["sum", "sum", "if", "add", "multiply"]
    if wanted.element == "real" and len(wanted.indices) < 3:
        kinds.append("lookup")
    if wanted.is_scalar:
        kinds += ["apply", "apply", "apply"]
    elif wanted.element == "real":
        kinds.append("singleton")
    if wanted == INT:
        kinds.append("array")
    kind = draw(st.sampled_from(kinds))
    if kind == "let":
        of, (name,) = draw(st.sampled_from([REAL, INT, BOOL, tensor(1)])), names(1)
        return t.Let(name, some(of), some(wanted, {**scope, name: of}))
    if kind == "sum":
        over = draw(st.sampled_from(["tensor", "matrix", "range", "part"]))
        ranges = {
            "tensor": (tensor(1), lambda: some(tensor(1))),
            "matrix": (tensor(2), lambda: some(tensor(2))),
            "range": (array("int"), lambda: t.Range(some(INT), some(INT))),
            "part": (array("int"), lambda: t.SubArray(t.Var("idx"), some(INT), some(INT))),
        }
        of, made = ranges[over]
        (key, value), given_range = names(2), made()
        if draw(st.booleans()):
            return t.Sum("_", value, given_range, some(wanted, {**scope, value: of.inner}))
        return t.Sum(key, value, given_range, some(wanted, {**scope, key: INT, value: of.inner}))
    if kind == "if":
        return t.If(some(BOOL), some(wanted))
    if kind == "add":
        return t.Add(some(wanted), some(wanted))
    if kind == "multiply":
        left = draw(st.integers(0, wanted.order))
        return t.Multiply(some(tensor(left)), some(tensor(wanted.order - left)))
    if kind == "lookup":
        return t.Lookup(some(tensor(wanted.order + 1)), some(INT))
    if kind == "singleton":
        return t.Singleton(some(INT), some(wanted.inner), draw(st.booleans()))
    if kind == "array":
        return t.Lookup(t.Var("idx"), some(INT))
    rules = {
        "real": ("arithmetic", "float", "where", "cast"),
        "int": ("arithmetic", "where"),
        "bool": ("comparison", "logical", "where"),
    }
    operation = draw(
        st.sampled_from(
            [
                name
                for name, row in OPERATIONS.items()
                if row.rule in rules[wanted.element] and name not in ("saturating_cast", "bitcast")
            ]
        )
    )
    rule, arity = OPERATIONS[operation].rule, OPERATIONS[operation].arity
    if rule == "where":
        return t.Apply(operation, (some(BOOL), some(wanted), some(wanted)))
    if rule == "cast":
        return t.Apply(operation, (some(draw(st.sampled_from([REAL, INT]))),))
    of = draw(st.sampled_from([REAL, INT])) if rule == "comparison" else wanted
    return t.Apply(operation, tuple(some(of) for _ in range(arity)))


@examples(40, 100, node=st.sampled_from([REAL, INT, BOOL, tensor(1), tensor(2)]).flatmap(expressions))
def test_programs_come_back_from_their_text(node):
    program = Program(node, INPUTS)
    again = parse(str(program), INPUTS)
    assert alpha_equal(again.node, program.node)
    assert again == program
    assert hash(again) == hash(program)


@examples(40, 100, node=st.sampled_from([REAL, tensor(2)]).flatmap(expressions))
def test_every_part_has_its_place(node):
    text = str(node)
    lines = text.split("\n")
    for part in t.walk(parse(text, INPUTS).node):
        assert part.span is not None
        assert 1 <= part.span.column <= len(lines[part.span.line - 1])
        if isinstance(part, t.Var):
            start = part.span.column - 1
            assert lines[part.span.line - 1][start : start + part.span.length] == part.name


A, B, X, s, n = "A", "B", "X", "s", "n"


@pytest.mark.parametrize(
    ("sugar", "plain"),
    [
        ("let <a, b> = <s, a> in a", "let a = s in let b = a in a"),
        ("sum(<i, j, a> in A) { j, i -> a }", "sum(<i, r> in A) sum(<j, a> in r) { j -> { i -> a } }"),
        ("A(1, 2)", "A(1)(2)"),
        ("(A)(1)", "A(1)"),
        ("(sum(<i, r> in A) r)(2)", "(sum(<i, r> in A) (r))(2)"),
        ("A - B", "A + -1.0 * B"),
        ("-A", "-1.0 * A"),
        ("A / s", "A * (1.0 / s)"),
        ("if c then A else B", "(if c then A) + (if not c then B)"),
        ("s = 1", "s == 1.0"),
        ("s > 1 and c or not c", "(1.0 < s & c) | (not c)"),
        ("s >= 1", "1.0 <= s"),
        ("2 * A", "2.0 * A"),
        ("(1 + 2 * 3) * s", "(1.0 + 2.0 * 3.0) * s"),
        ("where(c, 1, s)", "where(c, 1.0, s)"),
        ("exp(1) ** -2", "exp(1.0) ** -2.0"),
        ("∅ + A", "{} + A"),
        ("s * sum(<i, a> in X) a + s", "s * (sum(<i, a> in X) (a + s))"),
        ("sum(<_, i> in 0:n) { i -> 1 }", "sum(<_, i> in (0:n)) { i -> 1.0 }"),
        ("s # the rest\n /* of\n it */ + s", "s + s"),
        ("let <x',y'>=<s,sum(<i,v> in X) v> in x'*y'", "let x' = s in let y' = (sum(<i, v> in X) v) in x' * y'"),
        ("-s ** 2", "-(s ** 2.0)"),
        ("s ** s ** s", "s ** (s ** s)"),
        ("not s == 1", "not (s == 1.0)"),
        ("s < 1 & c", "(s < 1.0) & c"),
        ("sum(<i, a> in X) if i == n then a", "sum(<i, a> in X) (if (i == n) then a)"),
        ("{ unique(n + 1) -> s }", "{ unique((n + 1)) -> s }"),
    ],
)
def test_sugar(sugar, plain):
    assert alpha_equal(parse(sugar, TYPES).node, parse(plain, TYPES).node)


def test_the_listings_of_the_paper():
    product = parse(
        """
        sum(<i, row> in A) { i ->
          sum(<j, v1> in row)
            sum(<k, v2> in B(j)) { k ->
              v1 * v2 } }""",
        TYPES,
    )
    assert product.type == tensor(2)
    kernel = parse("sum(<i, r> in A) sum(<j, v1> in r) sum(<k, v2> in r) { j -> ((s * v1) * v2) * (X(k)) }", TYPES)
    assert kernel.type == tensor(1)
    csr = parse(
        """
        sum(<_, i> in (0:n)) { unique(i) ->
          sum(<p, j> in idx(pos(i):pos(i+1))) { unique(j) -> val(p) } }""",
        TYPES,
    )
    assert csr.type == tensor(2)
    tangent = parse("sum(<i, a> in Y) let <i', a'> = <0, Y(i)> in X(i) * a' + Y(i) * a", TYPES)
    assert tangent.type == REAL


def test_operators_go_by_the_types():
    assert parse("n + 1 * n", TYPES).node == t.Apply(
        "add", (t.Var("n"), t.Apply("multiply", (t.Number(1), t.Var("n"))))
    )
    assert parse("s + 1 * s", TYPES).node == t.Add(t.Var("s"), t.Multiply(t.Number(1.0), t.Var("s")))
    assert parse("multiply(s, 2)", TYPES).node == t.Apply("multiply", (t.Var("s"), t.Number(2.0)))
    assert parse("7", {}).type == INT


def test_types_of_inputs():
    for of in (REAL, INT, BOOL, tensor(3), array("int"), Type("real", ("int", "dense_int"))):
        assert as_type(str(of)) == of
    assert as_type(2) == tensor(2)
    for wrong in ("matrx", -1, None, "tensor x", "{ int -> }"):
        with pytest.raises(TypeMismatchError, match="the type of `A` is"):
            as_type(wrong, "A")
    for name in ("sum", "exp", "a b", "1x", ""):
        with pytest.raises(BindingError, match="the input"):
            parse("1", {name: 1})
    with pytest.raises(DomainError, match="a program is a text"):
        parse(3)  # type: ignore[arg-type]


@pytest.fixture
def plain_stack():
    """Python's own limit, which other packages raise for the whole process."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("plain_stack")
def test_long_and_deep_programs():
    assert parse(" + ".join(["s"] * 200), TYPES).type == REAL
    for text in (" + ".join(["s"] * 5000), "let t = s in " * 700 + "t"):
        with pytest.raises(DerivableError, match="nested too deep"):
            str(parse(text, TYPES))


def test_check_says_the_same_as_parse():
    program = parse("sum(<i, r> in A) { i -> r(i) }", TYPES)
    assert check(program.node, program.inputs) == program.type == tensor(1)


SIGNS = [
    "<",
    ">",
    "(",
    ")",
    "{",
    "}",
    "->",
    ",",
    ":",
    "=",
    "==",
    "*",
    "/",
    "**",
    "+",
    "-",
    ".",
    "#",
    "/*",
    "*/",
    "&",
    "|",
    "@",
    "!",
    "'",
    "__",
    "1",
    "1e9",
    "1e999",
    "0x1",
    "X",
    "A",
    "exp(",
]
WORDS = ["sum", "let", "in", "if", "then", "else", "not", "or", "true"]
PIECES = (*SIGNS, *WORDS, "9" * 25, "\n", "\t", "\r", "\0", "é", "∑", '"', "\\", "\u2028", "\x0b", "\ud800")
ORIGINALS = (
    "sum(<i, row> in A) { i -> sum(<j, a> in row) a * X(j) }",
    "let x = 2.0 in if x < 3 & true then X(1) else 1.5e3",
    "let <a, b> = <X, 1.0> in { i, j -> exp(a(0)) ** b } + {}",
    "sum(<_, v> in X) where(v < 0, -v, real(1 + 2)) # c\n /* d */",
    "sum(<i, _> in (0:n)) { i -> A(i, i) / s }",
    "sum(<i, x> in idx(3:7)) not (x == 1) or x >= 2 | x != 3",
    "s\nX.c",
)


@examples(
    60,
    5000,
    st.sampled_from(ORIGINALS),
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from((0, 0, 1, 2, 5, 20)), st.sampled_from((*PIECES, *ORIGINALS))),
        max_size=4,
    ),
)
def test_texts_that_were_cut_and_changed(text, changes):
    """They are programs, or errors of ours with a place in the text."""
    report = ""
    for start, length, piece in changes:
        text = text[:start] + piece + text[start + length :]
    try:
        parse(text, TYPES)
    except DerivableError as error:
        report = str(error)
    assert not report or (report.startswith("<program>:") and "error: " in report)
