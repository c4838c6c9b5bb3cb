"""`derivable run --spill`: partition after partition, within a limit of memory."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from derivable.cli.main import USER_ERROR, main


@pytest.fixture
def files(tmp_path):
    (tmp_path / "p.scl").write_text(
        "type edge(x: usize, y: usize) type node(usize)\n"
        "rel path(x, y) = edge(x, y), node(x)\nrel path(x, z) = path(x, y), edge(y, z)\nquery path\n"
    )
    (tmp_path / "facts" / "edge.parquet").mkdir(parents=True)
    for number, (x, y) in enumerate([(0, 1), (1, 2)]):
        rows = pa.table({"x": [x], "y": [y], "tag": [0.5]})
        pq.write_table(rows, tmp_path / "facts" / "edge.parquet" / f"{number}.parquet")
    (tmp_path / "facts" / "node.csv").write_text("0\n1\n")
    return [str(tmp_path / "p.scl"), "-F", str(tmp_path / "facts"), "--spill", str(tmp_path / "runs")], tmp_path / "out"


def test_rows_are_printed(files, capsys):
    arguments, _ = files
    assert main(["run", *arguments, "--memory-limit", "1GB"]) == 0
    shown = capsys.readouterr().out
    assert sorted(shown.splitlines()) == ["0.25::path(0, 2)", "0.5::path(0, 1)", "0.5::path(1, 2)"]
    assert main(["run", *arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": {"tuples": [[0, 1], [0, 2], [1, 2]], "tags": [0.5, 0.25, 0.5]}
    }


def test_parquet_is_written(files, capsys):
    arguments, out = files
    assert main(["run", *arguments, "-o", f"{out}/*.parquet"]) == 0
    assert "path.parquet: 3 facts" in capsys.readouterr().err
    assert pq.read_table(out / "path.parquet").num_rows == 3


def test_options_that_exclude_each_other(files, capsys):
    arguments, out = files
    for more, message in (
        (["--why", "path(0, 1)"], "--spill excludes"),
        (["-o", str(out)], "--spill writes --output"),
        (["--partitions", "2"], "--partitions goes with --engine"),
    ):
        assert main(["run", *arguments, *more]) == USER_ERROR
        assert message in capsys.readouterr().err
