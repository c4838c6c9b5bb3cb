"""The reference, 1.2: what a program is made of, one row of its table after the other."""

import warnings

import numpy as np
import pytest

import derivable as dv
from datalog.conformance.cases import holds, parametrized
from derivable.core.diagnostics import DerivableWarning

TYPES = {
    "relation": ("type edge(src: usize, dst: usize) rel edge(0, 1)", {"edge": {(0, 1)}}),
    "without names of columns": ("type edge(usize, usize) rel edge(0, 1)", {"edge": {(0, 1)}}),
    "some with names": ("type edge(usize, dst: usize) rel edge(0, 1)", {"edge": {(0, 1)}}),
    "several relations": ('type a(i32), b(x: String), c() rel a(1) rel b("x") rel c()', {"a": {(1,)}, "c": {()}}),
    "types used before their declarations": (
        "type p(A, D) type A = B, B = u8 type D = Up | Down rel p(250, Down) rel q(x + 10) = p(x, Up + 1)",
        {"q": {(255,)}},
    ),
    "a type of itself": ("type A = B, B = A", "the type `B` is declared by itself"),
    "declared and never defined": ("type a(i32)", {"a": set()}),
    "declared after use": ("rel p(x) = a(x) type a(u8) rel a(1)", {"p": {(1,)}}),
    "bound and free": ("type f(bound n: i32, free v: i32, bool) rel f(1, 2, true)", {"f": {(1, 2, True)}}),
    "extern": ("extern type r(i32) rel q(x) = r(x)", {"q": set()}),
    "every type": (
        "type t(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64, bool, char, String, &str,"
        ' Symbol) rel t(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1.5, 1.5, true, \'c\', "s", "r", s"y")',
        {"t": {(*[1] * 12, 1.5, 1.5, True, "c", "s", "r", "y")}},
    ),
    "alias": ("type Id = usize type p(Id) rel p(3) rel q(x - 5) = p(x)", {"q": {(0,)}}),
    "alias of an alias": ("type A = u8 type B = A type p(B) rel p(200) rel q(x + x) = p(x)", {"q": {(255,)}}),
    "subtype": ("type Id <: u8 type p(Id) rel p(200) rel q(x + x) = p(x)", {"q": {(255,)}}),
    "several aliases": ('type A = u8, B <: String type p(A, B) rel p(1, "b")', {"p": {(1, "b")}}),
    "enum": (
        "type D = Up | Down | Left = 7 | Right rel d = {Up, Down, Left, Right}",
        {"d": {(0,), (1,), (7,), (8,)}},
    ),
    "enum with a leading bar": ("type D = | Up | Down rel d = {(Up, 1), (Down, 2)}", {"d": {(0, 1), (1, 2)}}),
    "enum beyond usize": (
        "type D = Up = 18446744073709551615 | Down rel p(Up)",
        "`Down` has the value 18446744073709551616, no usize",
    ),
    "enum as a type": ("type D = Up | Down type d(D) rel d(Down) rel u(x) = d(x), x == Down", {"u": {(1,)}}),
    "enum values are usize": ("type D = Up | Down rel p(Up - Down)", {"p": {(0,)}}),
    "enum in rules": ("type D = Up | Down rel q = {0, 1} rel p(x) = q(x), x == Down", {"p": {(1,)}}),
    "const": (
        'const A = 1, B: u8 = 200, C = "c", D = 0.5, E = true rel p(A, B + B, C, D, E)',
        {"p": {(1, 255, "c", 0.5, True)}},
    ),
    "const of another": ("const A = 3, B: u8 = A rel p(B)", {"p": {(3,)}}),
    "const expression": ("const A = 2, B = A * 3 + 1, C = -A rel p(B, C)", {"p": {(7, -2)}}),
    "const term": (
        "type T = L() | N(i32, T) const A = N(1 + B, L()), B = 2 rel p(x) = case A is N(x, L())",
        {"p": {(3,)}},
    ),
    "const used before it is declared": ("rel p(A) const A = 1", {"p": {(1,)}}),
    "const in bodies and queries": (
        "const A = 1 rel q = {(1, 2), (2, 3)} rel p(x) = q(A, x) query p query q(A, x)",
        {"p": {(2,)}, "q(A, x)": {(1, 2)}},
    ),
    "const in fact sets": ("const A = 1 rel q = {(A, 2), (2, A)}", {"q": {(1, 2), (2, 1)}}),
    "a variable hides no constant": ("const A = 1 rel q = {1, 2} rel p(A) = q(A)", {"p": {(1,)}}),
}

FACTS = {
    "set": ("rel e = {(0, 1), (1, 2), (0, 1)}", {"e": {(0, 1), (1, 2)}}),
    "unary set": ('rel e = {"a", "b"}', {"e": {("a",), ("b",)}}),
    "empty set": ("type e(i32) rel e = {}", {"e": set()}),
    "set of the empty tuple": ("rel e = {()}", {"e": {()}}),
    "sets add up": ("rel e = {1} rel e = {2} rel e(3)", {"e": {(1,), (2,), (3,)}}),
    "single": ('rel p(1, "a")', {"p": {(1, "a")}}),
    "nullary": ("rel ok()", {"ok": {()}}),
    "computed": ('rel p(1 + 2 * 3) rel q(if 1 < 2 then "a" else "b")', {"p": {(7,)}, "q": {("a",)}}),
    "computed in a set": ("rel p = {(1 + 1, 2), (3, 4 - 1)}", {"p": {(2, 2), (3, 3)}}),
    "computed by a function": ('rel p($string_length("abc"))', {"p": {(3,)}}),
    "hash as published": ("rel p($hash(1, 3))", {"p": {(7198375873285174811,)}}),
    "facts and rules of one relation": ("rel p(1) rel p(x + 1) = p(x), x < 3", {"p": {(1,), (2,), (3,)}}),
}

RULES = {
    "conjunctive head in braces": ("rel r = {1} rel {p(x), q(x + 1)} = r(x)", {"p": {(1,)}, "q": {(2,)}}),
    "conjunctive head with and": ("rel r = {1} rel p(x) and q(x + 1) = r(x)", {"p": {(1,)}, "q": {(2,)}}),
    "conjunctive fact": ("rel {p(1), q(2)}", {"p": {(1,)}, "q": {(2,)}}),
    "disjunctive head, untagged": ("rel r = {1, 2} rel {p(x); q(x)} = r(x)", {"p": {(1,), (2,)}, "q": {(1,), (2,)}}),
    "head of braces around one": ("rel r = {1} rel {p(x)} = r(x)", {"p": {(1,)}}),
    "nullary head": ("rel r = {1} rel some() = r(_) rel two() = r(2)", {"some": {()}, "two": set()}),
    "repeated variables": ("rel e = {(1, 1), (1, 2)} rel p(x) = e(x, x)", {"p": {(1,)}}),
    "constants in atoms": ('rel e = {(1, "a"), (2, "b")} rel p(x) = e(x, "b")', {"p": {(2,)}}),
    "repeated head variables": ("rel r = {1} rel p(x, x) = r(x)", {"p": {(1, 1)}}),
    "constants in heads": ('rel r = {1} rel p(x, 0, "k") = r(x)', {"p": {(1, 0, "k")}}),
    "product": ("rel a = {1, 2} rel b = {3} rel p(x, y) = a(x), b(y)", {"p": {(1, 3), (2, 3)}}),
    "rule without variables": ("rel r = {1} rel p(5) = r(1) rel q(5) = r(2)", {"p": {(5,)}, "q": set()}),
    "body of a condition": ("rel p(1) = 1 < 2 rel q(1) = 2 < 1", {"p": {(1,)}, "q": set()}),
    "mutual recursion": (
        "rel even(0) rel odd(x + 1) = even(x), x < 5 rel even(x + 1) = odd(x), x < 5",
        {"even": {(0,), (2,), (4,)}, "odd": {(1,), (3,), (5,)}},
    ),
    "nonlinear recursion": (
        "rel e = {(0, 1), (1, 2), (2, 3)} rel p(x, y) = e(x, y) or (p(x, z) and p(z, y))",
        {"p": {(a, b) for a in range(4) for b in range(a + 1, 4)}},
    ),
}

QUERIES = {
    "relation": ("rel a(1) rel b(2) query a", {"a": {(1,)}}),
    "several in one item": ("rel a(1) rel b(2) rel c(3) query a, b", {"a": {(1,)}, "b": {(2,)}}),
    "atom": ("rel e = {(0, 1), (1, 2)} query e(0, x)", {"e(0, x)": {(0, 1)}}),
    "atom with an expression": (
        "rel S = {(1, 2), (2, 5), (3, 6)} query S(a, a * 2)",
        {"S(a, (a * 2))": {(1, 2), (3, 6)}},
    ),
    "atom with a repeated variable": ("rel e = {(1, 1), (1, 2)} query e(x, x)", {"e(x, x)": {(1, 1)}}),
    "atom with wildcards": ("rel e = {(1, 1), (1, 2)} query e(1, _)", {"e(1, _)": {(1, 1), (1, 2)}}),
    "atom with texts": ('rel e = {("a", 1)} query e("a", x)', {'e("a", x)': {("a", 1)}}),
    "nullary": ("rel r(1) rel ok() = r(_) query ok", {"ok": {()}}),
    "nullary atom": ("rel r(1) rel ok() = r(_) query ok()", {"ok()": {()}}),
}


@parametrized(TYPES)
def test_types(text, expected):
    holds(text, expected)


@parametrized(FACTS)
def test_facts(text, expected):
    holds(text, expected)


@parametrized(RULES)
def test_rules(text, expected):
    holds(text, expected)


@parametrized(QUERIES)
def test_queries(text, expected):
    holds(text, expected)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rel a(1) rel b(x) = a(x)", {"a", "b"}),
        ("rel a(1) rel b(x) = a(x) query b", {"b"}),
        ("rel a(1) @hidden rel b(x) = a(x)", {"a"}),
        ("@hidden type a(i32) rel a(1) rel b(x) = a(x)", {"b"}),
        ("@hidden rel a(1) query a", {"a"}),
        ("rel a(1) query a(1) query a", {"a", "a(1)"}),
        ("type a(i32) rel b(n) = n := count(x: a(x))", {"a", "b"}),
    ],
)
def test_outputs(text, names):
    assert set(dv.Program(text).run()) == names


@pytest.fixture
def library(tmp_path):
    """A program of several files: main -> a, b; a -> base; b -> base, main (a cycle)."""
    (tmp_path / "base.scl").write_text("type edge(i32, i32)\nconst LIMIT = 3\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.scl").write_text('import "../base.scl"\nrel path(x, y) = edge(x, y)\n')
    (tmp_path / "b.scl").write_text('import "base.scl"\nimport "main.scl"\nrel low(x) = path(x, _), x < LIMIT\n')
    main = tmp_path / "main.scl"
    main.write_text('import "sub/a.scl"\nimport "b.scl"\nrel edge = {(1, 2), (5, 6)}\nquery low')
    return main


def test_imports_are_relative_and_once(library):
    db = dv.Program.from_file(library).run()
    assert set(db["low"]) == {(1,)}
    library.with_name("b.scl").write_text('import "b.scl"\nimport "b.scl"\nrel low(x) = path(x, _), x < LIMIT\n')
    assert set(dv.Program.from_file(library).run()["low"]) == {(1,)}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("rel p(x) = q(y", 1, 15),
        ("\nrel p(x) = edge(1, y), nothing()", 2, 7),
        ('type edge(i32, i32)\n\nrel p(x) = edge(x, "a")', 3, 20),
        ("@sparkle rel p(1)", 1, 1),
        ("rel p(x) = edge(x, _), not p(x)", 1, 1),
        ("rel (x + 5)::p(x) = edge(x, _)", 1, 6),
    ],
)
def test_errors_of_imported_files_name_them(tmp_path, text, line, column):
    (tmp_path / "lib.scl").write_text(text)
    main = tmp_path / "main.scl"
    main.write_text('import "lib.scl"\nrel edge = {(1, 2)}\n// a third line\n// and a fourth\n')
    with pytest.raises(dv.DerivableError) as caught:
        dv.Program.from_file(main).run()
    error = caught.value
    assert error.report().startswith(f"lib.scl:{line}:{column}: error: "), error.report()
    assert error.line_text == text.split("\n")[line - 1]


def test_first_declarations_in_imported_files_are_named(tmp_path):
    (tmp_path / "lib.scl").write_text("\nconst K = 3 type p(i32)\n@goal rel g() = p(_)")
    main = tmp_path / "main.scl"
    for text, line in {"const K = 4": 2, "type p(u8)": 2, "rel p(1, 2)": 2, "@goal rel h()": 3}.items():
        main.write_text('import "lib.scl"\n' + text)
        with pytest.raises(dv.DerivableError, match=f"on line {line} of lib.scl"):
            dv.Program.from_file(main)


def test_results_are_printed_as_the_language_writes_them():
    db = dv.Program(r"""
        type T = A(i32) | B()
        rel p = {("a \"q\"\n", 'x', '\'', true, -1, 0.1, A(2), t"2024-01-01", d"1y5d")}
        type q(f64, f32)
        rel q = {(0.1, 16777216.0), (1e300, 1e-10)}
        rel n()
        rel none() = n(), false
    """).run()
    assert repr(db["p"]) == (r"""{("a \"q\"\n", 'x', '\'', true, -1, 0.1, A(2), t"2024-01-01T00:00:00Z", d"1y5d")}""")
    assert repr(db["q"]) == "{(0.1, 16777216.0), (1e+300, 1e-10)}"
    assert (repr(db["n"]), repr(db["none"])) == ("{()}", "{}")
    # What is printed is a program.
    columns = repr(db["p"])[1:-1].replace("A(2), ", "")
    assert repr(dv.Program(f"rel p = {{{columns}}}").run()["p"]) == f"{{{columns}}}"


EXPRESSIONS = "type E = Const(i32) | Add(E, E) const A = Add(Const(1), Const(2)) "
EMPTY = {
    "a set without types": ("rel s = {}", {"s": set()}),
    "a set that is read": ("rel s = {} rel r(x) = s(x, _)", {"s": set(), "r": set()}),
    "a set that is shown": ("rel s = {} query s", {"s": set()}),
}
PATTERNS = {
    "a wildcard in a pattern of a head": (
        EXPRESSIONS + "rel w(Const(_), 1) rel w(Add(a, b), x + y + 1) = w(a, x), w(b, y) rel r(y) = w(A, y)",
        {"r": {(3,)}},
    ),
    "in a fact of a set": (EXPRESSIONS + "rel r = {(Add(Const(_), _), 5)} rel n(y) = r(A, y)", {"n": {(5,)}}),
    "inside another one": (EXPRESSIONS + "rel r(Add(Const(1), _)) rel n(x) = r(A), x == 1", {"n": {(1,)}}),
    "a constant among the fields is no variable": (
        "type L = Nil() | Cons(i32, L) const N = Nil() rel r(Cons(1, N), 1 + 1) rel n(y) = r(Cons(1, Nil()), y)",
        {"n": {(2,)}},
    ),
    "not in a term that is made": (EXPRESSIONS + "rel w(new Const(_), 1)", "a wildcard cannot stand"),
}


@parametrized(EMPTY | PATTERNS)
def test_empty_sets_and_patterns_without_bodies(text, expected):
    holds(text, expected)


def test_a_set_without_types_takes_facts():
    assert set(dv.Program("rel s = {} query s").run({"s": [(1, "a")]})["s"]) == {(1, "a")}


def test_patterns_in_tagged_facts():
    db = dv.Program(EXPRESSIONS + "rel 0.5::w(Const(_)) rel n(x) = w(Const(x)) query n").run()
    assert dict(db["n"].items()) == pytest.approx({(1,): 0.5, (2,): 0.5})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rel u = {1} rel r(x) = u(x), stuff(x) query r", set()),
        ("rel u = {1} rel r(x) = u(x), not stuff(x) query r", {(1,)}),
        ("rel u = {1} rel r(n) = n := count(x: stuff(x, _)) query r", {(0,)}),
    ],
)
def test_a_relation_without_declaration_rules_and_facts_is_empty(text, expected):
    program = dv.Program(text)
    with pytest.warns(DerivableWarning, match="`stuff` is empty: it has no declaration, no rule and no facts"):
        assert set(program.run()["r"]) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run({"stuff": []} if "count" not in text else {"stuff": np.zeros((0, 2), np.int32)})


@pytest.mark.parametrize(
    ("known", "read"),
    [("digit_1", "digit_2"), ("color", "colored"), ("is_left_of", "is_left_to_me"), ("path1", "path")],
)
def test_a_relation_whose_name_is_like_another_one_is_empty(known, read):
    program = dv.Program(f"rel {known} = {{(0, 1)}} rel found(x, y) = {read}(x, y) query found")
    with pytest.warns(DerivableWarning, match=f"`{read}` is empty: .*\n.*\n.*\nhelp: did you mean `{known}`"):
        assert not program.run()["found"]


@pytest.mark.parametrize("read", ["edgge", "egde", "edgw", "edg"])
def test_a_letter_off_is_a_mistake(read):
    with pytest.raises(dv.DerivableError, match="did you mean `edge`"):
        dv.Program(f"rel edge = {{(0, 1)}} rel path(x, y) = {read}(x, y)").run()


def test_what_may_be_misspelt_is_no_empty_relation():
    with pytest.raises(dv.DerivableError, match="did you mean `edge`"):
        dv.Program("rel edge = {(0, 1)} rel path(x, y) = edges(x, y)").run()
