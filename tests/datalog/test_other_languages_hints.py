"""What other languages' words, files and names lead to: one sentence that says how it is done here."""

import pytest

import derivable as dv
from derivable.cli.main import main
from derivable.core.diagnostics import ParseError
from derivable.core.other_files import LANGUAGES, other_language

FILES = {
    "tc.prolog": ("% closure\nedge(1, 2).\npath(X, Y) :- edge(X, Y).\n", "Prolog or ProbLog"),
    "coin.txt": ("0.4::heads(1).\n0.6 :: heads(2).\nsomebody :- heads(_).\nquery(somebody).\n", "Prolog or ProbLog"),
    "net.txt": (
        "network unknown {\n}\nvariable rain {\n  type discrete [ 2 ] { yes, no };\n}\n"
        "probability ( rain ) {\n  table 0.2, 0.8;\n}\n",
        "Bayesian network in BIF",
    ),
    "uai.txt": ("MARKOV\n2\n2 2\n1\n2 0 1\n4\n 1.0 2.0 3.0 4.0\n", "UAI"),
    "four.psdd": ("c ids of psdd nodes start at 0\nc\npsdd 3\nL 0 0 1\nL 1 1 2\nD 2 1 1 0 1 0.0\n", "PSDD"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_languages_are_known(tmp_path, capsys, name):
    text, title = FILES[name]
    (tmp_path / name).write_text(text)
    (tmp_path / "any.txt").write_text(text)
    for path in (tmp_path / name, tmp_path / "any.txt"):
        assert main(["run", str(path)]) == 1
        message = capsys.readouterr().err
        assert message.count("error:") == 1
        assert title in message
        assert "help: " in message
        for command in (["compile", str(path), "-o", str(tmp_path / "x.dvc")], ["count", str(path)]):
            assert main(command) == 1
            message = capsys.readouterr().err
            assert title in message
            assert len(message.splitlines()) == 2
    for door in (dv.circuit.load, dv.circuit.compile):
        with pytest.raises(ParseError, match=title):
            door(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("x.cnf", "c a comment\np cnf 3 2\n1 -2 0\n2 3 0\n", "a CNF formula"),
        ("x.dimacs", "p cnf 1 1\n1 0\n", "a CNF formula"),
        ("x.nnf", "nnf 1 0 1\nL 1\n", "a circuit"),
        ("d4.nnf", "o 1 0\nt 2 0\n1 2 1 0\n", "a circuit"),
        ("x.sdd", "c one\nsdd 1\nT 0\n", "a circuit"),
    ],
)
def test_circuits_are_no_programs(tmp_path, capsys, name, text, title):
    (tmp_path / name).write_text(text)
    assert main(["run", str(tmp_path / name)]) == 1
    message = capsys.readouterr().err
    assert f"this is {title}, and no program" in message
    assert "`derivable count` counts its models" in message
    assert len(message.splitlines()) == 2


def test_programs_and_texts_of_ours_are_none_of_these(tmp_path):
    (tmp_path / "p.pl").write_text("rel p = {1}\nquery p")
    assert list(dv.Program.from_file(tmp_path / "p.pl").run()["p"]) == [(1,)]
    (tmp_path / "q.lp").write_text("rel p(x) = q(x, \nquery p")
    with pytest.raises(ParseError, match=r"q.lp:2:1: error: expected"):
        dv.Program.from_file(tmp_path / "q.lp")
    assert other_language("p.scl", "rel path(x, y) = edge(x, y)\n// a :- b\n") is None
    assert other_language("x.cnf", "p cnf 1 1\n1 0\n") is None
    assert other_language("NET.BIF.gz", "") in LANGUAGES


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("rel and = {1}", "and"),
        ("rel in(x) = q(x)", "in"),
        ("rel type = {1}", "type"),
        ("rel as(1)", "as"),
        ("type const(i32)", "const"),
        ("rel p(x) = q(x), else(x)", "else"),
        ("query const", "const"),
        ("rel new(x) = p(x)", "new"),
        ("rel if(1)", "if"),
        ("rel case(1)", "case"),
        ("rel not(1)", "not"),
        ("rel is(1)", "is"),
        ("type is(i32)", "is"),
        ("rel true = {1}", "true"),
        ("rel a(1) rel false(x) = a(x)", "false"),
        ("rel p(x) = q(x), where(x)", "where"),
        ("rel p(x) = is(x)", "is"),
    ],
)
def test_a_keyword_as_a_relation_is_said_to_be_one(text, word):
    with pytest.raises(ParseError, match=f"help: `{word}` is a keyword and cannot be a relation: .* `{word}_`"):
        dv.Program(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('rel p(x) = q(x), $contains(x, "a")', 'string_find(x, "a", _, _)'),
        ('rel p(x) = q(x), $contains("a", x)', 'string_find(x, "a", _, _)'),
        ('rel p(x) = q(x), $LIKE(x, "a")', 'write `x == "a"`'),
        ('rel p(x) = q(x), $starts_with(x, "a")', '$substring(x, 0, $string_length("a")) == "a"'),
        ('rel p(x) = q(x), $ends_with(x, "a")', 'string_find(x, "a", _, $string_length(x))'),
        ("rel p($substr(x, 1, 2)) = q(x)", "$substring(x, 1, 1 + 2)"),
        ("rel p($strlen(x)) = q(x)", "$string_length(x)"),
        ("rel p($to_lower(x)) = q(x)", "$string_lower(x)"),
        ("rel p($itof(x)) = q(x)", "x as f64"),
        ("rel p($instr(x, y)) = q(x, y)", "$string_index_of(x, y)"),
        ("rel p($find(x, y)) = q(x, y)", "$string_index_of(x, y)"),
        ('rel p(x) = q(x), $like(x, "%bc%")', 'string_find(x, "bc", _, _)'),
        ('rel p(x) = q(x), $like(x, "a%b")', "derivable.datalog.predicate"),
        ("rel p($trim(x)) = q(x)", "$string_trim(x)"),
        ("rel p($year(x)) = q(x)", "$datetime_year(x)"),
        ('rel p(x) = q(x), $match("a.*", x)', "derivable.datalog.predicate"),
        ('rel p(x) = q(x), x LIKE "%bc%"', 'write the atom `string_find(x, "bc", _, _)`'),
        ('rel p(x) = q(x), x LIKE "ab%"', 'write `$substring(x, 0, 2) == "ab"`'),
        ('rel p(x) = q(x) and x like "%bc"', 'string_find(x, "bc", _, $string_length(x))'),
        ('rel p(x) = q(x), x LIKE "a%b_"', "derivable.datalog.predicate"),
        ("rel p(x) = q(x), x BETWEEN 1 AND 3", "write `x >= 1, x <= 3`"),
        ("rel p(x) = q(x, y), y IS NULL", "not known is no fact"),
    ],
)
def test_words_of_other_systems_lead_to_ours(text, hint):
    with pytest.raises(dv.DerivableError) as caught:
        dv.Program(text)
    assert hint in str(caught.value)


def test_a_condition_that_looks_like_an_atom_is_said_at_the_run():
    program = dv.Program('type q(String)\nrel q = {"abc"}\nrel p(x) = q(x), contains(x, "b")\nquery p')
    with pytest.warns(dv.DerivableWarning, match=r"`contains` is empty: .*\n.*\n.*\nhelp: write the atom `string_find"):
        program.run()


def test_what_the_hints_write_is_right():
    text = 'rel q = {"abc", "xbc", "b", "cab"}\nrel p(x) = q(x), {}\nquery p'
    for condition, expected in [
        ('string_find(x, "b", _, _)', {"abc", "xbc", "b", "cab"}),
        ('$substring(x, 0, $string_length("ab")) == "ab"', {"abc"}),
        ('string_find(x, "bc", _, $string_length(x))', {"abc", "xbc"}),
    ]:
        assert {x for (x,) in dv.Program(text.replace("{}", condition)).run()["p"]} == expected
