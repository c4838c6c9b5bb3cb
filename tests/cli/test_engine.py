"""`derivable run --engine`: facts and results of an engine."""

import json

import pytest

from datalog.distribution.engines import needs_sail
from derivable.cli.main import USER_ERROR, main

pytestmark = [needs_sail, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture
def files(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "p.scl").write_text(
        "type edge(x: usize, y: usize) type node(usize)\n"
        "rel path(x, y) = edge(x, y), node(x)\nrel path(x, z) = path(x, y), edge(y, z)\nquery path\n"
    )
    (tmp_path / "facts").mkdir()
    pq.write_table(pa.table({"x": [0, 1], "y": [1, 2], "tag": [0.5, 0.5]}), tmp_path / "facts" / "edge.parquet")
    (tmp_path / "facts" / "node.csv").write_text("0\n1\n")
    return str(tmp_path / "p.scl"), str(tmp_path / "facts"), tmp_path / "out"


def test_rows_are_printed(files, capsys):
    program, facts, _ = files
    assert main(["run", program, "--engine", "sail", "-F", facts, "--json"]) == 0
    path = json.loads(capsys.readouterr().out)["path"]
    assert path == {"tuples": [[0, 1], [0, 2], [1, 2]], "tags": [0.5, 0.25, 0.5]}


def test_the_engine_writes_parquet(files):
    import pyarrow.parquet as pq

    program, facts, out = files
    assert main(["run", program, "--engine", "sail", "-F", facts, "-o", f"{out}/*.parquet", "--partitions", "2"]) == 0
    assert sorted(pq.read_table(out / "path.parquet").column("x").to_pylist()) == [0, 0, 1]


def test_files_of_queries_are_written_too(files):
    program, facts, out = files
    with open(program, "a") as file:
        file.write('@file("ends.csv") query edge\n')
    assert main(["run", program, "--engine", "sail", "-F", facts, "-o", f"{out}/*.parquet"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["edge.parquet", "ends.csv", "path.parquet"]


def test_a_failed_run_changes_no_files(files):
    """A value that does not fit is seen in a partition only, while the engine writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    program, facts, out = files
    arguments = ["run", program, "--engine", "sail", "-F", facts, "-o", f"{out}/*.parquet"]
    with open(program, "w") as file:
        file.write("type e(s: i64, x: u8) rel p(s, x) = e(s, x) rel q(s) = e(s, _) query q query p")
    for values, status in (([1, 2], 0), ([1, 300], USER_ERROR), ([3, 4], 0)):
        before = {path: path.stat().st_ino for path in out.rglob("*")} if out.exists() else {}
        pq.write_table(pa.table({"s": [1, 2], "x": values}), f"{facts}/e.parquet")
        assert main(arguments) == status
        after = {path: path.stat().st_ino for path in out.rglob("*")}
        assert (before == after) == (status == USER_ERROR)
        assert sorted(path.name for path in out.iterdir()) == ["p.parquet", "q.parquet"]
    assert sorted(pq.read_table(out / "p.parquet").column("x").to_pylist()) == [3, 4]


def test_programs_of_souffle_and_problog(tmp_path, capsys):
    """Their rows come here, and are written as without an engine."""
    rules = "path(x, y) :- edge(x, y). path(x, z) :- path(x, y), edge(y, z)."
    (tmp_path / "p.dl").write_text(
        f".decl edge(x:number, y:number) .input edge .decl path(x:number, y:number) {rules} .output path"
    )
    (tmp_path / "edge.facts").write_text("1\t2\n2\t3\n")
    (tmp_path / "p.pl").write_text("0.5::edge(a, b). path(X, Y) :- edge(X, Y). query(path(_, _)). query(edge(b, b)).")
    for arguments in (["p.dl", "-F", str(tmp_path)], ["p.dl", "-F", str(tmp_path), "--json"], ["p.pl"]):
        shown = []
        for engine in ([], ["--engine", "sail"]):
            assert main(["run", str(tmp_path / arguments[0]), *arguments[1:], *engine]) == 0
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1]
        assert "path" in shown[0]


def test_options_of_engines_need_one(files, capsys):
    program, facts, _ = files
    assert main(["run", program, "-F", facts, "--partitions", "2"]) == USER_ERROR
    assert "--partitions goes with --engine" in capsys.readouterr().err


def test_errors(files, capsys):
    program, facts, _ = files
    assert main(["run", program, "--remote", "sc://127.0.0.1:1", "-F", facts]) == USER_ERROR
    assert "nobody listens" in capsys.readouterr().err
    assert main(["run", program, "--engine", "sail", "--why", "path(0, 1)"]) == USER_ERROR
    assert "--engine excludes" in capsys.readouterr().err
