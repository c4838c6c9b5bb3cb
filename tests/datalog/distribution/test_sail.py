"""Runs on Sail, in partitions: rows and tags are those of one machine."""

import re

import numpy as np
import pytest

import derivable as dv
from datalog.distribution.engines import needs_sail, sail
from datalog.distribution.test_partitions import EDGE, FACTS, PROGRAMS
from datalog.test_language import CASES
from derivable.core.diagnostics import BindingError, UnsupportedError

pytestmark = [
    needs_sail,
    pytest.mark.filterwarnings("ignore::derivable.DerivableWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
CLOSURE = dv.Program(EDGE + PROGRAMS["closure"][0] + "query path")
# Those with a type that engines have not.
REFUSED = "terms|tensors|which the engine has not|draws from|64 bits"


def edges():
    import pyarrow as pa

    rows, tags = list(FACTS["edge"]), list(FACTS["edge"].values())
    return sail().createDataFrame(pa.table({"y": [y for _, y in rows], "x": [x for x, _ in rows], "tag": tags}))


def same(program, facts, provenance, **options):
    """Compare a run on Sail with one here; the numbers of outputs that were compared and refused."""
    expected = program.run(FACTS if facts else None, provenance)
    database = program.run(facts, provenance, engine="sail", partitions=2, **options)
    compared = refused = 0
    for output in expected:
        try:
            rows = dict(database[output].items())
        except UnsupportedError:
            refused += 1
        else:
            assert rows == pytest.approx(dict(expected[output].items()), abs=1e-12), output
            compared += 1
    return compared, refused


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("provenance", ["unit", "exact", "minmaxprob", "addmultprob"])
def test_tags(name, provenance):
    text, output = PROGRAMS[name]
    program = dv.Program(f"{EDGE}{text}{'' if 'query' in text else f' query {output}'}")
    compared, _ = same(program, {"edge": edges()}, provenance)
    assert compared == ((name, provenance) != ("scattered", "exact"))


def test_longest_paths_are_merged():
    """What several partitions have of a row is the largest of their tags."""
    program = dv.Program(EDGE + "rel end(y) = edge(_, y) query end")
    frame = sail().createDataFrame([(0, 3, -0.5), (1, 3, 0.5), (2, 4, -1.0)], "x bigint, y bigint, tag double")
    assert dict(program.run({"edge": frame}, "max_plus", engine="sail")["end"].items()) == {(3,): 0.5, (4,): -1.0}


def language(cases):
    """(outputs that are compared, errors of what is refused) of cases of the language."""
    compared, refused = 0, []
    for _, text, *_ in cases:
        try:
            compared += same(dv.Program(text), None, None)[0]
        except dv.DerivableError as error:
            refused.append(error)
    assert all(re.search(REFUSED, str(error)) for error in refused)
    return compared, len(refused)


def test_language():
    compared, refused = language(CASES[::5])
    assert compared > 30
    assert refused < 3


@pytest.mark.slow
def test_all_of_the_language():
    compared, refused = language(CASES)
    assert compared > 190
    assert refused < 10


def test_default_provenance_goes_by_the_facts_of_the_engine():
    database = CLOSURE.run({"edge": edges()}, engine="sail", partitions=2)
    assert database.provenance == "exact"
    assert database["path"].to_spark().columns == ["x", "y", "tag"]
    assert CLOSURE.run({"edge": edges().select("x", "y")}, engine="sail").provenance == "unit"


def test_rows_stay_in_the_engine(monkeypatch):
    path = CLOSURE.run({"edge": edges().select("x", "y")}, engine="sail", partitions=2)["path"]
    monkeypatch.setattr(type(path.to_spark()), "toArrow", lambda frame: pytest.fail("collected"))
    assert path.to_spark().columns == ["x", "y"]
    assert len(path) == 25
    assert path.to_spark().filter("x = 1").count() == 5


def test_collected_rows_are_those_of_a_view():
    path = CLOSURE.run({"edge": edges()}, "minmaxprob", engine="sail", partitions=2)["path"]
    here = CLOSURE.run(FACTS, "minmaxprob")["path"]
    assert list(path) == list(here)
    assert path[0, 1] == here[0, 1]
    assert (0, 99) not in path
    assert path.to_arrow().equals(here.to_arrow())
    assert path.to_pandas().equals(here.to_pandas())


def test_samples_are_a_pivot():
    """Facts of many samples are partitioned by the sample: nothing is sent to all partitions."""
    import pyarrow as pa

    text = (
        "type edge(s: i64, x: String, y: String) rel path(s, x, y) = edge(s, x, y) or (path(s, x, z) and edge(s, z, y))"
    )
    program = dv.Program(text + " query path")
    rows = [(s, f"{s % 3}-{i}", f"{s % 3}-{i + 1}") for s in range(40) for i in range(4)]
    frame = sail().createDataFrame(pa.table(dict(zip("sxy", map(list, zip(*rows))))))
    database = program.run({"edge": frame}, engine="sail", partitions=2)
    assert "broadcast" not in database.explain()
    assert set(database["path"]) == set(program.run({"edge": rows})["path"])


def test_types():
    import datetime as dt

    import pyarrow as pa

    text = (
        "type r(a: i8, b: u16, c: i64, d: f32, e: bool, f: String, g: DateTime, h: usize) "
        "rel s(a, b, c, d, e, f, g, h) = r(a, b, c, d, e, f, g, h) query s"
    )
    row = (-5, 65535, -(2**62), 0.5, True, "é\n", dt.datetime(2026, 1, 2, 3, 4, 5, 6), 2**63 - 1)
    columns = {name: [value] for name, value in zip("abcdefgh", row)}
    frame = sail().createDataFrame(pa.table({**columns, "d": pa.array([0.5], pa.float32())}))
    here = dv.Program(text).run({"r": [row]})["s"]
    for facts in ({"r": [row]}, {"r": frame}):
        assert list(dv.Program(text).run(facts, engine="sail", partitions=2)["s"]) == list(here)


def test_tables_and_files(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.table({"x": np.arange(5), "y": np.arange(1, 6)})
    (tmp_path / "edge").mkdir()
    pq.write_table(rows, tmp_path / "edge" / "0.parquet")
    sail().createDataFrame(rows).createOrReplaceTempView("edges_of_a_table")
    for source in (
        "edges_of_a_table",
        tmp_path / "edge",
        str(tmp_path / "edge" / "0.parquet"),
        str(tmp_path / "edge" / "*.parquet"),
    ):
        assert len(CLOSURE.run({"edge": source}, engine="sail", partitions=2)["path"]) == 15


def test_tables_of_delta(tmp_path):
    """Files of rows that are no more are there still, whatever the folder is called and however it is named."""
    import pyarrow as pa

    path = str(tmp_path / "edge.parquet")
    for rows in ({"x": [1, 2], "y": [2, 3]}, {"x": [7], "y": [8]}):
        sail().createDataFrame(pa.table(rows)).write.format("delta").mode("overwrite").save(path)
    for source in (path, tmp_path / "edge.parquet", f"file://{path}", f"file://{path}/"):
        assert list(CLOSURE.run({"edge": source}, engine="sail", partitions=2)["path"]) == [(7, 8)]
    with pytest.raises(BindingError, match="is a table of Delta, not all of whose files are rows"):
        CLOSURE.run({"edge": f"file://{path}/*.parquet"}, engine="sail")


def test_undeclared_relations_have_the_types_of_the_frame():
    program = dv.Program("rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y)) query path")
    import pyarrow as pa

    frame = sail().createDataFrame(pa.table({"a": ["p", "q"], "b": ["q", "r"]}))
    assert set(program.run({"edge": frame}, engine="sail", partitions=2)["path"]) == {
        ("p", "q"),
        ("q", "r"),
        ("p", "r"),
    }
