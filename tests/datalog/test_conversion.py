"""Programs of other systems, written in this library's language: what they derive is what the originals derive."""

import re
import warnings

import pytest

import derivable as dv
from datalog.problog.random_programs import Generator
from datalog.problog.test_problog import PROGRAMS as PROBLOG
from datalog.test_souffle_aggregates import Drawn
from datalog.test_souffle_programs import CASES as SOUFFLE
from datalog.test_souffle_themes import CASES as THEMES
from derivable.cli.main import main
from derivable.datalog.foreign.standard import FUNCTIONS


def rows_of(database) -> list[tuple[tuple[str, ...], list[float] | None]]:
    """The rows and tags of each output, without its name, in an order that names do not matter for."""
    outputs = []
    for name in database:
        view = database[name]
        # Constructors may have got other names.
        texts = [re.sub(r"\b[A-Za-z_]\w*'?(?=\()", "f", repr(row)) for row in view]
        tags = [None] * len(texts) if view.tags is None else [round(float(tag), 9) for tag in view.tag_list()]
        outputs.append(sorted(zip(texts, tags)))
    return sorted(outputs, key=repr)


def check(original):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dv.DerivableWarning)
        text = original.to_scallop()
        expected = rows_of(original.run())
        assert rows_of(dv.Program(text).run(round_limit=20_000)) == expected, text


@pytest.mark.parametrize("name", SOUFFLE)
def test_programs_of_souffle(name):
    check(dv.Program.from_souffle(SOUFFLE[name][0]))


@pytest.mark.parametrize("name", [name for name in THEMES if ".printsize" not in THEMES[name][0]])
def test_programs_in_the_themes_of_souffle(name):
    check(dv.Program.from_souffle(THEMES[name][0]))


def test_aggregates_of_souffle():
    for seed in range(12):
        check(dv.Program.from_souffle(Drawn(seed).text))


@pytest.mark.parametrize("name", PROBLOG)
def test_programs_of_problog(name):
    check(dv.Program.from_problog(PROBLOG[name]))


def drawn_programs(seeds):
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dv.DerivableWarning)
            try:
                program = dv.Program.from_problog(Generator(seed).text())
                program.run()
            except dv.DerivableError:
                continue
        check(program)


def test_random_programs_of_problog():
    drawn_programs(range(15))


@pytest.mark.slow
def test_many_random_programs_of_problog():
    drawn_programs(range(100, 500))


SOUFFLE_TEXT = """// Flights.

.type Airport <: symbol // the names of airports
/* Components
   are flattened. */
.comp Graph<N> {
    // edges
    .decl edge(from:N, to:N, length:number)
    .decl reach(from:N, to:N)  // what can be reached
    // one flight
    reach(x, y) :- edge(x, y, _).
    reach(x, z) :- reach(x, y), /* one more */ edge(y, z, l), l + 1 <= 100.
}
.init air = Graph<Airport>
.input air.edge(filename="flight.facts")

// "Some" facts
air.edge("a", "//", 3). air.edge("b", "c", 4). // the last one
air.edge("c", "d", 5).
// sizes
.printsize air.edge
.output air.reach
// the end
"""

OF_SOUFFLE = """// Flights.

// the names of airports
// Components
// are flattened.
// edges
@file("flight.facts", header=false, delimiter="\\t", quotes=false) type air_edge(from: String, to: String, length: i32)
type air_reach(from: String, to: String)  // what can be reached
// one flight
rel air_reach(x, y) = air_edge(x, y, _)
// one more
rel air_reach(x, z) = air_reach(x, y) and air_edge(y, z, l) and $wrapping_add(l, 1) <= 100

// "Some" facts
rel air_edge = {("a", "//", 3)}
rel air_edge = {("b", "c", 4)}  // the last one
rel air_edge = {("c", "d", 5)}
// sizes
rel air_edge_size(n) = n := count(x0, x1, x2: air_edge(x0, x1, x2))
query air_edge_size
query air_reach
// the end
"""


def test_comments_of_souffle_stand_where_they_stood():
    assert dv.Program.from_souffle(SOUFFLE_TEXT).to_scallop() == OF_SOUFFLE


def test_comments_of_problog_stand_where_they_stood():
    text = """%% Smokers
0.3::stress(X) :- person(X).  % a coin
% 100% sure
person('a % b'). person(bob).
smokes(X) :- % either
    stress(X) ;
    friend(X, Y), smokes(Y).

/* friends */
friend(bob, 'a % b').
query(smokes(bob)).
"""
    expected = """type stress(String)
type person(String)
type smokes(String)
type friend(String, String)
// Smokers
rel 0.3::stress(x) = person(x)  // a coin
// 100% sure
rel person = {("a % b"), ("bob")}
// either
rel smokes(x) = (stress(x) or (friend(x, y) and smokes(y)))

// friends
rel friend = {("bob", "a % b")}
type smokes_bob(String)
rel smokes_bob("bob") = smokes("bob")
query smokes_bob
"""
    assert dv.Program.from_problog(text).to_scallop() == expected


def test_long_items_have_several_lines():
    names = [f'("airport {i}")' for i in range(20)]
    text = ".decl p(x:symbol)\n" + "".join(f"p{name}.\n" for name in names)
    text += ".decl q(x:symbol)\nq(x) :- " + ", ".join(["p(x)"] * 20) + ".\n.output q"
    program = dv.Program.from_souffle(text)
    assert max(map(len, program.to_scallop().splitlines())) <= 100
    check(program)


def test_files_and_functors(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n.facts").write_text("1\n4\n")
    (tmp_path / "lib.dl").write_text("// of another file\n.decl n(x:number)\n")
    (tmp_path / "a.dl").write_text(
        '// first\n#include "lib.dl"\n.functor convert_half(x:number):number\n.input n(filename="n.facts")\n'
        ".decl h(x:number) h(@convert_half(x)) :- n(x).\n.output h"
    )
    assert main(["convert", "a.dl", "a.scl"]) == 0
    text = (tmp_path / "a.scl").read_text()
    assert "type $convert_half(i32) -> i32" in text
    assert "// of another file\n@file(" in text
    (tmp_path / "f.py").write_text(
        "import derivable as dv\n\n"
        "@dv.datalog.function(name='convert_half')\ndef half(x: int) -> int:\n    return x // 2\n"
    )
    try:
        assert main(["run", "a.scl", "--python", "f.py"]) == 0
    finally:
        FUNCTIONS.remove("convert_half")
    assert capsys.readouterr().out == "h(0)\nh(2)\n"


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ('delimiter=";"', '"a";1\na b;2\n"c;3\n'),
        ('delimiter=",", rfc4180="true"', '"a, b",1\n"c ""d""",2\n'),
        ('filename="p.facts"', 'a b\t1\n"c"\t2\n'),
        ('filename="p.facts"', "a\t1\r\nb\t2\r\n"),
    ],
)
def test_quotes_in_files_are_those_of_souffle(tmp_path, monkeypatch, options, lines):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.facts").write_bytes(lines.encode())
    program = dv.Program.from_souffle(f".decl p(x:symbol, n:number)\n.input p({options})\n.output p")
    expected = sorted(program.run(program.read(tmp_path))["p"])
    assert sorted(dv.Program(program.to_scallop()).run()["p"]) == expected
    assert len(expected) == lines.count("\n")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.dl", ".decl p(x:number)\n.input p(IO=sqlite, filename='a')".replace("'", '"'), "a.dl:2:1: error: `@file`"),
        ("a.dl", '.decl p(x:number)\n.input p(columns="1")', "a.dl:2:1: error: `@file` has no `columns`"),
        ("a.dl", ".decl p(x:number\n", "a.dl:1:11: error"),
        ("a.txt", "p(1).", "a.txt: error: this is no program of another system"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_its_line(tmp_path, capsys, monkeypatch, name, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    assert main(["convert", name]) == 1
    assert message in capsys.readouterr().err


def test_options_of_souffle_are_for_its_programs(tmp_path, capsys):
    (tmp_path / "a.pl").write_text("a.\n")
    (tmp_path / "a.dl").write_text(".decl p(x:number)\np(N).\n")
    assert main(["convert", str(tmp_path / "a.pl"), "-M", "N=3"]) != 0
    assert "--macro and --word are for programs of Souffl" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "a.dl"), "-M", "N=3", "--word", "64"]) == 0
    assert capsys.readouterr().out == "type p(x: i64)\nquery p\nrel p = {(3)}\n"


def test_networks(tmp_path, capsys):
    path = tmp_path / "rain.bif"
    path.write_text(
        "network n {}\nvariable rain { type discrete [ 2 ] { yes, no }; }\nprobability ( rain ) { table 0.2, 0.8; }\n"
    )
    assert main(["convert", str(path), str(tmp_path / "rain.scl")]) == 0
    assert main(["run", str(tmp_path / "rain.scl")]) == 0
    assert capsys.readouterr().out == '0.8::value("rain", "no")\n0.2::value("rain", "yes")\n'
