"""Programs in Soufflé's language: constructs of its manual, with answers that were worked out by hand."""

import networkx as nx
import numpy as np
import pytest

import derivable as dv

CASES: dict[str, tuple[str, dict[str, list[tuple]]]] = {}


def case(name, text, **expected):
    CASES[name] = text, expected


case(
    "arith",
    r"""
.decl e(x:number, t:symbol, y:number)
e(2 + 3 * 4 - 1, "precedence", 13).
e(7 / 2 * 2, "left", 6).
e((1 + 2) * (3 + 4), "parentheses", 21).
e(- -5, "two signs", 5).
e(9 ^ 2, "square", 81).
e(2^3^2 , "2^3^2", 512).
e(-2^2 , "-2^2", -4).
e(17 % 5, "%", 2).
e(-17 % 5, "-%", -2).
e(3^3 % 10, "power first", 7).
e(7 band 12, "band", 4). e(7 bor 8, "bor", 15). e(7 bxor 5, "bxor", 2). e(bnot 0, "bnot", -1).
e(1 bshl 33, "bshl", 2). e(-8 bshr 1, "bshr", -4). e(-1 bshru 28, "bshru", 15).
e(3 land 0, "land", 0). e(3 lor 0, "lor", 1). e(lnot 3, "lnot", 0). e(3 lxor 2, "lxor", 0).
e(max(1,5,3), "max", 5). e(min(1,5,3), "min", 1).
e(2147483647 + 1, "wrap", -2147483648).
e(strlen("abc"), "strlen", 3). e(to_number("12"), "tn", 12).
e(0x1F, "hex", 31). e(0b101, "bin", 5).
e(to_number(3.9), "tnf", 3).
.decl f(x:number, t:symbol, y:number)
.output f
f(x,t,y) :- e(x,t,y), x != y.
.decl n(x:number)
.output n
n(c) :- c = count : { e(_,_,_) }.
""",
    f=[],
    n=[(29,)],
)
case(
    "strings",
    r"""
.decl word(s:symbol)
word("a"). word("b").
.decl A(s:symbol)
.output A
A("pre-" + s) :- word(s).
A("two: " + to_string(2) + "\t" + to_string(2.5)).
A(cat("x","y","z")). A(substr("hello",1,3)). A(substr("hello",9,3)).
""",
    A=[("pre-a",), ("pre-b",), ("two: 2\t2.500000",), ("xyz",), ("ell",), ("",)],
)
case(
    "agg",
    r"""
.decl e(x:number,y:number)
e(1,2). e(1,3). e(2,3). e(3,3).
.decl node(x:number)
node(1). node(2). node(4).
.decl cnt(x:number,n:number)
.output cnt
cnt(x,n) :- node(x), n = count : { e(x,_) }.
.decl tot(n:number)
.output tot
tot(s) :- s = sum y : { e(_,y) }.
.decl mx(x:number,m:number)
.output mx
mx(x,m) :- node(x), m = max y : e(x,y).
.decl mn(m:number)
.output mn
mn(min y : { e(x,y), x != y }).
.decl av(m:float)
.output av
av(m) :- m = mean to_float(y) : { e(_,y) }.
.decl nest(x:number,m:number)
.output nest
nest(x,m) :- node(x), m = sum c : { node(y), y <= x, c = count : { e(y,_) } }.
.decl emp(n:number)
.output emp
emp(n) :- n = count : { e(9,_) }.
.decl expr(n:number)
.output expr
expr(2*count : {node(_)} + 1).
.decl has(x:number)
.output has
has(x) :- node(x), count : {e(x,_)} > 1.
""",
    cnt=[(1, 2), (2, 1), (4, 0)],
    tot=[(11,)],
    mx=[(1, 3), (2, 3)],
    mn=[(2,)],
    av=[(2.75,)],
    nest=[(1, 2), (2, 3), (4, 3)],
    emp=[(0,)],
    expr=[(7,)],
    has=[(1,)],
)
case(
    "records",
    r"""
.type List = [head:number, tail:List]
.decl L(l:List)
L(nil).
L([1,l]) :- L(l), l = nil.
L([x+1,l]) :- L(l), l = [x,_], x < 3.
.decl len(l:List, n:number)
len(nil, 0).
len(l, n+1) :- L(l), l = [_, t], len(t, n).
.output len
.decl head(x:number)
head(x) :- L([x,_]).
.output head
.decl two(x:number,y:number)
two(x,y) :- L([x,[y,_]]).
.output two
.decl none(x:number)
none(1) :- !L([7,nil]).
none(2) :- !L([1,nil]).
.output none
""",
    head=[(1,), (2,), (3,)],
    two=[(2, 1), (3, 2)],
    none=[(1,)],
)
case(
    "adt",
    r"""
.type Expr = Num {v:number} | Add {l:Expr, r:Expr} | Zero {}
.decl e(x:Expr)
e($Add($Num(1),$Add($Num(2),$Zero()))).
e(x) :- e($Add(x,_)). e(y) :- e($Add(_,y)).
.decl val(x:Expr,v:number)
val($Num(n),n) :- e($Num(n)).
val(x,0) :- e(x), x = $Zero.
val(x,a+b) :- e(x), x = $Add(l,r), val(l,a), val(r,b).
.decl out(v:number)
.output out
out(v) :- val(_,v).
""",
    out=[(0,), (1,), (2,), (3,)],
)
case(
    "eqrel",
    r"""
.decl r(x:number,y:number) eqrel
r(1,2). r(2,3). r(5,6).
.output r
.decl n(c:number)
.output n
n(count : {r(_,_)}).
""",
    n=[(13,)],
)
case(
    "disj",
    r"""
.decl a, b, c, d(x:number)
a(1). a(2). a(3). b(2).
c(x), d(x+10) :- a(x), (b(x) ; x > 2).
.output c,d
.decl f(x:number)
f(x) :- a(x), !(b(x) ; x > 2).
.output f
.decl g(x:number,y:unsigned,z:float)
g(1,2,3.5). g(1,2u,4).
.output g
""",
    c=[(2,), (3,)],
    d=[(12,), (13,)],
    f=[(1,)],
    g=[(1, 2, 3.5), (1, 2, 4.0)],
)
case(
    "range",
    r"""
.decl a(x:number)
a(x) :- x = range(0,3).
a(range(10,6,-2)).
.output a
.decl b(x:unsigned)
b(range(1u,3u)).
.output b
.decl m(s:symbol)
m(s) :- s = "hello", match("h.*o", s), contains("ell", s), !match("a", s).
.output m
.decl q(x:number)
q(ord("a") - ord("a")).
q(as(4294967295u, number)).
.output q
.decl u(x:unsigned)
u(as(-1, unsigned)). u(0 - 1).
.output u
""",
    a=[(0,), (1,), (2,), (10,), (8,)],
    b=[(1,), (2,)],
    m=[("hello",)],
    q=[(0,), (-1,)],
    u=[(4294967295,)],
)
case(
    "autoinc",
    r"""
.decl a(x:symbol)
a("x"). a("y"). a("z").
.decl b(n:number,s:symbol)
b(autoinc(),s) :- a(s).
.decl c(n:number)
c(n) :- b(n,_).
c(autoinc()).
.output c
""",
    c=[(0,), (1,), (2,), (3,)],
)
case(
    "override",
    r"""
.comp Base { .decl r(x:number) overridable
 r(1). .decl q(x:number)
 q(x) :- r(x). }
.comp Der : Base { .override r
 r(2). }
.init b = Base
.init d = Der
.output b.q, d.q
""",
    **{"b.q": [(1,)], "d.q": [(2,)]},
)
case(
    "vars?",
    r"""
.decl a(?x:number)
a(1). a(2).
.decl b(?x:number,_y:number)
b(?x,_y) :- a(?x), a(_y), ?x < _y.
.output b
""",
    b=[(1, 2)],
)
case(
    "joinkey",
    r"""
.decl a(x:number) .decl b(x:number)
a(range(0,2000)). b(range(0,2000)).
.decl c(x:number,y:number)
c(x,y) :- a(x), b(y), x+1 = y*2.
.decl n(x:number)
n(count : {c(_,_)}).
.output n
""",
    n=[(1000,)],
)


case(
    "tree",
    r"""
.decl edge(x:number,y:number)
edge(1,2). edge(1,3). edge(2,4). edge(3,4). edge(4,1). edge(4,5).
.decl tree(p:number, c:number) choice-domain c
tree(0,1).
tree(p,c) :- tree(_,p), edge(p,c).
.decl n(x:number)
n(count : {tree(_,_)}).
.output n, tree
""",
    n=[(5,)],
)
case(
    "choice2",
    r"""
.decl s(a:symbol,b:number,c:symbol)
s("x",2,"p"). s("x",1,"q"). s("y",1,"z").
.decl one(a:symbol,b:number,c:symbol) choice-domain a
one(a,b,c) :- s(a,b,c).
.decl n(x:number)
n(count : {one(_,_,_)}).
.output n
""",
    n=[(2,)],
)
case(
    "shortest",
    r"""
.decl edge(x:number,y:number,w:number)
edge(1,2,5). edge(1,3,1). edge(3,2,1). edge(2,1,7). edge(2,4,2).
.decl d(y:number,c:number)
d(1,0).
d(y,c+w) :- d(x,c), edge(x,y,w).
d(y,c1) <= d(y,c2) :- c2 <= c1.
.output d
.decl far(y:number)
far(y) :- d(y,c), c > 1.
.output far
""",
    d=[(1, 0), (2, 2), (3, 1), (4, 4)],
    far=[(2,), (4,)],
)
case(
    "intervals",
    r"""
.decl i(a:number,b:number)
i(1,5). i(2,3). i(4,9). i(1,5). i(4,6).
i(a,b) <= i(c,d) :- c <= a, b <= d.
.output i
""",
    i=[(1, 5), (4, 9)],
)
case(
    "pareto",
    r"""
.decl c(n:symbol,p:number,q:number)
c("a",1,5). c("b",2,5). c("d",3,9). c("e",1,5).
.decl best(n:symbol,p:number,q:number)
best(n,p,q) :- c(n,p,q).
best(_,p1,q1) <= best(_,p2,q2) :- p2 <= p1, q2 >= q1.
.output best
""",
    best=[("a", 1, 5), ("d", 3, 9)],
)
case(
    "closure",
    r"""
.decl e(x:number,y:number)
e(1,2). e(2,3). e(3,1).
.decl p(x:number,y:number)
p(x,y) :- e(x,y).
p(x,z) :- p(x,y), e(y,z).
p(x,y1) <= p(x,y2) :- y1 < y2, x > 0.
.output p
""",
    p=[(1, 3), (2, 3), (3, 3)],
)

case(
    "inline",
    r"""
.decl lt(x:number,y:number) inline
lt(x,y) :- x < y.
lt(x,x).
.decl plus(x:number,y:number,z:number) inline
plus(x,y,x+y).
.decl a(x:number)
a(1). a(2). a(3).
.decl b(x:number,y:number)
b(x,z) :- a(x), a(y), lt(x,y), plus(x,y,z).
.output b
.decl c(x:number,y:number)
c(x,y) :- a(x), a(y), !lt(x,y).
.output c
.decl big(x:number) inline
big(x) :- a(x), x > 1.
.decl d(n:number)
d(count : { big(_) }).
.output d
""",
    b=[(1, 2), (1, 3), (1, 4), (2, 4), (2, 5), (3, 6)],
    c=[(2, 1), (3, 1), (3, 2)],
    d=[(2,)],
)


case(
    "values_of_ranges_and_aggregates",
    """
.decl word(s:symbol, n:number)
word("a", 1). word("b", 2). word("b", 3).
.decl up_to(s:symbol, x:number)
up_to(s, x) :- word(s, _), m = count : { word(s, _) }, x = range(0, m).
.output up_to
.decl even(n:number)
even(n) :- n = count : { x = range(0, 9), x % 2 = 0 }.
.output even
.decl same(n:number)
same(n) :- n = count : { word(_, n) }, n = range(0, 5).
.output same
.decl fits(x:number, y:number)
fits(x, y) :- 1 = count : { word(_, y), y < k }, k = range(2, 4), x = k, word(_, y).
.output fits
""",
    up_to=[("a", 0), ("b", 0), ("b", 1)],
    even=[(5,)],
    same=[(0,), (1,)],
    fits=[(2, 1), (3, 1), (3, 2)],
)
case(
    "parameters_of_components_are_components",
    """
.comp Red { .decl x(s:symbol) x("red"). }
.comp Blue { .decl x(s:symbol) x("blue"). }
.comp Outer<Kind> {
  .comp Named<K> : Plain<K> { .decl n(x:number) n(1). }
  .comp Plain<K> { .init it = K
    .output it.x }
  .init inner = Named<Kind>
}
.init a = Outer<Red>
.init b = Outer<Blue>
""",
    **{"a.inner.it.x": [("red",)], "b.inner.it.x": [("blue",)]},
)
case(
    "classes_in_patterns",
    r"""
.decl id(s:symbol)
id("x_12#"). id("x_1"). id("y").
.decl found(s:symbol)
found(s) :- id(s), match("x_[[:digit:]]+#", s).
found(cat(substr(s, 0, n - 1), "!")) :- id(s), n = strlen(s), match("x_\\d+", s).
.output found
""",
    found=[("x_12#",), ("x_!",)],
)
case(
    "conditions_in_parentheses",
    """
.decl a(x:number)
a(range(0, 8)).
.decl odd(x:number)
odd(x) :- a(x), ((x band 1) != 0), !((x - 1) = 2 ; (x > 6)).
.output odd
.decl none()
none() :- a(x), x > 100.
.decl some()
some() :- a(_), !none().
.output some, none
""",
    odd=[(1,), (5,)],
    some=[()],
    none=[],
)


case(
    "variables_of_aggregates",
    """
.decl person(name:symbol, age:number)
person("a", 10). person("b", 46). person("c", 50). person("d", 10).
.decl youngest(name:symbol, age:number)
youngest(p, n) :- n = min x : person(p, x).
.output youngest
.decl oldest(name:symbol)
oldest(p) :- 50 = max x : { person(p, x), x > 0 }.
.output oldest
.decl own(name:symbol, age:number)
own(p, n) :- person(p, _), n = min x : person(p, x).
.output own
.decl shadowed(name:symbol, ages:number)
shadowed(p, y) :- person(p, z), z < 20, y = sum z : { person(_, z), z > 10 }.
.output shadowed
.decl all(n:number)
all(n) :- n = sum 1 : person(_, _).
.output all
""",
    youngest=[("a", 10), ("d", 10)],
    oldest=[("c",)],
    own=[("a", 10), ("b", 46), ("c", 50), ("d", 10)],
    shadowed=[("a", 96), ("d", 96)],
    all=[(4,)],
)
case(
    "records_in_inline_relations",
    """
.type Pair = [ a : symbol, b : symbol ]
.decl next(x:Pair, y:Pair) inline
next(["1", "2"], ["2", "3"]).
next(["2", "3"], ["3", "4"]).
next(x, y) :- next2(x, y), x != ["2", "3"].
.decl next2(x:Pair, y:Pair) inline
next2(["3", "4"], ["4", "5"]).
next2(["2", "3"], ["9", "9"]).
.decl third(s:symbol)
third(s) :- next(["1", _], x), next(x, y), next(y, [s, _]).
.output third
""",
    third=[("4",)],
)


case(
    "the_preprocessor",
    r"""
#define LIMIT 3
#define BELOW(x, n) (x < n)
#define JOINED(a, b) a##b
#define TEXT(a) #a
#if LIMIT > 2 && defined(BELOW) && !defined(OTHER)
.decl JOINED(so, me)(s:symbol, n:number)
some(TEXT(it is), LIMIT) :- BELOW(1, LIMIT), \
  true.
#elif LIMIT == 1
this is `no program'
#else
neither is this
#endif
#ifdef OTHER
#undef LIMIT
#else
some("else", n) :- BELOW(2, LIMIT), n = __LINE__. /* a comment
over lines */ // and another one
#endif
.output some
""",
    some=[("it is", 3), ("else", 18)],
)
case(
    "names_that_are_words_here",
    """
.type String = [a:number, b:number]
.type Entity = i32 {x:number} | bool {y:symbol}
.decl rel(x:String, free:Entity)
rel([1, 2], $i32(3)). rel([2, 2], $bool("x")).
.decl string_find(bound:number, y:number)
string_find(a, a + 1) :- rel([a, _], $i32(_)).
.decl not(where:number)
not(if) :- string_find(_, if).
.output not
""",
    **{"not": [(2,)]},
)


@pytest.mark.parametrize("name", CASES)
def test_programs_have_the_rows_of_souffle(name):
    text, expected = CASES[name]
    found = dv.Program.from_souffle(text).run()
    for relation, rows in expected.items():
        assert sorted(found[relation]) == sorted(rows), relation


TREE = """
.decl edge(x:number, y:number)
.decl tree(parent:number, child:number) choice-domain child
tree(-1, 0).
tree(p, c) :- tree(_, p), edge(p, c).
.output tree
"""


@pytest.mark.parametrize("nodes", [30, 5000])
def test_a_choice_in_a_recursion_is_a_tree_of_what_is_reached(nodes):
    edges = np.random.default_rng(nodes).integers(0, nodes, (3 * nodes, 2)).astype(np.int32)
    rows = list(dv.Program.from_souffle(TREE).run({"edge": edges})["tree"])
    parent = {child: above for above, child in rows}
    assert len(parent) == len(rows)
    graph = nx.DiGraph(edges.tolist())
    assert set(parent) == nx.descendants(graph, 0) | {0}
    known = set(map(tuple, edges.tolist()))
    assert all(above == -1 or (above, child) in known for child, above in parent.items())
    for child in parent:
        steps = 0
        while child != -1:
            child, steps = parent[child], steps + 1
            assert steps <= len(parent)


def test_a_subsumption_of_lengths_has_the_shortest_ones():
    drawn = np.random.default_rng(3)
    edges, lengths = drawn.integers(0, 200, (900, 2)), drawn.integers(1, 50, 900)
    text = """
    .decl edge(x:number, y:number, l:number)
    .decl best(y:number, c:number)
    best(0, 0).
    best(y, c + l) :- best(x, c), edge(x, y, l).
    best(y, a) <= best(y, b) :- a >= b.
    .output best
    """
    found = dv.Program.from_souffle(text).run({"edge": np.column_stack([edges, lengths]).astype(np.int32)})
    graph = nx.MultiDiGraph()
    graph.add_weighted_edges_from((*edge, int(length)) for edge, length in zip(edges.tolist(), lengths))
    assert dict(list(found["best"])) == nx.single_source_dijkstra_path_length(graph, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".decl p(x:number, y:number) choice-domain x, y\np(x, y + 1) :- p(x, y).", "2 choice-domains"),
        (".decl p(x:number, y:number) choice-domain z", "has no column `z`"),
        (".decl p(x:number) inline\n.decl q(x:number)\np(x) :- x < 3.\nq(1) :- p(1).\n.output p", "has no rows"),
        (".decl p(x:number) inline\n.decl q(x:number)\np(x) :- p(x), x < y.\nq(1) :- p(1).", "defined by itself"),
    ],
)
def test_what_cannot_be_kept_is_refused(text, message):
    with pytest.raises(dv.DerivableError, match=message) as caught:
        dv.Program.from_souffle(text)
    assert caught.value.span is not None


@pytest.mark.parametrize(
    ("directive", "message"),
    [
        (".limitsize p(n=3)", "limitsize"),
        ('.pragma "jobs" "4"', "pragma 'jobs' is not followed"),
        ("p(x) :- p(x), p(x). .plan 0:(1,2)", "plan"),
    ],
)
def test_what_is_skipped_is_said(directive, message):
    with pytest.warns(dv.DerivableWarning, match=message):
        found = dv.Program.from_souffle(f".decl p(x:number)\np(1).\n{directive}\n").run()
    assert list(found["p"]) == [(1,)]


def test_facts_of_relations_that_do_not_keep_all_rows_are_chosen_too(tmp_path):
    text = """
    .decl one(x:number, y:number, s:symbol) choice-domain x
    .decl best(x:symbol, y:number)
    best(x, a) <= best(x, b) :- a < b.
    .decl span(a:number, b:number)
    span(a, b) <= span(c, d) :- c <= a, b <= d.
    .input one, best, span
    .output one, best, span
    """
    rows = {
        "one": [(1, 2, "a"), (1, 3, "b"), (2, 2, "c")],
        "best": [("x", 1), ("x", 5), ("y", 2)],
        "span": [(1, 5), (2, 3), (4, 9)],
    }
    for name, own in rows.items():
        (tmp_path / f"{name}.facts").write_text("".join("\t".join(map(str, row)) + "\n" for row in own))
    program = dv.Program.from_souffle(text)
    for facts in (rows, program.read(tmp_path)):
        found = program.run(facts)
        assert sorted(found["best"]) == [("x", 5), ("y", 2)]
        assert sorted(found["span"]) == [(1, 5), (4, 9)]
        assert [x for x, _, _ in sorted(found["one"])] == [1, 2]
        assert set(found["one"]) <= set(rows["one"])


def test_a_program_without_outputs_shows_its_own_relations():
    text = ".decl p(x:number)\np(1). p(2).\n.decl q(n:number)\nq(n) :- p(x), n = count : { p(y), y <= x }."
    found = dv.Program.from_souffle(text).run()
    assert {name: sorted(found[name]) for name in found} == {"p": [(1,), (2,)], "q": [(1,), (2,)]}


def test_several_choice_domains_give_a_matching_that_nothing_can_be_added_to():
    pairs = np.random.default_rng(5).integers(0, 40, (200, 2)).astype(np.int32)
    text = """
    .decl pair(x:number, y:number)
    .decl pairing(x:number, y:number) choice-domain x, y
    pairing(x, y) :- pair(x, y), x != y.
    .decl free(x:number)
    free(x) :- pair(x, _), !pairing(x, _).
    .output pairing, free
    """
    found = dv.Program.from_souffle(text).run({"pair": pairs})
    rows = list(found["pairing"])
    lefts, rights = {x for x, _ in rows}, {y for _, y in rows}
    assert len(lefts) == len(rights) == len(rows)
    assert set(rows) <= {(x, y) for x, y in pairs.tolist() if x != y}
    assert all(x in lefts or y in rights for x, y in pairs.tolist() if x != y)
    assert {x for (x,) in found["free"]} == {x for x, _ in pairs.tolist()} - lefts


@pytest.mark.parametrize("number", [40, 150])
def test_a_long_sum_has_a_value(number):
    text = f".decl p(x:number)\np(3).\n.decl q(x:number)\nq(y) :- p(x), y = {' + '.join(['x'] * number)}.\n.output q"
    assert list(dv.Program.from_souffle(text).run()["q"]) == [(3 * number,)]


def test_a_sum_of_thousands_of_terms_is_an_error_of_ours():
    text = f".decl p(x:number)\np(3).\n.decl q(x:number)\nq(y) :- p(x), y = {' + '.join(['x'] * 3000)}.\n.output q"
    with pytest.raises(dv.DerivableError, match="nested too deep"):
        dv.Program.from_souffle(text)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("1 + 2 * 3 == 7", True),
        ("2 * 3 + 1 == 7 && 7 - 2 - 1 == 4", True),
        ("3 == 1 < 2", False),
        ("1 == 1 < 2", True),
        ("0 && 0 || 1", True),
        ("1 || 0 && 0", True),
        ("(1 || 0) && 0", False),
    ],
)
def test_operators_of_conditions_bind_as_in_c(condition, holds):
    text = f".decl p(x:number)\n.output p\n#if {condition}\np(1).\n#endif\n"
    assert len(dv.Program.from_souffle(text).run()["p"]) == holds
