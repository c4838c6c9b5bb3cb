"""Soufflé's files of facts and results: what is read, the bytes that are written, and the errors in between."""

import gc
import gzip
import io
import json
import random
import sqlite3

import pytest

import derivable as dv
from derivable.cli.main import main
from derivable.core.diagnostics import DerivableError, DomainError, ParseError
from derivable.datalog.foreign.standard import FUNCTIONS

TYPES = """
.type List = [head:number, tail:List]
.type Shape = Dot {} | Box {name:symbol, sides:List}
"""


def program(text, **options):
    return dv.Program.from_souffle(TYPES + text, **options)


def test_values_of_all_types_are_read_and_written(tmp_path):
    lines = '1\ta b\t7\t2.5\t[1, [2, nil]]\t$Box(x, [3, nil])\n-2\t"q"\t4294967295\t1e+10\tnil\t$Dot\n'
    (tmp_path / "p.facts").write_text(lines)
    p = program(".decl p(a:number, b:symbol, c:unsigned, d:float, e:List, f:Shape)\n.input p\n.output p\n")
    [path] = p.write(p.run(p.read(tmp_path)), tmp_path / "out")
    assert path == tmp_path / "out" / "p.csv"
    assert sorted(path.read_text().splitlines()) == sorted(lines.splitlines())


def test_floats_have_the_digits_of_their_bits(tmp_path):
    texts = {
        32: ["0.100000001", "1e+10", "inf", "3", "1.5", "16777216"],
        64: ["0.10000000000000001", "1.0000000000000001e+300", "3"],
    }
    for word, wanted in texts.items():
        (tmp_path / "p.facts").write_text("\n".join(wanted) + "\n")
        p = program(".decl p(x:float)\n.input p\n.output p", word=word)
        [path] = p.write(p.run(p.read(tmp_path)), tmp_path)
        assert sorted(path.read_text().split()) == sorted(wanted)


@pytest.mark.parametrize(
    ("options", "content"),
    [
        ("", "1\tx y\n2\t\n"),
        ('delimiter=","', "1,x y\n2,\n"),
        ('delimiter="::"', "1::x y\n2::\n"),
        ("rfc4180=true", '1,"x y"\r\n2,""\r\n'),
        ('columns="2:0"', "x y\t9\t1\n\t9\t2\n"),
        ("headers=true", "a\tb\n1\tx y\n2\t\n"),
        ('filename="other.txt"', "1\tx y\n2\t\textra\n"),
    ],
)
def test_files_of_lines(tmp_path, options, content):
    name = "other.txt" if "filename" in options else "p.facts"
    (tmp_path / name).write_bytes(content.encode())
    p = program(f".decl p(a:number, b:symbol)\n.input p({options})")
    assert sorted(p.run(p.read(tmp_path))["p"]) == [(1, "x y"), (2, "")]


def test_forms_of_results(tmp_path):
    p = program("""
    .decl p(a:number, b:symbol)
    p(1, "x"). p(2, "say \\"y\\"").
    .output p(filename="a.csv", rfc4180=true, headers=true)
    .output p(filename="b.gz", compress=true)
    .output p(IO=json)
    .output p(IO=json, format=object, filename="d.json")
    .output p(IO=sqlite, filename="e.db")
    .decl q()
    q() :- p(1, _).
    .output q
    """)
    files = {path.name: path for path in p.write(p.run(), tmp_path)}
    assert files["a.csv"].read_text() == 'a,b\n1,"x"\n2,"say ""y"""\n'
    assert gzip.decompress(files["b.gz"].read_bytes()) == b'1\tx\n2\tsay "y"\n'
    assert json.loads(files["p.json"].read_text()) == [[1, "x"], [2, 'say "y"']]
    assert json.loads(files["d.json"].read_text()) == [{"a": 1, "b": "x"}, {"a": 2, "b": 'say "y"'}]
    assert sqlite3.connect(files["e.db"]).execute("SELECT * FROM p").fetchall() == [(1, "x"), (2, 'say "y"')]
    assert files["q.csv"].read_text() == "()\n"


@pytest.mark.parametrize("io", ["json", "sqlite", "file"])
def test_what_is_written_is_read(tmp_path, io):
    declared = ".decl p(a:number, b:symbol, c:float, d:List, e:Shape)\n"
    facts = 'p(1, "x", 0.5, [1, [2, nil]], $Box("n", nil)). p(-1, "y", 2.0, nil, $Dot()).\n'
    place = f'IO={io}, filename="f"'
    first = program(f"{declared}{facts}.output p({place})")
    found = first.run()
    first.write(found, tmp_path)
    second = program(f"{declared}.input p({place})\n.output p")
    assert list(second.run(second.read(tmp_path))["p"]) == list(found["p"])


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("1\tx\ny\tz\n", "2:1", "column 1 of `p`: 'y' is no number"),
        ("1\tx\n2\n", "2:1", "1 column; `p` needs 2"),
        ("99999999999\tx\n", "1:1", "too large or too small for number of 32 bits"),
    ],
)
def test_a_wrong_line_has_its_place(tmp_path, line, place, message):
    (tmp_path / "p.facts").write_text(line)
    p = program(".decl p(a:number, b:symbol)\n.input p")
    with pytest.raises(ParseError, match=message) as caught:
        p.read(tmp_path)
    assert f"p.facts:{place}: error:" in str(caught.value)


def test_a_directive_that_cannot_be_followed_has_its_place(tmp_path):
    for directive, message in (
        (".input p", "cannot find the facts of `p`"),
        (".input p(IO=mysql)", "has no IO=mysql"),
        (".input p(file=x)", "unknown option `file`"),
    ):
        p = program(f".decl p(a:number)\n{directive}")
        with pytest.raises(DomainError, match=message) as caught:
            p.read(tmp_path)
        assert caught.value.span.line == 5


def test_programs_of_others_stay_in_their_folders(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.facts").write_text("1\n")
    p = program(
        '.decl p(a:number)\n.input p(filename="../secret.facts")\n.output p(filename="../x")', roots=[tmp_path / "in"]
    )
    with pytest.raises(DomainError, match="may not read"):
        p.read(tmp_path / "in")
    with pytest.raises(DomainError, match="may not write"):
        p.write(p.run(), tmp_path / "in")
    with pytest.raises(ParseError, match="may not read"):
        program('#include "/etc/hostname"\n', roots=[tmp_path / "in"])


def test_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib.dl").write_text("#define STEP(x, y) edge(x, y), x < LIMIT\n")
    (tmp_path / "tc.dl").write_text(
        '#include "lib.dl"\n.decl edge(x:number, y:number)\n.input edge\n.decl path(x:number, y:number)\n'
        "path(x, y) :- STEP(x, y).\npath(x, z) :- path(x, y), STEP(y, z).\n.output path\n.printsize path\n"
    )
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "edge.facts").write_text("1\t2\n2\t3\n7\t8\n")
    command = ["run", "tc.dl", "-F", "facts", "-M", "LIMIT=5"]
    assert main([*command, "-D", "out"]) == 0
    assert capsys.readouterr().out == "path\t3\n"
    assert (tmp_path / "out" / "path.csv").read_text() == "1\t2\n1\t3\n2\t3\n"
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": {"tuples": [[1, 2], [1, 3], [2, 3]]}}
    assert main([*command, "-D", "-"]) == 0
    assert (
        capsys.readouterr().out
        == "---------------\npath\n===============\n1\t2\n1\t3\n2\t3\n===============\npath\t3\n"
    )
    assert main(["run", "tc.dl", "-F", "facts"]) == 1
    assert "tc.dl:5:15: error: the variable `LIMIT` is not bound" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (".decl p(x:number)\np(x) :- p(y).", "2:3", "`x` is not bound"),
        (".decl p(x:number)\np(x) :- p(x), !p(y).", "2:18", "`y` is not bound"),
        (".decl p(x:number)\np(1, 2).", "2:1", "`p` has 1 column, but is used with 2 here"),
        ('.decl p(x:number)\np("a").', "2:3", "this is of the type symbol"),
        (".decl p(x:number)\nq(1).", "2:1", "the relation `q` is not declared"),
        (".decl p(x:numbr)", "1:9", "unknown type `numbr`"),
        (".decl p(x:number)\np(1)", "2:4", "expected `.` or `:-`"),
        (".decl p(x:number)\np(x) :- x = [1, 2].", "2:13", "this is a record, and the type here is number"),
        (".type L = [a:number]\n.decl p(x:L)\np([1, 2]).", "3:3", "the record has 1 field, 2 given"),
        (".init g = Graph", "1:11", "unknown component `Graph`"),
        ("#if 1\n.decl p(x:number)\n", "1:1", "this condition does not end"),
        (".decl p(x:number)\np(n) :- n = count : { p(1); p(2) }.", "2:13", "no alternatives in its body"),
        (".decl p(x:number)\n.output q", "2:1", "the relation `q` is not declared"),
        ('.decl p(x:symbol)\np("\\q").', "2:3", "is no escape"),
    ],
)
def test_what_is_wrong_has_its_place(text, place, message):
    with pytest.raises(DerivableError, match=message.replace("(", r"\(").replace("{", r"\{")) as caught:
        dv.Program.from_souffle(text)
    assert f"<program>:{place}: error:" in str(caught.value)


def test_an_error_in_an_included_file_names_it(tmp_path):
    (tmp_path / "lib.dl").write_text(".decl p(x:number)\np(y) :- p(x).\n")
    (tmp_path / "main.dl").write_text('\n\n#include "lib.dl"\n')
    with pytest.raises(DerivableError, match=r"lib\.dl:2:3: error: the variable `y` is not bound"):
        dv.Program.from_file(tmp_path / "main.dl")


MUTATED = """
#define BIG(x) (x > 2)
.type L = [head:number, tail:L]
.type T = A {x:number} | B {}
.comp G<N> { .decl e(a:N, b:N) overridable
 e(x, y) :- e(y, x). }
.init g = G<number>
g.e(1, 2). g.e(2, 3).
.decl p(x:number, s:symbol, l:L, t:T)
p(n, cat("a", to_string(n)), [n, nil], $A(n)) :- g.e(n, _), (BIG(n) ; !g.e(n, 1)).
.decl q(x:number) eqrel
.decl r(n:number)
r(max x : { p(x, _, [x, _], $A(x)) } + sum y : { g.e(y, z), z != 2 }).
.output r, p(IO=file, delimiter=";")
"""


def test_mutated_programs_have_an_answer_or_an_error_of_ours():
    drawn = random.Random(7)
    signs = [*"().,:;![]{}<>=$@#\"'_+-*/ \n", "number", ":-", "count", "nil", ".decl ", "x", "0", "9" * 30]
    messages = []
    for _ in range(200):
        text = MUTATED
        for _ in range(drawn.choice((1, 1, 2, 4))):
            place = drawn.randrange(len(text))
            match drawn.randrange(4):
                case 0:
                    text = text[:place] + text[place + drawn.randrange(1, 5) :]
                case 1:
                    text = text[:place] + drawn.choice(signs) + text[place:]
                case 2:
                    text = text[:place] + drawn.choice(signs) + text[place + 1 :]
                case _:
                    other = drawn.randrange(len(text))
                    text = text[:place] + text[other : other + 9] + text[place:]
        try:
            dv.Program.from_souffle(text).run(time_limit=5, round_limit=50)
        except DerivableError as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert all("error:" in message for message in messages)


def test_facts_come_from_standard_input(monkeypatch, capsys):
    p = program(".decl p(x:number)\n.input p(IO=stdin)\n.decl q(x:number)\nq(x + 1) :- p(x).\n.output q(IO=stdout)")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1\n41\n")))
    assert p.write(p.run(p.read()), None) == []
    assert capsys.readouterr().out == "---------------\nq\n===============\n2\n42\n===============\n"


def test_functors_go_with_the_last_that_needs_them():
    text = ".functor f(x:number):number\n.decl p(x:number)\n.decl q(x:number)\np(1).\nq(@f(x)) :- p(x).\n.output q\n"
    before = FUNCTIONS.names()
    for i in range(3):
        rows = list(dv.Program.from_souffle(text, functors={"f": lambda x, i=i: 10 * x + i}).run()["q"])
        assert rows == [(10 + i,)]
    gc.collect()
    assert FUNCTIONS.names() == before
    calls = {"f": lambda x: 7 * x}
    database = dv.Program.from_souffle(text, functors=calls).run(keep=True)
    other = dv.Program.from_souffle(text, functors=calls)
    assert len(FUNCTIONS.names()) == len(before) + 1
    del other
    gc.collect()
    database.add({"p": [(2,)]})
    assert sorted(database["q"]) == [(7,), (14,)]
    del database
    gc.collect()
    assert FUNCTIONS.names() == before
