"""Programs of ProbLog, by hand: expected values are ProbLog's, or follow from the text."""

import pytest

import derivable as dv
from datalog.problog.random_programs import answers_of_ours, answers_of_problog, differences
from derivable.cli.main import main
from derivable.core.diagnostics import UnsupportedError

# Programs that ProbLog runs too.
PROGRAMS = {
    "coin for each row": "b(1). b(2). 0.3::a :- b(X). query(a).",
    "coin for each anonymous variable": "b(1). b(2). 0.3::a :- b(_). query(a).",
    "one coin for two ways": "b(1). c(1). 0.3::a(X) :- b(X) ; c(X). query(a(X)).",
    "one coin under a negated conjunction": (
        "b(1). 0.5::c(1). 0.5::d(1). 0.3::a(X) :- b(X), \\+ (c(X), d(X)). query(a(X))."
    ),
    "negation of what is local": "b(1). b(2). c(2,1). a(X) :- b(X), \\+ c(X,Y). query(a(X)).",
    "negated conjunction": "a(X) :- b(X), \\+ (c(X,Y), d(Y)). b(1). b(2). c(1,2). 0.5::d(2). query(a(X)).",
    "not": "a(X) :- b(X), not c(X). b(1). b(2). c(1). query(a(X)).",
    "absent atoms": "b(1). query(b(3)). query(b(X)). query(d(2)). d(1).",
    "queries with a body": "d(1). d(2). 0.5::a(1). 0.5::a(2). 0.5::a(3). query(a(X)) :- d(X).",
    "facts of the caller": "0.4::f(X,Y). p(a). p(b). 0.5::g(X) :- p(X), p(Y), f(X,Y). query(g(a)).",
    "rules of the caller": "p(X,Y) :- q(X). q(1). query(p(1,2)).",
    "equal arguments": "p(X,X). r(1). 0.5::r(2). z(X,Y) :- r(X), r(Y), p(X,Y). query(z(X,Y)).",
    "choices of the caller": ("0.3::h(X); 0.5::t(X). c(a). c(b). w :- c(X), h(X), c(Y), t(Y). query(w). query(h(a))."),
    "quotients": (
        "a(X) :- X is 7 / 2. b(X) :- X is -7 // 2. c(X) :- X is -7 mod 2. d(X) :- X is 8/2. query(a(X))."
        " query(b(X)). query(c(X)). query(d(X))."
    ),
    "powers": "a(X) :- X is 2**3. b(X) :- X is 2^3. c(X) :- X is 2.0**3. query(a(X)). query(b(X)). query(c(X)).",
    "kinds of numbers": (
        "a(1). a(1.0). b :- 1 =:= 1.0. c :- 1 == 1.0. d :- 1 = 1.0. query(a(X)). query(b). query(c). query(d)."
    ),
    "integers among floats": (
        "p(1). p(2.5). 0.5::p(3). q(Y) :- p(X), Y is X*2. r(X) :- p(X), X > 2. query(q(Y)). query(r(X))."
    ),
    "disjunction with a body": "0.3::a(X); 0.4::b(X) :- c(X,Y). c(1,1). c(1,2). query(a(1)). query(b(1)).",
    "shares that are variables": "P::a(X); Q::b(X) :- c(X,P,Q). c(1,0.3,0.4). c(2,0.5,0.5). query(a(X)). query(b(X)).",
    "probability that is a variable": "P::a(X) :- b(X,P). b(1,0.3). b(1,0.5). b(2,0.2). b(3,1). query(a(X)).",
    "fraction": "1/3::a. query(a).",
    "evidence": "query(a). 0.5::b. a :- b, \\+c. 0.2::c. evidence(a, true).",
    "evidence against": "0.5::a. evidence(\\+a). evidence(b,false). query(c). 0.5::b. 0.5::c. c :- a.",
    "evidence of what is called": (
        "0.5::a(X) :- X > 1. 0.5::b(2). c(X) :- b(X), a(X). evidence(a(2), false). query(c(2))."
    ),
    "two facts of one atom": "0.3::a. 0.4::a. query(a).",
    "arrows": "0.3::a <- b. b. query(a).",
    "between": "a(X) :- between(1,3,X). query(a(X)).",
    "quotes": "a('hello world'). a(\"text\"). a(f(x)). a([1,2|T]) :- T=[]. a(-3). a('A'). a([]). query(a(X)).",
    "library": (
        ":- use_module(library(lists)). a(X) :- member(X,[1,2,3]). b(N) :- length([a,b],N)."
        " c(L) :- append([1],[2],L). query(a(X)). query(b(X)). query(c(L))."
    ),
    "lists of what is bound": (
        ":- use_module(library(lists)). 0.4::x(1). 0.5::x(2). p(N) :- x(A), length([A,A],N)."
        " q(X) :- x(A), member(X,[A,5])."
        " r(S) :- x(A), sum_list([A,7],S). s(L) :- x(A), reverse([A,3],L). f(f(a)). t(H) :- r([H|_])."
        " query(p(_)). query(q(_)). query(r(_)). query(s(_)). query(t(_))."
    ),
    "helpers that no query reaches": (
        "0.4::h(1). 0.5::h(2). same(X,X). bigger(X,Y) :- X > Y. double(X,Y) :- Y is 2*X. 0.3::f(X,Y)."
        " 0.2::g(X) :- X > 1. len([],0). len([_|T],N) :- len(T,M), N is M+1. unused(X) :- same(X,Y), h(Y), X > Z."
        " both(X) :- bigger(X,1). all(L) :- findall(X,h(X),L). less(X,Y) :- X @< Y. n(N) :- all(L), length(L,N)."
        " query(w). w :- h(1), \\+ h(2)."
    ),
    "helpers that queries reach": (
        "0.4::h(1). 0.5::h(2). same(X,X). double(X,Y) :- Y is 2*X. w(Y) :- h(X), same(X,Z), double(Z,Y). query(w(_))."
    ),
    "goals that fail": "a(X) :- fail. a(1). b(Y) :- a(Y), [] = [Z|_], c(Z). c(1). query(a(_)). query(b(_)).",
    "more of the library": (
        ":- use_module(library(lists)). l([3,1,2]). m(X) :- l(L), max_list(L,X). n(X) :- l(L), sum_list(L,X)."
        " p(X) :- l(L), reverse(L,X). q(X) :- l(L), last(L,X). r(X) :- l(L), select(1,L,X). s(X) :- numlist(1,3,X)."
        " t(A,B) :- append(A,B,[1,2]). u :- l(L), memberchk(2,L). v :- l(L), \\+ memberchk(5,L)."
        " query(m(_)). query(n(_)). query(p(_)). query(q(_)). query(r(_)). query(s(_)). query(t(_,_)). query(u)."
        " query(v)."
    ),
    "lists in facts": (
        "person(ann, [reading, chess]). person(bob, []). likes(P,H) :- person(P,L), mem(H,L). mem(X,[X|_])."
        " mem(X,[_|T]) :- mem(X,T). query(likes(X,Y))."
    ),
    "terms that are made": (
        "p(f(X)) :- q(X). q(1). q(2). r(X) :- p(f(X)). s(Y) :- p(Y). query(r(X)). query(s(Y))."
        " query(p(f(1))). query(p(f(X)))."
    ),
    "terms of a call": "q(X,N) :- len([X|[a]],N). len([],0). len([_|T],N) :- len(T,M), N is M+1. query(q(b,N)).",
    "natural numbers": "nat(0). nat(s(X)) :- nat(X). query(nat(s(s(0)))). query(nat(s(a))).",
    "factorial": "fact(0,1). fact(N,F) :- N > 0, M is N-1, fact(M,G), F is N*G. query(fact(5,X)).",
    "paths with their nodes": (
        "edge(a,b). 0.5::edge(b,c). 0.4::edge(a,c). 0.2::edge(c,a). 0.3::edge(c,d). 0.6::edge(b,d)."
        " path(X,Y,[X,Y]) :- edge(X,Y). path(X,Y,[X|P]) :- edge(X,Z), path(Z,Y,P), \\+ member(X,P)."
        " member(X,[X|_]). member(X,[_|T]) :- member(X,T). query(path(a,d,_))."
    ),
    "paths that avoid nodes": (
        ":- use_module(library(lists)). edge(a,b). 0.5::edge(b,c). 0.4::edge(a,c). 0.2::edge(c,a)."
        " path(X,Y) :- path(X,[X],Y,_). path(X,A,Y,R) :- X \\== Y, edge(X,Z), \\+ member(Z,A), absorbs(Z,A,Y,R)."
        " absorbs(Z,A,Z,[Z|A]). absorbs(Z,A,Y,R) :- path(Z,[Z|A],Y,R), Z \\== Y. query(path(a,c))."
    ),
    "choices through time": (
        "0.5::w(sun,0); 0.5::w(rain,0) <- true. 0.6::w(sun,T); 0.4::w(rain,T) <- T > 0, S is T-1, w(sun,S)."
        " 0.2::w(sun,T); 0.7::w(rain,T) <- T > 0, S is T-1, w(rain,S). query(w(_,6))."
    ),
    "choices in a recursion": (
        "1/4::s; 0.25::s; 0.5::t :- e(X,Y), t, s. 0.5::e(1,2). 0.5::e(2,3). 0.4::t. 0.3::s. query(s). query(t)."
    ),
    "heads among values of several kinds": (
        "0.4::p(1). 0.3::p(f(2)). 0.1::p(1); 0.2::p(x); 0.3::q(2.5). 1/4::s; 0.25::s :- p(X). query(s). query(p(X))."
    ),
    "comments": "% one\n0.5::a. /* two\n lines */ b :- a. % three\nquery(b).",
    "one name, two arities": "0.5::a. 0.4::a(1). a(2) :- a. query(a). query(a(X)).",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_problog_answers(name):
    pytest.importorskip("problog")
    theirs = answers_of_problog(PROGRAMS[name])
    assert theirs
    ours = answers_of_ours(PROGRAMS[name])
    assert differences(theirs, ours) == []
    # Without rows ProbLog writes a variable of its own.
    assert {a for a in ours if not ("(X" in a or "_" in a)} == {a for a in theirs if "(X" not in a}


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a :- b(X .\n", "1:7", "`(` is not closed"),
        ("a.\nb :- c,\n  d(X) e.", "3:8", "expected an operator or the dot that ends the clause, not `e`"),
        ("a :- 'x.\n", "1:6", "this quoted atom does not end"),
        ("/* a", "1:1", "this comment does not end"),
        ("a. b", "1:4", "this clause does not end"),
        ("1.5::a.", "1:1", "the probability 1.5 is not in [0, 1]"),
        ("0.6::a; 0.6::b.", "1:6", "the probabilities of the heads add up to 1.2, which is more than 1"),
        ("0.6::a; b.", "1:9", "a head of an annotated disjunction has no probability"),
        (
            "t(_, f(X))::a(X) :- b(X). b(1).",
            "1:1",
            "a probability that is learned for each value of a term with variables is not read",
        ),
        ("t(_, Y)::a(X) :- b(X). b(1).", "1:6", "`Y` has no value yet"),
        ("t(1.5)::a.", "1:1", "the start of a probability that is learned lies between 0 and 1"),
        ("X :- a.", "1:1", "a variable is no head of a clause"),
        ("a(X) :- b(X), Y > X. b(1). query(a(X)).", "1:15", "`Y` has no value yet"),
        (
            "a(X) :- \\+ c(X), b(X). b(1). c(1). query(a(X)).",
            "1:14",
            "`X` has no value yet where the negation is called",
        ),
        ("p(X,Y) :- q(X). q(1). query(p(X,Y)).", "1:5", "`Y` is not bound by the body"),
        ("a(X) :- b(X), X > 1. b(c). query(a(X)).", "1:15", "`X` is an atom, and no number"),
        ("a :- bb(1). b(1). c(2). bbb(3). query(a).", "1:6", "there are no clauses for `bb/1`"),
        ("a :- findall(X, b(X), L). b(1).", "1:6", "`findall` is not read"),
        ("l(L) :- findall(X, b(X), L). m :- l(_). a :- m. b(1). query(a).", "1:9", "`findall` is not read"),
        ("a :- b(X), b(Y), X @< Y. b(1). query(a).", "1:18", "`@<` is not read"),
        (":- use_module(library(clpfd)).", "1:23", "this library is not known"),
        ("evidence(a(X)). a(1).", "1:10", "evidence has no variables"),
        ("a :- \\+ b. b :- \\+ a. query(a).", "1:1", "the program is not stratifiable"),
        ("a :- X, b.", "1:6", "a goal is an atom"),
        ("a([1, 2).", "1:8", "expected `,` or `]`, not `)`"),
        ("0.5::d(1). 0.5::a(1). query(a(X)) :- d(X).", "1:38", "a query depends on what is uncertain"),
    ],
)
def test_errors_have_their_place(text, place, message):
    with pytest.raises(dv.DerivableError) as found:
        dv.Program.from_problog(text, "p.pl")
    assert str(found.value).startswith(f"p.pl:{place}: error: {message}"), str(found.value)


def test_an_unknown_predicate_is_a_warning_and_takes_facts():
    with pytest.warns(dv.DerivableWarning, match="there are no clauses for `edge/2`"):
        program = dv.Program.from_problog(
            "path(X, Y) :- edge(X, Y). path(X, Y) :- edge(X, Z), path(Z, Y). query(path(a, X))."
        )
    database = program.run({"edge": [("a", "b"), ("b", "c")]})
    assert list(database["path(a, X)"]) == [("a", "b"), ("a", "c")]


def test_counts_and_sums_over_solutions():
    program = dv.Program.from_problog("""
        0.5::a(1). 0.5::a(2). k(x). k(y). v(x, 3). v(x, 4).
        n(N) :- aggregate_all(count, a(X), N).
        s(K, S) :- k(K), aggregate_all(sum(V), v(K, V), S).
        m(M) :- aggregate_all(max(V), v(_, V), M).
        query(n(N)). query(s(K, S)). query(m(M)).
    """)
    database = program.run()
    assert dict(database["n"]) == pytest.approx({(0,): 0.25, (1,): 0.5, (2,): 0.25})
    assert list(database["s"]) == [("x", 7), ("y", 0)]
    assert list(database["m"]) == [(4,)]


def test_lists_come_back_as_terms():
    found = dv.Program.from_problog("a([1, x(b)]). query(a(X)).").run()["a"]
    [(term,)] = found
    assert str(term) == 'Cons(integer(1), Cons(x("b"), Nil()))'


def test_files(tmp_path, capsys):
    (tmp_path / "more.pl").write_text("0.5::p(a). p('B c').\n")
    (tmp_path / "main.pl").write_text(":- consult(more).\nq([X, 1.5]) :- p(X).\nquery(q(L)). query(p(z)).\n")
    assert main(["run", str(tmp_path / "main.pl")]) == 0
    assert sorted(capsys.readouterr().out.split("\n")) == ["", "0.5::q([a, 1.5])", "0::p(z)", "1::q(['B c', 1.5])"]
    (tmp_path / "more.pl").write_text("0.5::p(a.\n")
    assert main(["run", str(tmp_path / "main.pl")]) == 1
    assert "more:1:7: error" in capsys.readouterr().err


def test_worlds_over_some_atoms(tmp_path, capsys):
    """b holds with 1 - 0.5 * 0.6."""
    file = tmp_path / "main.pl"
    file.write_text("0.5::a(x). 0.4::a(y). b :- a(X). query(b).")
    assert main(["run", str(file), "--most-probable", "-k", "2", "--over", "b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["% world 1: probability 0.7", "b", "% world 2: probability 0.3", "\\+ b"]
    file.write_text("1.0::a('B c', [1|T]) :- T = []. 0.7::d(x). query(a(_, _)). query(d(_)).")
    assert main(["run", str(file), "--samples", "1", "--seed", "1"]) == 0
    assert capsys.readouterr().out.startswith("a('B c', [1])")
    assert main(["run", str(file), "--most-probable"]) == 0
    assert "d(x)" in capsys.readouterr().out.splitlines()
    assert main(["run", str(file), "--most-probable", "--over", "\\+ d(x)"]) == 1
    assert "has no `not`" in capsys.readouterr().err


def test_other_provenances_and_evidence_from_python():
    program = dv.Program.from_problog("0.5::a(x). 0.4::a(y). b :- a(X). query(b). query(a(X)).")
    assert program.run(provenance="minmaxprob")["b"][()] == 0.5
    assert program.run(evidence={"a": {"x": False}})["b"][()] == pytest.approx(0.4)


def test_a_coin_of_what_demand_binds():
    """0.4 for each pair, so that g(1) has two ways of 0.5 * 0.4 each."""
    database = dv.Program("""
        type f(bound x: i64, bound y: i64)
        rel 0.4::f(x, y) = true
        type r(x: i64)
        rel r = {1, 2}
        rel 0.5::g(x) = r(x), r(y), f(x, y)
        query g
    """).run()
    assert dict(database["g"]) == pytest.approx({(1,): 0.36, (2,): 0.36})


def test_probabilities_that_are_learned():
    """Of four worlds b holds in three, and c in two of these: counts are the maximum of the likelihood."""
    program = dv.Program.from_problog("t(_)::b. t(0.3)::c(X) :- b, k(X). k(1). query(c(X)).")
    worlds = [(True, True), (True, True), (True, False), (False, False)]
    fit = program.fit([{"b": b, "c": {1: c}} for b, c in worlds])
    assert sorted(fit.values()) == pytest.approx([2 / 3, 3 / 4], abs=1e-6)
    learned = program.with_parameters(fit)
    assert "t(" not in learned.text
    assert learned.run()["c"][(1,)] == pytest.approx(0.5, abs=1e-6)


def test_probabilities_that_are_learned_for_each_value():
    """Counts are the maximum of the likelihood: one for each X, whatever Y, and for each of two heads."""
    program = dv.Program.from_problog(
        "k(a, 1). k(a, 2). k(b, 1). t(_, X)::c(X, Y) :- k(X, Y)."
        " t(0.3, X)::d(X); t(0.3, X)::e(X) :- k(X, _). query(c(X, Y))."
    )
    worlds = [(1, 1, 0), (1, 0, 0), (1, 0, 1), (0, 0, 0)]
    fit = program.fit([{"c": {("a", 1): bool(u), ("a", 2): bool(v), ("b", 1): bool(w)}} for u, v, w in worlds])
    assert fit['c(X, Y) :- k(X, Y) where X = "a"'] == pytest.approx(4 / 8, abs=1e-6)
    assert fit['c(X, Y) :- k(X, Y) where X = "b"'] == pytest.approx(1 / 4, abs=1e-6)
    assert len(fit) == 2
    worlds = [(1, 0), (1, 0), (0, 1), (0, 0)]
    fit = program.fit([{"d": {"b": bool(u)}, "e": {"b": bool(v)}} for u, v in worlds])
    shares = [value for name, value in fit.items() if name.startswith(("d", "e")) and 'X = "b"' in name]
    assert shares == pytest.approx([2 / 4, 1 / 4], abs=1e-5)
    with pytest.raises(UnsupportedError, match="has a probability for each X"):
        program.with_parameters(fit)


def test_problog_learns_the_same_for_each_value():
    """The values are not observed themselves."""
    text = "t(0.4, X)::c(X) :- k(X). k(1). k(2). any :- c(1). any :- c(2). query(any)."
    program = dv.Program.from_problog(text)
    seen = [{"any": True}, {"any": True, "c": {1: True}}, {"any": True, "c": {2: False}}, {"any": False}]
    fit = program.fit(seen, tolerance=1e-12)
    from problog.learning.lfi import run_lfi
    from problog.logic import Constant, Term
    from problog.program import PrologString

    examples = []
    for one in seen:
        rows = [(Term("any"), one["any"], None)]
        rows += [(Term("c", Constant(x)), holds, None) for x, holds in one.get("c", {}).items()]
        examples.append(rows)
    _, weights, *_ = run_lfi(PrologString(text), examples, min_improv=1e-12)
    assert sorted(fit.values()) == pytest.approx(sorted(map(float, weights)), abs=1e-4)


def test_a_choice_that_is_learned():
    program = dv.Program.from_problog("t(0.3)::a(X); t(0.3)::b(X) :- k(X). k(1). k(2). k(3). k(4). query(a(1)).")
    fit = program.fit([{"a": {1: True, 2: True, 3: False, 4: False}, "b": {1: False, 2: False, 3: True, 4: False}}])
    assert sorted(fit.values()) == pytest.approx([0.25, 0.5], abs=1e-6)


def test_what_grows_without_end_is_an_error():
    program = dv.Program.from_problog("c(0). c(N) :- c(M), N is M+1. query(c(5)).")
    with pytest.raises(dv.DerivableError, match=r"<program>:1:7: error: the run passed round_limit = 10,000"):
        program.run()
    chain = "".join(f"e({i},{i + 1}). " for i in range(300))
    found = dv.Program.from_problog(chain + "p(X,Y) :- e(X,Y). p(X,Z) :- p(X,Y), e(Y,Z). query(p(0,300)).").run()
    assert list(found["p(0, 300)"]) == [(0, 300)]


@pytest.mark.parametrize("quotient", ["1 / X", "1.0 / X", "1 // X", "1 mod X", "1.0 // X"])
def test_quotients_by_zero_have_no_value(quotient):
    """ProbLog stops with an error at such a row."""
    program = dv.Program.from_problog(f"a(0). a(2). q(X) :- a(X), Y is {quotient}, Y < 5. query(q(_)).")
    assert set(program.run()["q"]) == {(2,)}


def test_shares_that_add_up_to_one_but_for_their_last_digit():
    shares = (0.2163554041415043, 0.41019925524180717, 0.3734453406166886)
    facts = "; ".join(f"{p!r}::c({k})" for k, p in enumerate(shares))
    heads = "; ".join(f"{p!r}::d(X, {k})" for k, p in enumerate(shares))
    database = dv.Program.from_problog(f"{facts}. x(1). {heads} :- x(X). query(c(_)). query(d(1, _)).").run()
    found = sorted(tag for name in database for tag in database[name].tag_list())
    assert found == pytest.approx(sorted(2 * shares), abs=1e-15)
