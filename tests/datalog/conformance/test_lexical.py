"""The reference, 1.1: tokens and operators."""

import derivable as dv
from datalog.conformance.cases import holds, parametrized

T, F = True, False

TOKENS = {
    "names": ("rel aB_9(1) rel q(x_1) = aB_9(x_1)", {"q": {(1,)}}),
    "wildcard": ("rel p = {(1, 2)} rel q(x) = p(x, _)", {"q": {(1,)}}),
    "negative integers": ("rel p(-1, - 1, -0)", {"p": {(-1, -1, 0)}}),
    "the sign is part of the literal": ("rel p(-1 as usize)", {"p": {(2**64 - 1,)}}),
    "a minus is not": ("type q(u8) rel q(1) rel p(-x as i16) = q(x)", {"p": {(-1,)}}),
    "minus without spaces": ("rel p = {5} rel q(x-1) = p(x) rel r(x -1) = p(x)", {"q": {(4,)}, "r": {(4,)}}),
    "smallest integers": (
        "type p(i8, i64) rel p(-128, -9223372036854775808)",
        {"p": {(-128, -(2**63))}},
    ),
    "largest integers": (
        "type p(u8, u64) rel p(255, 18446744073709551615)",
        {"p": {(255, 2**64 - 1)}},
    ),
    "floats": (
        "type p(f64, f64, f64, f64, f64) rel p(0.5, -1.25, 1.5e3, 2.5e-3, 1e2)",
        {"p": {(0.5, -1.25, 1500.0, 0.0025, 100.0)}},
    ),
    "escapes": (r'rel p("\t\r\n\0\"\'\\")', {"p": {("\t\r\n\0\"'\\",)}}),
    "quotes of one kind in texts of the other": ("rel p(\"it's\", '\"')", {"p": {("it's", '"')}}),
    "escapes in long texts": (r'rel p("""\t"a\"""b\\""", """c\'""")', {"p": {('\t"a"""b\\', "c'")}}),
    "long texts over lines": ('rel p("""a\\n\n"b" d""")', {"p": {('a\n\n"b" d',)}}),
    "unknown escapes in long texts": ('rel p("""a\n\\d""")', r":2:1: error: unknown escape `\\d`"),
    "long texts that end with quotes": ('rel p("""a"""", """""")', {"p": {('a"', "")}}),
    "texts over lines": ('rel p("a\n b", 1) rel q = {"c\n", "\n"}', {"p": {("a\n b", 1)}, "q": {("c\n",), ("\n",)}}),
    "a text that begins where another should end": ('rel p("a)\nrel q("b")', "does not end on its line"),
    "texts with comments": ('rel p("// no", "/* no */")', {"p": {("// no", "/* no */")}}),
    "texts beyond ASCII": ("rel p(\"π → 😀\", 'é')", {"p": {("π → 😀", "é")}}),
    "characters": (r"rel p('a', '\n', '\'', '\\', '(')", {"p": {("a", "\n", "'", "\\", "(")}}),
    "symbols": ('type q(Symbol) rel p(s"a b") rel q("x") rel q(s"y")', {"p": {("a b",)}, "q": {("x",), ("y",)}}),
    "booleans": ("rel p(true, false)", {"p": {(T, F)}}),
    "names that begin with s, t and d": ("rel s(1) rel t(2) rel d(x) = s(x)", {"d": {(1,)}}),
    "comments": (
        "/* one */ rel p(1) // two\n/* rel p(2)\n // three */ rel /**/ p(3) // the end",
        {"p": {(1,), (3,)}},
    ),
    "white space": ("rel\tp(1)\r\n\f rel\n\np\n(2)", {"p": {(1,), (2,)}}),
    "no white space": ('rel p={(1,"a")}rel q(x)=p(x,"a")query q', {"q": {(1,)}}),
    "byte order mark": ("\ufeffrel p(1)", {"p": {(1,)}}),
    "items without terminators": ("rel p(1) rel q(x) = p(x) rel r(x) = q(x) query r", {"r": {(1,)}}),
    "comparison without spaces": (
        "rel p = {1, 5} rel q(x) = p(x), x<3 rel r(x) = p(x), 3<x",
        {"q": {(1,)}, "r": {(5,)}},
    ),
    "comparison that looks like parameters": (
        "rel p = {(1, 2, 3)} rel q(a<b, c>(a)) = p(a, b, c)",
        {"q": {(T, T)}},
    ),
    "type parameters with spaces": (
        "rel p(x) = range  <  usize   >(0, 2, x) rel q(a < b, c > (a)) = r(a, b, c) rel r = {(1, 2, 3)}",
        {"p": {(0,), (1,)}, "q": {(T, T)}},
    ),
    "parameters with spaces": (
        "rel p = {1, 2, 3} rel q(x) = x := top < 2 >(x: p(x)) rel r(x) = (1, x) := sort < desc > (x: p(x))",
        {"q": {(1,), (2,)}, "r": {(2,)}},
    ),
    "empty program": ("", {}),
    "only a comment": ("// nothing", {}),
    "trailing commas": ("rel p = {(1, 2,), (3, 4),} rel q(x,) = p(x, _,)", {"q": {(1,), (3,)}}),
    "commas behind the last item": (
        "const A = 1, type a(i32), b(i32), rel a(A) rel b(2) query a, b,",
        {"a": {(1,)}, "b": {(2,)}},
    ),
    "separators behind the last head": (
        "rel r = {1} rel {p(x), q(x),} = r(x) rel {s(x); t(x);} = r(x)",
        {"p": {(1,)}, "q": {(1,)}, "s": {(1,)}, "t": {(1,)}},
    ),
    "spaces in parameters": (
        "rel p(x) = range  <  usize  >(0, 2, x) rel q(x) = x := top < 1 >(y: p(y))",
        {"p": {(0,), (1,)}, "q": {(0,)}},
    ),
    "parentheses of one value": ("rel p = {(1), (2)}", {"p": {(1,), (2,)}}),
}

PRECEDENCE = {
    # Loosest first: if, ?: / && || ^ / == < / + - / * / % / unary / as.
    "product before sum": ("rel p(2 + 3 * 4, 2 * 3 + 4)", {"p": {(14, 10)}}),
    "sums from the left": ("rel p(10 - 3 - 2, 10 - 3 + 2)", {"p": {(5, 9)}}),
    "products from the left": ("rel p(20 / 3 / 2, 20 / 3 * 2, 20 % 7 * 2)", {"p": {(3, 12, 12)}}),
    "sum before comparison": ("rel p(1 + 1 == 2, 1 + 1 < 1 + 2)", {"p": {(T, T)}}),
    "comparison before and": ("rel p(1 < 2 && 3 < 2, 1 < 2 || 3 < 2)", {"p": {(F, T)}}),
    # && does not bind tighter: (true || false) && false.
    "logic from the left": ("rel p(true || false && false, true || (false && false))", {"p": {(F, T)}}),
    "xor from the left": ("rel p(true ^ true || true, true ^ (true || true))", {"p": {(T, F)}}),
    "unary before all": ("rel p(!true || true, -2 + 3, -(2 + 3), !(true || true))", {"p": {(T, 1, -5, F)}}),
    "not before comparison": ("rel p(!true == false)", {"p": {(T,)}}),
    "double negation": ("rel p(!!true, - -3, -(-3))", {"p": {(T, 3, 3)}}),
    "plus sign": ("rel p(+3)", {"p": {(3,)}}),
    "cast before product": ("rel p(7 as f32 / 2.0)", {"p": {(3.5,)}}),
    "cast of a parenthesis": ("rel p((7 / 2) as f32)", {"p": {(3.0,)}}),
    "casts in a row": ("rel p(300 as u8 as i32)", {"p": {(44,)}}),
    "if is loosest": ("rel p(if 1 < 2 then 1 + 1 else 2 * 5)", {"p": {(2,)}}),
    "else takes the rest": ("rel p(if false then 1 else 2 + 3)", {"p": {(5,)}}),
    "if in if": (
        "rel q = {1, 2, 3} rel p(x, if x == 1 then 10 else if x == 2 then 20 else 30) = q(x)",
        {"p": {(1, 10), (2, 20), (3, 30)}},
    ),
    "question mark": ("rel q = {1, 5} rel p(x > 3 ? x * 2 : x) = q(x)", {"p": {(1,), (10,)}}),
    "question marks in a row": (
        "rel q = {1, 2, 3} rel p(x, x == 1 ? 10 : x == 2 ? 20 : 30) = q(x)",
        {"p": {(1, 10), (2, 20), (3, 30)}},
    ),
    "condition of an if": (
        "rel q = {(1, true), (2, false)} rel p(if b && x == 1 then 1 else 0) = q(x, b)",
        {"p": {(1,), (0,)}},
    ),
    "if as an operand": ("rel p(1 + (if true then 2 else 3), 1 + if true then 2 else 3)", {"p": {(3, 3)}}),
}

FORMULAS = {
    "and before or": (
        "rel a = {1} rel b = {2} rel c = {2, 3} rel p(x) = a(x) or b(x) and c(x) rel q(x) = b(x) and c(x) or a(x)",
        {"p": {(1,), (2,)}, "q": {(1,), (2,)}},
    ),
    "or before comma": (
        "rel a = {1} rel b = {2} rel c = {2, 3} rel p(x) = (a(x) or b(x)), c(x)",
        {"p": {(2,)}},
    ),
    "signs for words": (
        "rel a = {1, 2} rel b = {2} rel c = {3} rel p(x) = a(x) /\\ ~b(x) \\/ c(x) rel q() = forall(x: b(x) => a(x))",
        {"p": {(1,), (3,)}, "q": {()}},
    ),
    "implies is loosest": (
        "rel a = {1} rel b = {1} rel c = {2} rel k = {1, 2}"
        " rel p(x) = k(x), (a(x) or c(x) implies b(x)) rel q(x) = k(x), (a(x) implies b(x) and c(x))",
        {"p": {(1,)}, "q": {(2,)}},
    ),
    "not binds tightest": (
        "rel k = {1, 2} rel a = {1} rel p(x) = k(x) and not a(x) or a(x)",
        {"p": {(1,), (2,)}},
    ),
    "not of not": ("rel k = {1, 2} rel a = {1} rel p(x) = k(x), not not a(x)", {"p": {(1,)}}),
    "commas in parentheses": (
        "rel a = {1, 2} rel b = {2} rel c = {5} rel p(x) = (a(x), b(x)) or c(x)",
        {"p": {(2,), (5,)}},
    ),
    "comma rules": ("rel a = {1, 2, 3} rel p(x) = a(x), x > 1, x != 3, true", {"p": {(2,)}}),
    "bare conditions": (
        "rel a = {(1, true), (2, false)} rel p(x) = a(x, b), b rel q(x) = a(x, b), !b rel r(x) = a(x, b), x > 1 || b",
        {"p": {(1,)}, "q": {(2,)}, "r": {(1,), (2,)}},
    ),
    "turnstile": ("rel a :- {1} rel p(x) :- a(x)", {"p": {(1,)}}),
    "relation": ("relation a = {1} relation p(x) = a(x)", {"p": {(1,)}}),
}


@parametrized(TOKENS)
def test_tokens(text, expected):
    holds(text, expected)


@parametrized(PRECEDENCE)
def test_precedence(text, expected):
    holds(text, expected)


@parametrized(FORMULAS)
def test_formulas(text, expected):
    holds(text, expected)


def test_results_are_written_as_the_language_writes_them():
    text = r"""rel p = {(0.1, 'a', '\n', "b\"", s"c", true, -3, t"2024-01-01", d"1y5d")}"""
    db = dv.Program(text).run()
    shown = r"""(0.1, 'a', '\n', "b\"", s"c", true, -3, t"2024-01-01T00:00:00Z", d"1y5d")"""
    assert repr(db["p"]) == f"{{{shown}}}"
    assert list(dv.Program(f"rel p = {{{shown}}}").run()["p"]) == list(db["p"])
