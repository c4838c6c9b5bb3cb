"""The language, feature by feature: rows of the reference, each with what it must give."""

import sys

import numpy as np
import pytest

import derivable as dv
from datalog.test_agreement import closure_by_networkx

CASES = [
    ("type in one item", "type a(i32), b(i32) rel a(1) rel b(2)", {"a": {(1,)}, "b": {(2,)}}),
    ("alias", "type Id = usize type p(Id) rel p(3)", {"p": {(3,)}}),
    ("subtype", "type Id <: usize type p(Id) rel p(3)", {"p": {(3,)}}),
    (
        "enum",
        "type Dir = Up | Down | Left = 7 | Right rel d = {Up, Down, Left, Right}",
        {"d": {(0,), (1,), (7,), (8,)}},
    ),
    ("const", 'const A = 1, B: u32 = 2, C = "c" rel p(A, B, C)', {"p": {(1, 2, "c")}}),
    ("fact set", "rel e = {(0, 1), (1, 2)}", {"e": {(0, 1), (1, 2)}}),
    ("unary set", "rel e = {1, 2,}", {"e": {(1,), (2,)}}),
    ("computed fact", "rel r(1 + 2)", {"r": {(3,)}}),
    ("nullary", "rel p(1) rel ok() = p(_)", {"ok": {()}}),
    ("nullary fact", "rel ok()", {"ok": {()}}),
    ("turnstile", "rel p = {1} rel q(x) :- p(x)", {"q": {(1,)}}),
    (
        "and",
        "rel p = {1, 2} rel q = {2, 3} rel r(x) = p(x) and q(x) rel s(x) = p(x) /\\ q(x)",
        {"r": {(2,)}, "s": {(2,)}},
    ),
    (
        "or",
        "rel p = {1} rel q = {2} rel r(x) = p(x) or q(x) rel s(x) = p(x) \\/ q(x)",
        {"r": {(1,), (2,)}, "s": {(1,), (2,)}},
    ),
    ("nested", "rel p = {1, 2} rel q = {2} rel r(x) = p(x), (q(x) or x == 1)", {"r": {(1,), (2,)}}),
    ("not", "rel p = {1, 2} rel q = {2} rel r(x) = p(x), not q(x) rel s(x) = p(x), ~q(x)", {"r": {(1,)}, "s": {(1,)}}),
    ("not or", "rel p = {1, 2, 3} rel q = {2} rel r(x) = p(x), not (q(x) or x == 3)", {"r": {(1,)}}),
    ("wildcard under not", "rel p = {1, 2} rel q = {(2, 5)} rel r(x) = p(x), not q(x, _)", {"r": {(1,)}}),
    ("local variable under not", "rel p = {1, 2} rel q = {(2, 5)} rel r(x) = p(x), not q(x, y)", {"r": {(1,)}}),
    ("implies", "rel a = {1, 2} rel b = {1} rel all() = forall(x: a(x) implies b(x))", {"all": set()}),
    ("forall", "rel p = {1, 2} rel e = {(1, 2)} rel r(x) = p(x), forall(y: e(x, y) => p(y))", {"r": {(1,), (2,)}}),
    ("typed binding", "rel a = {1} rel all() = forall((x: i32): a(x) implies x > 0)", {"all": {()}}),
    ("exists formula", "rel e = {(1, 2)} rel p = {1, 2} rel r(x) = p(x), exists(y: e(x, y))", {"r": {(1,)}}),
    ("conjunctive head", "rel r = {1} rel {p(x), q(x)} = r(x)", {"p": {(1,)}, "q": {(1,)}}),
    ("conjunctive head, and", "rel r = {1} rel p(x) and q(x) = r(x)", {"p": {(1,)}, "q": {(1,)}}),
    (
        "recursion",
        "rel e = {(0, 1), (1, 2)} rel p(x, y) = e(x, y) or (e(x, z) and p(z, y))",
        {"p": {(0, 1), (1, 2), (0, 2)}},
    ),
    (
        "mutual recursion",
        "rel even(0) rel odd(x + 1) = even(x), x < 5 rel even(x + 1) = odd(x), x < 5",
        {"even": {(0,), (2,), (4,)}, "odd": {(1,), (3,), (5,)}},
    ),
    ("arithmetic in the head", "rel p = {(1, 2)} rel r(a + b, a * b - 1) = p(a, b)", {"r": {(3, 1)}}),
    (
        "expression in a body atom",
        "rel f = {(0, 0), (1, 1)} rel f(x, a + b) = f(x - 1, a), f(x - 2, b), x <= 9",
        {"f": set(enumerate([0, 1, 1, 2, 3, 5, 8, 13, 21, 34]))},
    ),
    ("if then else", "rel p = {-1, 2} rel s(x, if x > 0 then 1 else 0) = p(x)", {"s": {(-1, 0), (2, 1)}}),
    ("ternary", "rel p = {-1, 2} rel s(x, x > 0 ? 1 : 0) = p(x)", {"s": {(-1, 0), (2, 1)}}),
    ("cast", 'rel p = {"1.5", "x"} rel r(s as f32) = p(s)', {"r": {(1.5,)}}),
    ("cast to text", "rel p = {7} rel r(x as String) = p(x)", {"r": {("7",)}}),
    ("cast wraps", "rel p = {300, -1} rel r(x as u8) = p(x)", {"r": {(44,), (255,)}}),
    ("range", "rel n(3) rel r(x) = n(k), x in 0..k", {"r": {(0,), (1,), (2,)}}),
    ("inclusive range", "rel r(x) = x in 1..=3", {"r": {(1,), (2,), (3,)}}),
    ("range as a filter", "rel p = {1, 5} rel r(x) = p(x), x in 0..3", {"r": {(1,)}}),
    ("usize saturates", "type p(usize) rel p(0) rel r(x - 1) = p(x)", {"r": {(0,)}}),
    ("i8 saturates", "type p(i8) rel p(100) rel r(x + x) = p(x) rel s(-x - x) = p(x)", {"r": {(127,)}, "s": {(-128,)}}),
    ("i8 product wraps", "type p(i8) rel p(100) rel r(x * 2) = p(x)", {"r": {(-56,)}}),
    ("division truncates", "rel p = {-7} rel r(x / 2, x % 2) = p(x)", {"r": {(-3, -1)}}),
    ("division by zero", "rel p = {0, 2} rel r(4 / x) = p(x)", {"r": {(2,)}}),
    ("nan drops the tuple", "rel p = {0.0, 2.0} rel r(x / x) = p(x)", {"r": {(1.0,)}}),
    (
        "booleans",
        "rel p = {(true, false)} rel r(a && b, a || b, a ^ b, !a) = p(a, b)",
        {"r": {(False, True, True, False)}},
    ),
    (
        "bool condition",
        "rel p = {(1, true), (2, false)} rel r(x) = p(x, b), b rel s(x) = p(x, b), !b",
        {"r": {(1,)}, "s": {(2,)}},
    ),
    ("texts", 'rel p = {("a", "b")} rel r(x + y) = p(x, y), x < y', {"r": {("ab",)}}),
    ("escapes", r'rel p = {"a\"b\n", """a\n"b" \\d"""}', {"p": {('a"b\n',), ('a\n"b" \\d',)}}),
    ("quote at the end of a long text", r'rel p = {"""say "hi"""", """"""}', {"p": {('say "hi"',), ("",)}}),
    ("integer literals in float columns", "type w(f32) rel w = {1} rel v(x + 1) = w(x), x < 2", {"v": {(2.0,)}}),
    ("integer constant as a float", "const C = 3 rel w = {C, 0.5}", {"w": {(3.0,), (0.5,)}}),
    ("fact set after a turnstile", "rel f :- {(0, 1)}", {"f": {(0, 1)}}),
    (
        "aggregates without variables",
        "rel e = {(0, 1)} rel a(b) = b := exists(e(0, 1)) rel c(b) = b := exists(e(1, 1) or e(2, 2))"
        " rel n = count(not e(1, 0)) rel s() = not exists(e(1, 1))",
        {"a": {(True,)}, "c": {(False,)}, "n": {(1,)}, "s": {()}},
    ),
    ("relation named like an aggregate", "rel min(1) rel q(x) = min(x)", {"q": {(1,)}}),
    (
        "quantifiers with groups of their own",
        # 0 has no p, 1 only some in q, 2 all of them.
        "rel k = {0, 1, 2} rel p = {(1, 1), (1, 3), (2, 1)} rel q = {1, 2}"
        " rel all(c) = forall(x: p(c, x) implies q(x) where c: k(c))"
        " rel value(c, b) = b := forall(x: p(c, x) implies q(x) where c: k(c))"
        " rel some(c) = exists(x: p(c, x) where c: k(c)) rel none(c) = not exists(x: p(c, x) where c: k(c))",
        {
            "all": {(0,), (2,)},
            "value": {(0, True), (1, False), (2, True)},
            "some": {(1,), (2,)},
            "none": {(0,)},
        },
    ),
    ("digits from characters", "rel p = {'7', 'a', '\u0663'} rel q(x as f32) = p(x)", {"q": {(7.0,)}}),
    ("char", "rel p = {'a', '\\n'}", {"p": {("a",), ("\n",)}}),
    ("symbol", 'rel p = {s"x"}', {"p": {("x",)}}),
    ("comments", "// one\nrel p(1) /* two\n lines */ rel q(2)\t// tab", {"p": {(1,)}, "q": {(2,)}}),
    ("count", "rel p = {1, 2} rel n(c) = c := count(x: p(x))", {"n": {(2,)}}),
    ("count of nothing", "type p(i32) rel n(c) = c := count(x: p(x))", {"n": {(0,)}}),
    ("equals sign", "rel p = {1, 2} rel n(c) = c = count(x: p(x))", {"n": {(2,)}}),
    ("count is usize", "rel p = {1, 2} rel n(c) = c := count(x: p(x)), c > 1", {"n": {(2,)}}),
    (
        "implicit groups",
        "rel p = {(1, 1), (1, 2), (2, 1)} rel n(k, c) = c := count(x: p(k, x))",
        {"n": {(1, 2), (2, 1)}},
    ),
    (
        "where keeps empty groups",
        "rel p = {(1, 1)} rel k = {1, 2} rel n(k, c) = c := count(x: p(k, x) where k: k(k))",
        {"n": {(1, 1), (2, 0)}},
    ),
    (
        "groups of two columns",
        "type t(i32, i32, i32), g(i32, i32) rel t = {(1, 0, 0), (2, 0, 0), (1, 1, 0), (5, 1, 1)}"
        " rel g = {(0, 0), (1, 0), (1, 1), (2, 2)}"
        " rel a(y, z, n) = n := count(x: t(x, y, z) where y, z: g(y, z)) rel b(y, z, n) = n := count(x: t(x, y, z))",
        {"a": {(0, 0, 2), (1, 0, 1), (1, 1, 1), (2, 2, 0)}, "b": {(0, 0, 2), (1, 0, 1), (1, 1, 1)}},
    ),
    (
        "constant in an aggregate",
        "const A = 1 rel p = {(1, 1), (2, 2)} rel n(c, A) = c := count(x: p(x, A))",
        {"n": {(1, 1)}},
    ),
    ("constant in a quantifier", "const A = 1 rel p = {1, 2} rel n(A) = p(A), exists(x: p(x), x > A)", {"n": {(1,)}}),
    ("reduce rule", "rel p = {1, 2} rel n = count(x: p(x))", {"n": {(2,)}}),
    ("sum", "rel p = {1, 2} rel n(c) = c := sum(x: p(x))", {"n": {(3,)}}),
    ("sum merges equal values", "rel p = {(1, 5), (2, 5)} rel n(c) = c := sum(x: p(_, x))", {"n": {(5,)}}),
    ("sum with a key", "rel p = {(1, 5), (2, 5)} rel n(c) = c := sum[k](x: p(k, x))", {"n": {(10,)}}),
    ("prod", "rel p = {2, 3} rel n(c) = c := prod(x: p(x))", {"n": {(6,)}}),
    (
        "min, max",
        "rel p = {4, 2} rel a(x) = x := min(y: p(y)) rel b(x) = x := max(y: p(y))",
        {"a": {(2,)}, "b": {(4,)}},
    ),
    ("min of texts", 'rel p = {"b", "a"} rel a(x) = x := min(y: p(y))', {"a": {("a",)}}),
    ("min keeps trailing NULs", r'rel p = {"a\0\0", "a\0"} rel a(x) = x := min(y: p(y))', {"a": {("a\0",)}}),
    (
        "sum saturates, prod wraps",
        "type p(i8), q(u8), r(i32, i64), w(u64) rel p = {100, 27, -3, 99} rel q = {200, 100}"
        f" rel r = {{(0, {2**63 - 1}), (0, {2**63 - 3}), (1, {-(2**63)}), (1, -5), (2, {2**63 - 1}), (2, {-(2**63)})}}"
        f" rel w = {{{2**64 - 1}, 7}} rel a(n) = n := sum(x: p(x)) rel b(n) = n := prod(x: p(x))"
        " rel c(n) = n := sum(x: q(x)) rel d(k, n) = n := sum(x: r(k, x)) rel e(n) = n := sum(x: w(x))",
        {
            "a": {(127,)},
            "b": {((100 * 27 * -3 * 99 + 128) % 256 - 128,)},
            "c": {(255,)},
            "d": {(0, 2**63 - 1), (1, -(2**63)), (2, -1)},
            "e": {(2**64 - 1,)},
        },
    ),
    (
        "sums and products that are NaN drop the tuple",
        'type t(String) rel t = {"inf", "-inf"} rel p(x as f64) = t(x) rel p(0.0) rel q(x) = p(x), x >= 0.0'
        " rel s(n) = n := sum(x: p(x)) rel m(n) = n := prod(x: p(x)) rel u(n) = n := sum(x: q(x))",
        {"s": set(), "m": set(), "u": {(float("inf"),)}},
    ),
    ("max of nothing", "type p(i32) rel b(x) = x := max(y: p(y))", {"b": set()}),
    ("min with arguments", "rel p = {(1, 4), (2, 2)} rel a(k, x) = (k, x) := min[k](x: p(k, x))", {"a": {(2, 2)}}),
    (
        "argmax returns ties",
        'rel g = {("a", 3), ("b", 3), ("c", 1)} rel t(s) = s := argmax[s](x: g(s, x))',
        {"t": {("a",), ("b",)}},
    ),
    (
        "argmin by group",
        "rel g = {(1, 1, 9), (1, 2, 3), (2, 3, 1)} rel t(c, s) = s := argmin[s](x: g(c, s, x))",
        {"t": {(1, 2), (2, 3)}},
    ),
    ("exists value", "rel p = {1} rel e(b) = b := exists(x: p(x), x > 3)", {"e": {(False,)}}),
    (
        "aggregate inside an aggregate",
        "rel p = {(1, 1), (1, 2), (2, 1)} rel m(x) = x := max(n: p(k, _), n := count(y: p(k, y)))",
        {"m": {(2,)}},
    ),
    ("repeated variable", "rel e = {(1, 1), (1, 2)} rel l(x) = e(x, x)", {"l": {(1,)}}),
    ("constants in atoms", "rel e = {(1, 1), (1, 2)} rel l(x) = e(1, x), not e(2, x)", {"l": {(1,), (2,)}}),
    ("product", "rel p = {1, 2} rel q = {3} rel r(x, y) = p(x), q(y)", {"r": {(1, 3), (2, 3)}}),
    ("query of a relation", "rel p(1) rel q(2) query p", {"p": {(1,)}}),
    ("query of an atom", "rel e = {(0, 1), (1, 2)} query e(0, x)", {"e(0, x)": {(0, 1)}}),
    ("query with an expression", "rel e = {(1, 2), (1, 3)} query e(a, a * 2)", {"e(a, (a * 2))": {(1, 2)}}),
    ("hidden", "@hidden rel p(1) rel q(x) = p(x)", {"q": {(1,)}}),
    ("negative literal", "rel p(-1) rel q(x - 1) = p(x)", {"q": {(-2,)}}),
    ("adornments", "type f(bound x: i32, y: i32) rel f(1, 2)", {"f": {(1, 2)}}),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_feature(text, expected):
    db = dv.Program(text).run()
    for name, rows in expected.items():
        assert set(db[name]) == rows


def test_defaults_of_types():
    signatures = dv.Program('rel p(1, 0.5, "a", true) rel n(c) = c := count(x: p(x, _, _, _))').explain("types")
    assert signatures == "type p(i32, f32, String, bool)\ntype n(usize)"


def test_only_queries_are_outputs():
    assert list(dv.Program("rel p(1) rel q(2) query q").run()) == ["q"]
    assert list(dv.Program("@hidden rel p(1) rel q(2)").run()) == ["q"]


def test_imports(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "edges.scl").write_text("rel edge = {(0, 1)}")
    (tmp_path / "main.scl").write_text('import "lib/edges.scl"\nrel p(x) = edge(x, _)')
    assert set(dv.Program.from_file(tmp_path / "main.scl").run()["p"]) == {(0,)}


@pytest.mark.parametrize(
    "facts",
    [
        [(0, 1), (1, 2)],
        [[0, 1], [1, 2]],
        {(0, 1): None, (1, 2): None},
        np.array([[0, 1], [1, 2]]),
        np.array([[0, 1], [1, 2]], dtype=np.uint8),
        np.array([[0, 1], [1, 2]], dtype=object),
        {"a": [0, 1], "b": (1, 2)},
        {"dst": np.array([1, 2]), "src": np.array([0, 1])},
        {(0, 1), (1, 2)},
    ],
    ids=["tuples", "lists", "mapping", "array", "small array", "objects", "columns", "columns by name", "set"],
)
def test_forms_of_facts(facts):
    db = dv.Program("type edge(src: usize, dst: usize)\nrel path(a, b) = edge(a, b)").run(facts={"edge": facts})
    assert set(db["path"]) == {(0, 1), (1, 2)}
    assert db.provenance == "unit"


class PandasLike:
    def __init__(self, columns):
        self.columns, self.shape, self.given = list(columns), (2, len(columns)), columns
        self.iloc = self

    def __iter__(self):
        return iter(self.columns)  # the header, as in pandas

    def __getitem__(self, key):
        return np.array(self.given[self.columns[key[1]]])


class PolarsLike:
    def __init__(self, columns):
        self.columns, self.given = list(columns), columns

    def to_series(self, index):
        return np.array(self.given[self.columns[index]])


class ArrowLike:
    def __init__(self, columns):
        self.column_names, self.given = list(columns), columns
        self.columns = list(columns.values())

    def column(self, index):
        return np.array(self.columns[index])


def frame_of(kind, columns, **options):
    match kind:
        case "pandas":
            return pytest.importorskip("pandas").DataFrame(columns)
        case "polars":
            return pytest.importorskip("polars").DataFrame(columns)
        case "arrow":
            return pytest.importorskip("pyarrow").table(columns, **options)
        case "arrow batch":
            return pytest.importorskip("pyarrow").RecordBatch.from_pydict(columns)
        case "mapping":
            return columns
    return {"like pandas": PandasLike, "like polars": PolarsLike, "like arrow": ArrowLike}[kind](columns)


FRAMES = ["pandas", "polars", "arrow", "arrow batch", "like pandas", "like polars", "like arrow", "mapping"]


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_are_columns(kind):
    columns = {"who": ["Ada", "Bo"], "age": [36, 7], "weight": [61.5, 20.0], "here": [True, False]}
    rows = {("Ada", 36, 61.5, True), ("Bo", 7, 20.0, False)}
    declared = dv.Program("type person(String, i32, f64, bool)\nrel p(w, a, x, h) = person(w, a, x, h)")
    assert set(declared.run(facts={"person": frame_of(kind, columns)})["p"]) == rows
    named = dv.Program("type person(age: i32, who: String)\nrel p(w, a) = person(a, w)")
    some = frame_of(kind, {"who": columns["who"], "age": columns["age"]})
    assert set(named.run(facts={"person": some})["p"]) == {("Ada", 36), ("Bo", 7)}
    if kind == "arrow":
        same = frame_of(kind, [[1, 2], [3, 4]], names=["x", "x"])
        assert set(dv.Program("type e(x: i32, x: i32)").run(facts={"e": same})["e"]) == {(1, 3), (2, 4)}
    undeclared = dv.Program("rel p(w) = person(w, _, _, _)")
    assert set(undeclared.run(facts={"person": frame_of(kind, columns)})["p"]) == {("Ada",), ("Bo",)}
    with pytest.raises(dv.DerivableError, match=r"4 columns \(who, age, weight, here\) for 2"):
        named.run(facts={"person": frame_of(kind, columns)})
    with pytest.raises(dv.DerivableError, match="expected i32, found"):
        named.run(facts={"person": frame_of(kind, {"who": ["Ada"], "age": ["old"]})})


@pytest.mark.parametrize("text", ["type e(i32, i32) rel p(x) = e(x, _)", "rel p(x) = e(x, _)"])
def test_iterables_are_taken_once_and_wholly(text):
    db = dv.Program(text).run(facts={"e": ((i, i + 1) for i in range(5))})
    assert set(db["p"]) == {(i,) for i in range(5)}
    tagged = dv.Program(text).run(facts={"e": iter([(0.5, (0, 1)), (0.25, (1, 1))])})
    assert dict(tagged["p"].items()) == pytest.approx({(0,): 0.5, (1,): 0.25})
    assert set(dv.Program("type u(i32)").run(facts={"u": range(3)})["u"]) == {(0,), (1,), (2,)}


@pytest.mark.parametrize("given", [3, "ab", b"ab", object(), None, np.array(3), {"a": [1, 2], "b": [1]}, {"a": [1]}])
def test_other_facts_are_refused(given):
    for text in ("type e(i32, i32)", "rel p(x) = e(x, _)"):
        with pytest.raises(dv.DerivableError):
            dv.Program(text).run(facts={"e": given})


@pytest.mark.parametrize(
    ("text", "facts", "expected"),
    [
        ("rel p = {1}", {}, "unit"),
        ("rel 0.5::p(1)", {}, "exact"),
        ("rel p = {0.3::1; 0.7::2}", {}, "exact"),
        ("rel w = {0.5} rel x::p(1) = w(x)", {}, "exact"),
        ("rel w = {1} rel 0.5::p(x) = w(x)", {}, "exact"),
        ("type p(i32)", {"p": [1]}, "unit"),
        ("type p(i32)", {"p": {1: 0.5}}, "exact"),
        ("type p(i32)", {"p": dv.categorical([1, 2], [0.5, 0.5])}, "exact"),
    ],
)
def test_the_default_provenance(text, facts, expected):
    program = dv.Program(text)
    db, wanted = program.run(facts=facts), program.run(facts=facts, provenance=expected)
    assert db.provenance == expected
    assert dict(db["p"].items()) == dict(wanted["p"].items())
    assert dict(db["p"].items())[1,] == (0.3 if "0.3" in text else 0.5 if expected == "exact" else True)
    chosen = program.explain().splitlines()[-1]
    assert chosen.startswith(f"provenance {'unit' if facts else expected}: ")


def test_arrays_of_texts():
    db = dv.Program("type e(String, char)\nrel p(a) = e(a, 'x')").run(facts={"e": np.array([["a", "x"], ["b", "y"]])})
    assert set(db["p"]) == {("a",)}


def test_columns():
    db = dv.Program("type e(u32, f32, String, bool)").run(facts={"e": [(2, 0.5, "b", True), (1, 1.5, "a", False)]})
    view = db["e"]
    assert [c.dtype for c in view.columns] == [np.uint32, np.float32, object, bool]
    assert list(view) == [(1, 1.5, "a", False), (2, 0.5, "b", True)]
    assert len(view) == 2
    assert (1, 1.5, "a", False) in view
    assert (1, 1.5, "zzz", False) not in view
    assert view[2, 0.5, "b", True] is True
    with pytest.raises(KeyError):
        view[9, 9.0, "a", True]


def test_undeclared_relations_take_their_types_from_the_facts():
    program = dv.Program("rel p(x) = q(x, _)")
    assert set(program.run(facts={"q": [("a", 1)]})["p"]) == {("a",)}
    assert set(program.run(facts={"q": [(0.5, 1)]})["p"]) == {(0.5,)}
    assert set(program.run(facts={"q": np.array([[3, 4]])})["p"]) == {(3,)}


@pytest.mark.parametrize("values", [[-5, 3, 2**31 - 1], [2**40, 1], [2**31 - 2, 2**31 + 5, 0], [2**26, 2**26 - 1, 7]])
def test_binary_relations_outside_the_reach_of_pair_sets(values):
    """Negative and large values leave the representation for small integers, also half way through."""
    edges = [(a, b) for a in values for b in values if a != b]
    text = "type e(i64, i64)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nrel q(x + 1, y) = p(x, y)"
    db = dv.Program(text).run(facts={"e": [(1, 2), (2, 3), *edges]})
    expected = closure_by_networkx([(1, 2), (2, 3), *edges])
    assert set(db["p"]) == expected
    assert {(x - 1, y) for x, y in db["q"]} == set(db["p"])


def test_pair_sets_grow():
    random = np.random.default_rng(0)
    first = np.unique(random.integers(0, 3000, size=(40_000, 2)), axis=0)
    text = "type a(u32, u32), b(u32, u32)\nrel c(x, y) = a(x, y)\nrel c(x, y) = b(x, y)\nrel d(x, y) = c(x, y), a(x, y)"
    second = np.unique(random.integers(0, 100_000, size=(40_000, 2)), axis=0)
    db = dv.Program(text).run(facts={"a": first, "b": second})
    union = {tuple(r) for r in first.tolist()} | {tuple(r) for r in second.tolist()}
    assert len(db["c"]) == len(union)
    assert set(db["c"]) == union
    assert len(db["d"]) == len(first)


def test_iteration_limit():
    db = dv.Program("rel n(0) rel n(x + 1) = n(x)").run(iteration_limit=5)
    assert set(db["n"]) == {(i,) for i in range(6)}


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "exact"])
def test_work_grows_like_the_rules(provenance):
    """News that goes through mutually recursive rules one by one touches only the rules that read it."""

    def calls(rules: int) -> int:
        text = "\n".join(f"rel p{(i + 1) % rules}(x, y) = p{i}(x, y)" for i in range(rules))
        count = 0

        def profile(_frame, event, _argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(profile)
        try:
            db = dv.Program(text).run(facts={"p0": {(1, 2): 0.5}}, provenance=provenance)
        finally:
            sys.setprofile(None)
        assert all(set(db[f"p{i}"]) == {(1, 2)} for i in range(rules))
        return count

    calls(2)
    assert calls(120) < 6 * calls(30)
