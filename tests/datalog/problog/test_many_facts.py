"""Many facts in a program of ProbLog's: the same with and without reading them in one go, and as ProbLog."""

import pytest

import derivable as dv
from datalog.problog.random_programs import answers_of_ours, answers_of_problog, differences
from derivable.core.diagnostics import DerivableError
from derivable.datalog.policy.costs import under
from derivable.datalog.problog.reader import Reader
from derivable.datalog.syntax.lexer import LineStarts

NUMBERS = "".join(f"e({i}, {i + 1}).\n" for i in range(20))
TAGGED = "".join(f"0.{i + 1}::c({i % 7}, a{i}). " for i in range(20))
ATOMS = "".join(f"w('B {i}', \"t{i}\", -{i}).\n" for i in range(20))
PATHS = "p(X,Y) :- e(X,Y), X < 3. p(X,Z) :- p(X,Y), e(Y,Z), Z < 6. query(p(0,_)).\n"
OBSERVED = "".join(f"evidence(h({i})).\n" for i in range(16))
PROGRAMS = {
    "numbers": NUMBERS + PATHS,
    "probabilities": f"{TAGGED}q(X) :- c(X, _). query(q(_)).",
    "texts": f"{ATOMS}q(A, B) :- w(A, B, N), N > -3. query(q(_, _)).",
    "between clauses": f"q(X) :- e(X, _), X < 4.\n{NUMBERS}0.5::q(9).\n{NUMBERS.replace('(', '(1')}query(q(_)).",
    "integers and atoms in a column": f"{NUMBERS}e(a, b). q(X) :- e(X, b). r(X) :- e(1, X). query(q(_)). query(r(_)).",
    "tags with atoms and integers": f"{TAGGED}0.3::c(a, 1). q(X) :- c(X, _). query(q(_)).",
    "equal facts": "0.3::a(1). " * 20 + "query(a(_)).",
    "queries": NUMBERS + "".join(f"query(e({i}, {i + 1})).\n" for i in range(20)),
    "evidence": "".join(f"0.5::h({i}).\n" for i in range(17)) + OBSERVED + "query(h(_)).",
    "called": f"same(X, X). {NUMBERS}q(X) :- e(X, Y), same(Y, 3). query(q(_)).",
    "no query reaches": f"{NUMBERS}a. query(a).",
    "too large": NUMBERS + "0.5::x(1). 1.5::x(2). query(x(_)).",
    "tags above one": "".join(f"1.{i}::x({i}). " for i in range(1, 20)) + "query(x(_)).",
    "quotes": "".join(f"x('a''{i}'). " for i in range(20)) + "query(x(_)).",
    "an error behind": NUMBERS + "e(1, .",
    "floats": "".join(f"f({i}.5). " for i in range(20)) + "q(X) :- f(X), X < 2. query(q(_)).",
}
BAD = ("too large", "tags above one", "an error behind")


def result(text):
    try:
        return answers_of_ours(text)
    except DerivableError as error:
        return str(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_facts_read_in_one_go(name):
    text = PROGRAMS[name]
    with under(call_rows=1 << 30):
        expected = result(text)
    assert result(text) == expected
    assert isinstance(expected, str) == (name in BAD)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in (*BAD, "quotes")])
def test_as_problog_answers(name):
    pytest.importorskip("problog")
    assert not differences(answers_of_problog(PROGRAMS[name]), result(PROGRAMS[name]))


def test_facts_are_one_token():
    kinds = [token.kind for token in Reader(LineStarts(NUMBERS * 2), "a").tokens]
    assert kinds.count("facts") == 1
    assert len(kinds) < 12


@pytest.mark.parametrize("name", ["numbers", "probabilities", "texts", "between clauses"])
def test_facts_are_converted(name):
    program = dv.Program.from_problog(PROGRAMS[name])
    rows = []
    for database in (program.run(), dv.Program(program.to_scallop()).run()):
        views = [database[name] for name in database]
        tags = [[1.0] * len(view) if view.tags is None else view.tags for view in views]
        rows.append(sorted((str(row), tag) for view, of_view in zip(views, tags) for row, tag in zip(view, of_view)))
    assert rows[0] == rows[1]
