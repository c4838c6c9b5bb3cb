"""Many facts in a program of Soufflé's: the same with and without reading them in one go."""

import pytest

import derivable as dv
from derivable.core.diagnostics import DerivableError
from derivable.datalog.policy.costs import under
from derivable.datalog.souffle.lexer import SourceText, tokens_of
from derivable.datalog.souffle.nodes import Clause
from derivable.datalog.souffle.parse import parse

FACTS = "".join(f"p({i}, {-i}).\n" for i in range(40))
WORDS = "".join(f'q("w{i}",{i % 3}) .  ' + "\n" * (i % 2) for i in range(40))
PROGRAMS = {
    "numbers": f".decl p(x:number, y:number)\n{FACTS}.output p\n",
    "texts and numbers": f".decl q(x:symbol, y:unsigned)\n{WORDS}.output q\n",
    "between rules": (
        f".decl p(x:number, y:number)\n.decl r(x:number)\nr(x) :- p(x, _).\n{FACTS}r(y) :- p(_, y).\n.output r\n"
    ),
    "comments": f".decl p(x:number, y:number)\n{FACTS}// a\n{FACTS.replace('p(', 'p(1')}/* b\n */{FACTS}.output p\n",
    "floats": f".decl p(x:float, y:float)\n{FACTS}.output p\n",
    "subtypes": f".type A <: number\n.decl p(x:A, y:number)\n{FACTS}.output p\n",
    "too small": f".decl p(x:unsigned, y:unsigned)\n{FACTS}.output p\n",
    "too large": f".decl p(x:number, y:number)\n{FACTS}p(99999999999, 1).\n{FACTS}.output p\n",
    "another type": f".decl p(x:symbol, y:number)\n{FACTS}.output p\n",
    "another width": f".decl p(x:number)\n{FACTS}.output p\n",
    "not declared": f".decl r(x:number)\n{FACTS}.output r\n",
    "macro": f"#define p r\n.decl r(x:number, y:number)\n{FACTS}.output r\n",
    "condition": f".decl p(x:number, y:number)\np(7, 7).\n#ifdef A\n{FACTS}#endif\n.output p\n",
    "in a macro": ".decl p(x:number)\n#define A p(1). \\\n" + "p(2). \\\n" * 30 + "p(3).\nA\n.output p\n",
    "component": f".comp C {{ .decl p(x:number, y:number)\n{FACTS}{FACTS} }}\n.init c = C\n.output c.p\n",
    "overridden": (
        f".comp C {{ .decl p(x:number, y:number) overridable\n{FACTS} }}\n"
        ".comp D : C { .override p\np(5, 5). }\n.init d = D\n.output d.p\n"
    ),
    "inline": f".decl p(x:number, y:number) inline\n{FACTS}.decl r(x:number)\nr(x + y) :- p(x, y), x > 3.\n.output r\n",
    "subsumption": (
        f".decl p(x:number, y:number)\n{FACTS}{FACTS.replace(', -', ', ')}p(x, y) <= p(x, z) :- y <= z.\n.output p\n"
    ),
    "choice": f".decl p(x:number, y:number) choice-domain x\n{FACTS}.output p\n",
    "equivalence": f".decl p(x:number, y:number) eqrel\n{FACTS}.output p\n",
    "in a body": f".decl p(x:number, y:number)\n.decl r(x:number)\nr(1) :- r(2),\n{FACTS}.output r, p\n",
    "escapes": ".decl q(x:symbol)\n" + 'q("a\\n").\n' * 20 + 'q("b").\n' * 20 + ".output q\n",
    "error behind": f".decl p(x:number, y:number)\n{FACTS}p(1, ).\n",
    "unknown behind": f".decl p(x:number, y:number)\n{FACTS}r(1).\n",
}


def result(text):
    try:
        database = dv.Program.from_souffle(text).run()
    except DerivableError as error:
        return str(error)
    return {name: sorted(database[name]) for name in database}


@pytest.mark.parametrize("name", PROGRAMS)
def test_facts_read_in_one_go(name):
    with under(call_rows=1 << 30):
        expected = result(PROGRAMS[name])
    assert result(PROGRAMS[name]) == expected


def test_facts_are_one_token():
    file = SourceText(PROGRAMS["numbers"], "a")
    tokens = tokens_of(file, fewest_facts=16)
    assert [token.kind for token in tokens].count("facts") == 1
    assert len(tokens) < 50
    # The first one behind a declaration is read like others.
    [run] = [item.more for item in parse(tokens, file) if isinstance(item, Clause) and item.more is not None]
    assert run.columns == (tuple(range(2, 40)), tuple(range(-2, -40, -1)))


@pytest.mark.parametrize("name", ["numbers", "texts and numbers", "comments", "subsumption", "between rules"])
def test_facts_are_converted(name):
    text = PROGRAMS[name]
    converted = dv.Program.from_souffle(text).to_scallop()
    rows = result(text)
    database = dv.Program(converted).run()
    assert {name: sorted(database[name]) for name in rows} == rows
