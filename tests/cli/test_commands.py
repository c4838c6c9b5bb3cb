"""The command line in this process: what each subcommand prints, and which status it returns."""

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from derivable import __version__
from derivable.cli import main as entry
from derivable.cli.main import BUG, INTERRUPTED, USER_ERROR, main
from derivable.core.diagnostics import DerivableError

PROGRAM = """type edge(a: i32, b: i32)
rel edge = {0.5::(0, 1), 0.8::(1, 2), 0.5::(0, 2)}
rel path(a, b) = edge(a, b) or (path(a, c) and edge(c, b))
rel word = {"a b", "c"}
query path
"""
CNF = "p cnf 3 2\n1 -2 0\n2 3 0\n"
WEIGHTED = "p cnf 2 1\n1 2 0\nc p weight 1 0.25 0\nc p weight -1 0.75 0\nc p weight 2 0.5 0\nc p weight -2 0.5 0\n"


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "graph.scl"
    path.write_text(PROGRAM)
    return str(path)


@pytest.fixture
def cnf(tmp_path):
    path = tmp_path / "small.cnf"
    path.write_text(CNF)
    return str(path)


def test_run(program, capsys):
    assert main(["run", program, "--provenance", "unit"]) == 0
    assert capsys.readouterr().out == "path(0, 1)\npath(0, 2)\npath(1, 2)\n"


def test_run_why(program, capsys):
    assert main(["run", program, "--why", "path(0, 2)", "--why-not", "path(2, 0)", "--depth", "2"]) == 0
    why, why_not = capsys.readouterr().out.split("\n\n")
    rule = f"path(a, b) = edge(a, b) or (path(a, c) and edge(c, b))  ({program}:3)"
    assert why.splitlines() == [
        f"0.5::path(0, 2)  by {rule}",
        f"└─ 0.5::edge(0, 2)  a fact of the program  ({program}:2)",
    ]
    assert why_not.splitlines()[0] == "path(2, 0) does not hold"
    assert "fails: edge(2, 0)" in why_not
    assert main(["run", program, "--why", "path(0, 2)", "-k", "5", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert [proof["nodes"][0]["probability"] for proof in document["proofs"]] == [0.5, 0.4]
    for arguments, message in (
        (["--why", "path(2, 0)"], "`path(2, 0)` does not hold, so there is no proof"),
        (["--why", "not path(0, 2)"], "--why takes one tuple"),
        (["--why", "way(0, 2)"], "way"),
    ):
        assert main(["run", program, *arguments]) == USER_ERROR
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("provenance", [["--provenance", "exact"], []])
def test_run_exact(program, capsys, provenance):
    assert main(["run", program, *provenance]) == 0
    assert capsys.readouterr().out == "0.5::path(0, 1)\n0.7::path(0, 2)\n0.8::path(1, 2)\n"


def test_run_with_a_class_of_a_file(program, tmp_path, capsys):
    text = "class Noisy:\n    zero = staticmethod(lambda: 0.0)\n    one = staticmethod(lambda: 1.0)\n"
    text += "    add = staticmethod(max)\n    mult = staticmethod(lambda a, b: a * b)\n"
    (tmp_path / "noisy.py").write_text(text)
    assert main(["run", program, "--provenance", f"{tmp_path}/noisy.py:Noisy"]) == 0
    assert capsys.readouterr().out == "0.5::path(0, 1)\n0.5::path(0, 2)\n0.8::path(1, 2)\n"
    assert main(["run", program, "--provenance", f"{tmp_path}/noisy.py:Nois"]) == USER_ERROR
    assert "did you mean 'Noisy'" in capsys.readouterr().err


def test_run_time_limit(tmp_path, capsys):
    (tmp_path / "endless.scl").write_text("rel n(0) rel n(x + 1) = n(x)")
    assert main(["run", str(tmp_path / "endless.scl"), "--time-limit", "0.2"]) == USER_ERROR
    assert "error: the run did not finish within 0.2 s" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "endless.scl"), "--time-limit", "0"]) == USER_ERROR


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tuple-limit", "50"], "the run passed tuple_limit = 50"),
        (["--round-limit", "20"], "the run passed round_limit = 20"),
        (["--memory-limit", "much"], "memory_limit is 'much'"),
        (["--stop-at-goal"], "no goal to stop at"),
    ],
)
def test_run_limits(tmp_path, capsys, options, message):
    (tmp_path / "endless.scl").write_text("rel n(0) rel n(x + 1) = n(x)")
    assert main(["run", str(tmp_path / "endless.scl"), *options]) == USER_ERROR
    assert message in capsys.readouterr().err


def test_run_stops_at_its_goal(tmp_path, capsys):
    (tmp_path / "goal.scl").write_text("rel n(0)\nrel n(x + 1) = n(x)\n@goal rel found() = n(7)\nquery found")
    assert main(["run", str(tmp_path / "goal.scl"), "--stop-at-goal", "--no-progress"]) == 0
    assert capsys.readouterr().out == "found()\n"


def test_run_seed(tmp_path, capsys):
    (tmp_path / "drawn.scl").write_text("rel e(x) = x in 0..50\nrel drawn(x) = x := uniform<5>(x: e(x))\nquery drawn")
    found = []
    for seed in ("1", "1", "2"):
        assert main(["run", str(tmp_path / "drawn.scl"), "--seed", seed]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1] != found[2]
    assert len(found[0].splitlines()) == 5


def test_run_query(program, capsys):
    assert main(["run", program, "--query", "word"]) == 0
    assert capsys.readouterr().out == '1::word("a b")\n1::word("c")\n'
    assert main(["run", program, "--query", "path(1, x)", "--provenance", "unit"]) == 0
    assert capsys.readouterr().out == "path(1, 2)\n"
    assert main(["run", program, "--query", "word", "--query", "edge"]) == 0
    assert capsys.readouterr().out.count("\n") == 5


def test_run_without_facts_names_the_relations(tmp_path, capsys):
    path = tmp_path / "p.scl"
    path.write_text("type edge(x: i32, y: i32), mark(x: i32)\nrel path(x, y) = edge(x, y), mark(x)\nquery path\n")
    assert main(["run", str(path)]) == 0
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("note: there are no facts for `edge`, `mark`\n")
    assert "--facts DIR reads DIR/edge.csv" in seen.err
    (tmp_path / "edge.csv").write_text("1,2\n")
    main(["run", str(path), "--facts", str(tmp_path)])
    assert "facts for `mark`\n" in capsys.readouterr().err
    (tmp_path / "mark.csv").write_text("2\n")
    main(["run", str(path), "--facts", str(tmp_path)])
    assert capsys.readouterr() == ("", "")


def test_run_json(program, capsys):
    assert main(["run", program, "--provenance", "minmaxprob", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": {"tuples": [[0, 1], [0, 2], [1, 2]], "tags": [0.5, 0.5, 0.8]}
    }
    assert main(["run", program, "--query", "word", "--provenance", "unit", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"word": {"tuples": [["a b"], ["c"]]}}


FACT_FILES = {
    "comma": ("edge.csv", "5,6\n6, 7\n"),
    "tab": ("edge.facts", "5\t6\n6\t7\n"),
    "spaces": ("edge.txt", "# a comment\n5 6\n\n6 7\n"),
    "probabilities": ("edge.csv", "1.0,5,6\n0.5,6,7\n"),
}


@pytest.mark.parametrize("form", FACT_FILES)
def test_run_facts(tmp_path, capsys, form):
    name, text = FACT_FILES[form]
    (tmp_path / "p.scl").write_text("type edge(i32, i32)\nrel path(a, c) = edge(a, b), edge(b, c)\nquery path")
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / name).write_text(text)
    (tmp_path / "facts" / "README.txt").write_text("not facts")
    arguments = ["run", str(tmp_path / "p.scl"), "--facts", str(tmp_path / "facts"), "--provenance", "exact"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{0.5 if form == 'probabilities' else 1}::path(5, 7)\n"


def test_run_facts_of_other_types(tmp_path, capsys):
    (tmp_path / "p.scl").write_text("type person(String, f64, bool)\nquery person")
    (tmp_path / "person.csv").write_text('"Ada, L.",1.5,true\nBo,2,0\n')
    assert main(["run", str(tmp_path / "p.scl"), "--facts", str(tmp_path)]) == 0
    assert capsys.readouterr().out == 'person("Ada, L.", 1.5, true)\nperson("Bo", 2.0, false)\n'


BAD_FACTS = {
    "type": (
        "edge.csv",
        "5,6\n6,x\n",
        "edge.csv:2:3: error: 'x' in column 2 is not of type i32, which `edge` has there",
    ),
    "columns": ("edge.csv", "5,6\n6\n", "edge.csv:2:1: error: 1 column; `edge` has 2"),
    "ragged": ("edge.csv", "5,6\n0.5,6,7\n", "edge.csv:2:1: error: 3 columns, and 2 in the first row"),
    "probability": (
        "edge.csv",
        "1.5,5,6\n",
        "edge.csv:1:1: error: the tag 1.5 of a fact of `edge` is not a prob",
    ),
    "no file": ("edges.csv", "5,6\n", "error: no file is named after a relation of the program; it has edges.csv"),
}


@pytest.mark.parametrize("form", BAD_FACTS)
def test_bad_facts(tmp_path, capsys, form):
    name, text, message = BAD_FACTS[form]
    (tmp_path / "p.scl").write_text("type edge(i32, i32)\nquery edge")
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / name).write_text(text)
    assert main(["run", str(tmp_path / "p.scl"), "--facts", str(tmp_path / "facts")]) == USER_ERROR
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_count(cnf, capsys):
    assert main(["count", cnf]) == 0
    assert "models: 4\nvariables: 3\n" in capsys.readouterr().out


@pytest.mark.parametrize("packed", [False, True])
def test_count_standard_input(cnf, tmp_path, capsys, monkeypatch, packed):
    assert main(["compile", cnf, "-o", str(tmp_path / "c.nnf")]) == 0
    assert main(["compile", cnf, "-o", str(tmp_path / "c.dvc")]) == 0
    for content in (cnf, tmp_path / "c.nnf", tmp_path / "c.dvc"):
        data = Path(content).read_bytes()
        stream = io.BytesIO(gzip.compress(data) if packed else data)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        capsys.readouterr()
        assert main(["count", "-", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["models"] == "4"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"p cnf 2 1\n1 x 0\n")))
    assert main(["count", "-"]) == 1
    assert capsys.readouterr().err.startswith("<stdin>:2:3: error: `x` is not a literal")


@pytest.mark.parametrize("command", ["run", "count", "explain", "compile"])
def test_errors_for_programs(command, tmp_path, capsys):
    (tmp_path / "bad.cnf").write_text("p cnf 2 1\n1 x 0\n")
    (tmp_path / "bad.scl").write_text("rel a(x) = b(y)\n")
    path = str(tmp_path / ("bad.cnf" if command in ("count", "compile") else "bad.scl"))
    more = ["-o", str(tmp_path / "c.dvc")] if command == "compile" else []
    assert main([command, path, "--json", *more]) == 1
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert error["kind"] == "input"
    assert error["source"] == path
    assert f"{path}:{error['line']}:{error['column']}: error: {error['message']}" in shown.err
    assert main([command, "--json", "--no-such-option"]) == 1
    assert "--no-such-option" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("compiler", ["sdd", "d4"])
def test_count_weighted(tmp_path, capsys, compiler):
    path = tmp_path / "w.cnf"
    path.write_text(WEIGHTED)
    assert main(["count", str(path), "--json", "--compiler", compiler]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["models"] == "3"
    assert document["weighted"] == pytest.approx(1 - 0.75 * 0.5)


def test_count_of_large_numbers(tmp_path, capsys):
    path = tmp_path / "free.cnf"
    path.write_text("p cnf 5000 1\n1 0\n")
    assert main(["count", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert int(document["models"]) == 2**4999
    assert document["log10_models"] == pytest.approx(4999 * 0.30102999566398120)
    path.write_text("p cnf 1 2\n1 0\n-1 0\n")
    assert main(["count", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["models"], document["log10_models"]) == ("0", None)


@pytest.mark.parametrize("ending", [".dvc", ".nnf", ".sdd"])
def test_compile_and_read_again(cnf, tmp_path, capsys, ending):
    output = str(tmp_path / f"small{ending}")
    assert main(["compile", cnf, "-o", output, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["variables"] == 3
    assert main(["count", output, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == "4"


def test_compile_to_dot(cnf, tmp_path, capsys):
    output = tmp_path / "small.dot"
    assert main(["compile", cnf, "-o", str(output)]) == 0
    assert output.read_text().startswith("digraph")


def test_compile_to_an_unknown_format_or_place(cnf, tmp_path, capsys):
    assert main(["compile", cnf, "-o", str(tmp_path / "small.xyz")]) == USER_ERROR
    assert "cannot tell the format" in capsys.readouterr().err
    assert main(["compile", cnf, "-o", str(tmp_path / "absent" / "small.dvc")]) == USER_ERROR
    assert "No such file or directory" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.cnf"]


def test_explain(program, cnf, capsys):
    assert main(["explain", program]) == 0
    assert "relation path(i32, i32)" in capsys.readouterr().out
    assert main(["explain", program, "--stage", "syntax", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stage"] == "syntax"
    assert main(["explain", cnf]) == 0
    assert "level" in capsys.readouterr().out
    assert main(["explain", program, "--stage", "apm!"]) == USER_ERROR
    assert "unknown stage 'apm!'" in capsys.readouterr().err


def test_help_and_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"derivable, version {__version__}\n"
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("run", "count", "compile", "explain", "demo"))


@pytest.mark.parametrize(
    "arguments", [["rnu"], ["run"], ["run", "--no-such-option"], ["count", "--compiler", "x", "y"], []]
)
def test_usage_errors_are_user_errors(arguments, capsys):
    assert main(arguments) == USER_ERROR
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage:" in captured.err
    assert "Traceback" not in captured.err


def test_errors_of_the_input(tmp_path, capsys):
    path = tmp_path / "bad.scl"
    path.write_text("rel path(a, c) = edge(a, b)\n")
    assert main(["run", str(path)]) == USER_ERROR
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "bad.scl:1:" in captured.err
    assert "^" in captured.err
    assert main(["run", str(tmp_path / "absent.scl")]) == USER_ERROR
    assert "absent.scl: error: cannot read the file" in capsys.readouterr().err


def raising(error):
    def command(*arguments, **options):
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (DerivableError("no such thing", hint="find one"), USER_ERROR, "error: no such thing\nhelp: find one\n"),
        (KeyboardInterrupt(), INTERRUPTED, ""),
        (FileNotFoundError(2, "No such file or directory", "x.png"), USER_ERROR, "x.png: error: No such file"),
        (MemoryError(), USER_ERROR, "error: out of memory"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_outcomes(monkeypatch, capsys, error, status, text):
    monkeypatch.setattr(entry.cli, "make_context", raising(error))
    assert main([]) == status
    captured = capsys.readouterr()
    assert captured.err.startswith(text)
    assert captured.err == "" if not text else "Traceback" not in captured.err


def test_a_bug_says_so(monkeypatch, capsys):
    monkeypatch.setattr(entry.cli, "make_context", raising(ZeroDivisionError("division by zero")))
    assert main([]) == BUG
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "This is a bug in derivable" in text
    assert sys.version.split()[0] in text


def test_run_writes_files(tmp_path, capsys):
    (tmp_path / "edge.csv").write_text("a,b\n0,1\n1,2\n")
    (tmp_path / "p.scl").write_text(
        '@file("edge.csv", header=true) type edge(a: u8, b: u8)\nrel path(x, y) = edge(x, y)\n'
        'rel path(x, z) = path(x, y), edge(y, z)\n@file("out.csv") query path\nquery edge'
    )
    assert main(["run", str(tmp_path / "p.scl"), "--allow-files"]) == 0
    assert capsys.readouterr().out == "path(0, 1)\npath(0, 2)\npath(1, 2)\nedge(0, 1)\nedge(1, 2)\n"
    assert (tmp_path / "out.csv").read_text() == "0,1\n0,2\n1,2\n"
    assert main(["run", str(tmp_path / "p.scl"), "-o", str(tmp_path / "all")]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "edge.csv: 2 facts" in captured.err
    assert (tmp_path / "all" / "edge.csv").read_text() == "a,b\n0,1\n1,2\n"
    assert (tmp_path / "all" / "out.csv").read_text() == "0,1\n0,2\n1,2\n"
    assert main(["run", str(tmp_path / "p.scl"), "-o", str(tmp_path / "all" / "*.parquet")]) == 0
    assert sorted(p.name for p in (tmp_path / "all").glob("*.parquet")) == ["edge.parquet", "path.parquet"]


def test_large_results_are_written_in_parts(tmp_path, capsys):
    (tmp_path / "p.scl").write_text('rel n(x) = x in 0..40000\nrel m(x, "a", 0.5) = n(x)\nquery m')
    assert main(["run", str(tmp_path / "p.scl")]) == 0
    assert capsys.readouterr().out == "".join(f'm({i}, "a", 0.5)\n' for i in range(40_000))
    assert main(["run", str(tmp_path / "p.scl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"m": {"tuples": [[i, "a", 0.5] for i in range(40_000)]}}


def test_a_command_that_is_misspelt_has_a_suggestion(capsys):
    assert main(["rnu", "p.scl"]) == 1
    assert "No such command 'rnu'. Did you mean 'run'?" in capsys.readouterr().err


def test_a_file_in_place_of_a_folder_of_facts(tmp_path, capsys, program):
    (tmp_path / "edge.csv").write_text("0,1\n")
    assert main(["run", program, "--facts", str(tmp_path / "edge.csv")]) == 1
    assert f"`--facts {tmp_path}`, where RELATION.csv has the facts of RELATION" in capsys.readouterr().err


def test_a_pair_in_place_of_a_folder_of_facts(tmp_path, capsys, program):
    assert main(["run", program, "--facts", f"edge={tmp_path / 'edge.csv'}"]) == 1
    assert "a folder of fact files, which are named after their relations: DIR/edge.csv" in capsys.readouterr().err


def test_a_model_that_is_misspelt_has_a_suggestion(tmp_path, capsys):
    (tmp_path / "model.py").write_text("def build(): pass\n")
    assert main(["accelerate", f"{tmp_path / 'modle.py'}:build", "-o", str(tmp_path / "out")]) == 1
    assert "help: did you mean `model.py`?" in capsys.readouterr().err
