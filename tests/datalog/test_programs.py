"""Small whole programs as people write them for Scallop, with the answers that follow from their text."""

import pytest

import derivable as dv

PROGRAMS = [
    (
        r"""
        type edge(x: i32, y: i32)
        rel edge = {(0,1),(1,2),(2,3)}
        rel path(x,y) = edge(x,y) \/ (path(x,z) /\ edge(z,y))
        query path
        """,
        {"path": {(0, 1), (2, 3), (0, 2), (1, 2), (0, 3), (1, 3)}},
    ),
    (
        """
        @demand("bf")
        type fib(x: i32, y: i32)
        rel fib = {(0,1),(1,1)}
        rel fib(x, a + b) = fib(x - 1, a) and fib(x - 2, b) and x > 1
        query fib(10, y)
        """,
        {"fib(10, y)": {(10, 89)}},
    ),
    (
        """
        type fib(bound n: i32, v: i32)
        rel fib(0,0)
        rel fib(1,1)
        rel fib(n, a + b) = fib(n - 1, a), fib(n - 2, b), n > 1
        rel r(x) = fib(7, x)
        query r
        """,
        {"r": {(13,)}},
    ),
    (
        """
        rel color = {(0,"blue"),(1,"green"),(2,"blue"),(3,"green"),(4,"green"),(5,"red")}
        rel color_count(c, n) = n := count(o: color(o, c))
        rel max_color(c) = c := argmax[c](n: color_count(c, n))
        query max_color
        query color_count
        """,
        {"max_color": {("green",)}, "color_count": {("green", 3), ("blue", 2), ("red", 1)}},
    ),
    (
        """
        type Expr = Const(i32) | Add(Expr, Expr) | Sub(Expr, Expr)
        rel eval(e, y) = case e is Const(y)
        rel eval(e, y1 + y2) = case e is Add(e1, e2) and eval(e1, y1) and eval(e2, y2)
        rel eval(e, y1 - y2) = case e is Sub(e1, e2) and eval(e1, y1) and eval(e2, y2)
        const MY = Sub(Add(Const(3), Const(5)), Const(1))
        rel result(y) = eval(MY, y)
        query result
        """,
        {"result": {(7,)}},
    ),
    (
        """
        type List = Nil() | Cons(i32, List)
        const L = Cons(1, Cons(2, Cons(3, Nil())))
        rel sum(Nil(), 0)
        rel sum(Cons(x, l), x + s) = sum(l, s)
        rel r(s) = sum(L, s)
        query r
        """,
        {"r": {(6,)}},
    ),
    (
        """
        rel person = {"a","b","c"}
        rel father = {("a","b")}
        rel mother = {("c","a")}
        rel all_ok() = forall(p: person(p) implies (father(p, _) or mother(p, _)))
        rel n(x) = x := count(p: person(p) and not father(p, _))
        query n
        query all_ok
        """,
        {"n": {(2,)}, "all_ok": set()},
    ),
    (
        """
        rel r = {1, 2, 3}
        rel s(x) = x := sum(y: r(y))
        rel m(x) = x := max(y: r(y))
        rel p(x) = x := prod(y: r(y))
        query s query m query p
        """,
        {"s": {(6,)}, "m": {(3,)}, "p": {(6,)}},
    ),
    (
        """
        type Action = UP | DOWN | LEFT = 7 | RIGHT
        rel a(UP, 1)
        rel a(RIGHT, 2)
        query a
        """,
        {"a": {(0, 1), (8, 2)}},
    ),
    (
        """
        const A = 1, B: u32 = 2
        rel r = {(A, B)}
        query r
        """,
        {"r": {(1, 2)}},
    ),
    (
        """
        rel s = {"hello", "world!"}
        rel l(x, $string_length(x)) = s(x)
        rel c($string_concat(x, " ", y)) = s(x), s(y), x != y
        query l query c
        """,
        {"l": {("world!", 6), ("hello", 5)}, "c": {("world! hello",), ("hello world!",)}},
    ),
    (
        """
        rel n = {5}
        rel r(x) = n(k), range<i32>(0, k, x)
        query r
        """,
        {"r": {(2,), (4,), (1,), (0,), (3,)}},
    ),
    (
        """
        rel n = {5}
        rel r(x) = n(k), x in 0..k
        query r
        """,
        {"r": {(2,), (4,), (1,), (0,), (3,)}},
    ),
    (
        """
        rel s = {"abc"}
        rel c(i, ch) = s(x), string_chars(x, i, ch)
        query c
        """,
        {"c": {(0, "a"), (2, "c"), (1, "b")}},
    ),
    (
        """
        rel h($hash(1, 3))
        rel h2($hash("a", 3, 5.5))
        query h query h2
        """,
        {"h": {(7198375873285174811,)}, "h2": {(5862532063111067262,)}},
    ),
    (
        """
        rel {p(x), q(x)} = r(x)
        rel r = {1}
        query p query q
        """,
        {"p": {(1,)}, "q": {(1,)}},
    ),
    (
        """
        rel p(x) and q(x) = r(x)
        rel r = {1}
        query p query q
        """,
        {"p": {(1,)}, "q": {(1,)}},
    ),
    (
        """
        rel grade = {("c1","s1",90),("c1","s2",95),("c2","s1",80)}
        rel best(c, s, g) = (s, g) := max[s](g: grade(c, s, g))
        query best
        """,
        {"best": {("c2", "s1", 80), ("c1", "s2", 95)}},
    ),
    (
        """
        rel k = {1,2,3}
        rel e = {(1,5),(1,6)}
        rel n(x, c) = c := count(y: e(x, y) where x: k(x))
        query n
        """,
        {"n": {(1, 2), (2, 0), (3, 0)}},
    ),
    (
        """
        rel p = {1,2,3,4}
        rel odd(x, if x % 2 == 1 then "odd" else "even") = p(x)
        query odd
        """,
        {"odd": {(1, "odd"), (2, "even"), (4, "even"), (3, "odd")}},
    ),
    (
        """
        rel a = {"12", "x"}
        rel b(s as i32) = a(s)
        query b
        """,
        {"b": {(12,)}},
    ),
    (
        """
        rel d = {t"2024-01-01T00:00:00Z"}
        rel e(x + d"1d") = d(x)
        rel y($datetime_year(x), $datetime_day(x)) = e(x)
        query y
        """,
        {"y": {(2024, 2)}},
    ),
    (
        """
        rel s = {"b","a","c"}
        rel j(x) = x := string_join<",">(y: s(y))
        rel o(i, x) = (i, x) := sort<asc>(y: s(y))
        query j query o
        """,
        {"j": {("a,b,c",)}, "o": {(0, "a"), (2, "c"), (1, "b")}},
    ),
    (
        """
        rel s = {3,1,2}
        rel o(i, x) = (i, x) := sort(y: s(y))
        query o
        """,
        {"o": {(1, 2), (2, 1), (0, 3)}},
    ),
    (
        """
        rel n = count(x: p(x))
        rel p = {1,2}
        query n
        """,
        {"n": {(2,)}},
    ),
    (
        """
        type p(i32)
        rel p = {1, 2, 3}
        rel b() = b := exists(x: p(x) and x > 2)
        rel f(b) = b := exists(x: p(x) and x > 5)
        query f
        """,
        {"f": {(False,)}},
    ),
    (
        """
        type edge(usize, usize)
        rel edge = {(0,1)}
        @hidden rel aux(x) = edge(x, _)
        rel r(x - 1) = aux(x)
        query r
        """,
        {"r": {(0,)}},
    ),
    (
        """
        rel 0.8::p(1)
        rel q = {0.3::1; 0.7::2}
        rel r(x) = p(x), q(x)
        query r
        """,
        {"r": {(1,): 0.24}},
    ),
    (
        """
        @goal rel done() = p(3)
        rel p = {1,2,3}
        query done
        """,
        {"done": {()}},
    ),
    (
        """
        rel obj = {0, 1}
        rel shape = {0.9::(0, "cube"), 0.1::(0, "ball")}
        type Q = Scene() | Filter(Q, String) | Count(Q)
        type ev(bound e: Q, o: i32)
        rel ev(e, o) = case e is Scene(), obj(o)
        rel ev(e, o) = case e is Filter(q, s), ev(q, o), shape(o, s)
        const E = Filter(Scene(), "cube")
        rel answer(o) = ev(E, o)
        query answer
        """,
        {"answer": {(0,): 0.9}},
    ),
    (
        """
        type to_string(bound e: E, s: String)
        type E = N(i32) | P(E, E)
        rel to_string(N(x), $format("{}", x))
        rel to_string(P(a, b), $format("({} + {})", x, y)) = to_string(a, x), to_string(b, y)
        rel root(P(N(1), P(N(2), N(3))))
        rel s(t) = root(e), to_string(e, t)
        query s
        """,
        {"s": {("(1 + (2 + 3))",)}},
    ),
    (
        """
        type simp(bound e: E, r: E)
        type E = N(i32) | P(E, E)
        rel simp(e, e) = case e is N(_)
        rel simp(e, new N(x + y)) = case e is P(N(x), N(y))
        const X = P(N(1), N(2))
        rel s(r) = simp(X, r)
        rel n(x) = s(r), case r is N(x)
        query n
        """,
        {"n": {(3,)}},
    ),
    (
        """
        rel m(x, y) = x in 0..3, y in 0..=2, x < y
        query m
        """,
        {"m": {(0, 1), (0, 2), (1, 2)}},
    ),
    (
        """
        rel f = {1.5, 2.5}
        rel a(x) = x := avg(y: f(y))
        query a
        """,
        {"a": {(2.0,)}},
    ),
    (
        """
        type digit_1(u32), digit_2(u32)
        rel digit_1 = {0.9::1; 0.1::2}
        rel digit_2 = {0.5::3; 0.5::4}
        rel sum_2(a + b) = digit_1(a), digit_2(b)
        query sum_2
        """,
        {"sum_2": {(4,): 0.45, (5,): 0.5, (6,): 0.05}},
    ),
    (
        """
        type p(i32, String)
        rel p = {(1, "a"), (2, "b")}
        query p(1, x)
        query p(x, "b")
        """,
        {"p(1, x)": {(1, "a")}, 'p(x, "b")': {(2, "b")}},
    ),
    (
        """
        rel t = {0.9::"a", 0.5::"b", 0.1::"c"}
        rel top2(x) = x := top<2>(y: t(y))
        query top2
        """,
        {"top2": {("a",): 0.9, ("b",): 0.5}},
    ),
    (
        """
        rel s(x, y) = x == y * 2, y in 0..3
        query s
        """,
        {"s": {(2, 1), (4, 2), (0, 0)}},
    ),
    (
        """
        rel p = {(1,2),(3,4)}
        rel q(a, b) = p(a, b) and not (exists(x: p(x, a)))
        query q
        """,
        {"q": {(1, 2), (3, 4)}},
    ),
]


def assert_outputs(database, wanted):
    for name, rows in wanted.items():
        if isinstance(rows, dict):
            assert dict(database[name].items()) == pytest.approx(rows), name
        else:
            assert set(database[name]) == rows, name


@pytest.mark.parametrize(("text", "wanted"), PROGRAMS)
def test_programs(text, wanted):
    assert_outputs(dv.Program(text).run(), wanted)


def test_the_comparison_can_fail():
    for wanted in ({"p": {(2,)}}, {"p": {(1,): 0.25}}):
        with pytest.raises(AssertionError):
            assert_outputs(dv.Program("rel p = {0.5::1}").run(), wanted)
