"""Runs that go partition after partition to files: rows and tags are those of a run in memory."""

import datetime as dt
import re
import resource
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import derivable as dv
from datalog.distribution.test_partitions import CLOSURE, EDGE, FACTS, PROGRAMS
from datalog.test_language import CASES
from derivable.core.diagnostics import (
    AbsentTupleError,
    BindingError,
    DerivableError,
    DomainError,
    OutOfMemory,
    ParseError,
    TypeMismatchError,
    UnsupportedError,
)
from derivable.datalog.api import spilled
from derivable.datalog.api.partitions import PartitionRun
from derivable.datalog.api.spilled import SpilledRun
from derivable.datalog.distribution.parquet import ParquetFiles, write_by_keys

PATH = dv.Program(EDGE + CLOSURE + "query path")
MEMORY = {"memory_limit": "2 GB"}
read = ParquetFiles.of


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def edges(folder, count=4):
    """The edges of FACTS, in several files."""
    rows, tags = list(FACTS["edge"]), list(FACTS["edge"].values())
    for number in range(count):
        part = rows[number::count]
        write(folder / f"{number}.parquet", y=[y for _, y in part], x=[x for x, _ in part], tag=tags[number::count])
    return str(folder / "*.parquet")


def chain(folder, count=40):
    return {"edge": str(write(folder / "edge.parquet", x=np.arange(count), y=np.arange(1, count + 1)))}


def same(program, there, here, spill, provenance=None):
    """Compare the outputs of a run in partitions with those of one in memory; how many there are."""
    expected = program.run(here, provenance)
    database = program.run(there, provenance, spill=spill, **MEMORY)
    assert database.provenance == expected.provenance
    for output, relation in database.items():
        rows = dict(relation.items())
        assert len(rows) == len(relation)
        assert rows == pytest.approx(dict(expected[output].items()), abs=1e-12), output
    return len(database)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("provenance", ["unit", "exact", "minmaxprob", "addmultprob"])
def test_tags(name, provenance, tmp_path):
    text, output = PROGRAMS[name]
    program = dv.Program(f"{EDGE}{text}{'' if 'query' in text else f' query {output}'}")
    there = {"edge": edges(tmp_path / "edges")}
    if (name, provenance) in (("scattered", "exact"), ("quadratic", "addmultprob")):
        with pytest.raises(UnsupportedError, match=r"do not add up|is not computed in partitions"):
            program.run(there, provenance, spill=tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["edges"]
    else:
        assert same(program, there, FACTS, tmp_path, provenance) == 1


def language(cases, folder):
    compared, refused = 0, []
    for _, text, *_ in cases:
        try:
            compared += same(dv.Program(text), None, None, folder)
        except (UnsupportedError, TypeMismatchError) as error:
            refused.append(str(error))
    assert all(re.search("terms|tensors|draws from|is not written|in partitions", error) for error in refused), refused
    return compared, len(refused)


@pytest.mark.filterwarnings("ignore::derivable.DerivableWarning")
def test_language(tmp_path):
    compared, refused = language(CASES[::8], tmp_path)
    assert compared > 15
    assert refused < 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::derivable.DerivableWarning")
def test_all_of_the_language(tmp_path):
    compared, refused = language(CASES, tmp_path)
    assert compared > 190
    assert refused < 12


def test_samples_are_read_by_their_keys(tmp_path):
    """No partition has all facts, and each reads its own from files that are gone at the end."""
    text = (
        "type edge(s: i64, x: String, y: String) rel path(s, x, y) = edge(s, x, y) or (path(s, x, z) and edge(s, z, y))"
    )
    rows = [(s - 20, f"{s % 3}-{i}", f"{s % 3}-{i + 1}") for s in range(40) for i in range(4)]
    path = write(tmp_path / "edge.parquet", **dict(zip("sxy", map(list, zip(*rows)))))
    database = dv.Program(text + " query path").run({"edge": path}, spill=tmp_path, **MEMORY)
    assert "broadcast" not in database.explain()
    assert set(database["path"]) == set(dv.Program(text + " query path").run({"edge": rows})["path"])
    assert (-20, "0-0", "0-4") in database["path"]
    assert (-20, "1-0", "1-4") not in database["path"]
    assert sorted(path.name for path in database.folder.iterdir()) == ["lock", "manifest.json", "path"]


def test_inputs_are_written_to_several_files_by_keys(tmp_path):
    """An input of more than an eighth of the limit."""
    rows = np.arange(70_000)
    path = write(tmp_path / "e.parquet", s=rows % 501, name=[f"n{i}" for i in rows % 7])
    program = dv.Program("type e(s: u32, name: String) rel n(s, c) = c := count(t: e(s, t)) query n")
    expected = program.run({"e": path})["n"]
    limit, counts = 1 << 31, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetFiles, "of", staticmethod(lambda *given: replace(read(*given), num_bytes=limit)))
        patch.setattr(spilled, "write_by_keys", lambda *given: (counts.append(given[3]), write_by_keys(*given)))
        counted = program.run({"e": path}, spill=tmp_path, memory_limit=limit)["n"]
    assert counts == [8]
    assert dict(counted.items()) == dict(expected.items())
    assert len(counted) == 501


def test_relations_on_disk(tmp_path):
    view = PATH.run(FACTS, "minmaxprob")["path"]
    path = PATH.run({"edge": edges(tmp_path / "edges")}, "minmaxprob", spill=tmp_path)["path"]
    assert len(path) == len(view)
    assert set(path) == set(view)
    assert path[0, 1] == view[0, 1]
    assert path.get((0, 99)) is None
    assert ("a", 1) not in path
    with pytest.raises(AbsentTupleError, match=r"path\(0, 99\) is not derived"):
        path[0, 99]
    assert list(path.collected) == list(view)
    assert path.to_arrow().sort_by([("x", "ascending"), ("y", "ascending")]).equals(view.to_arrow())
    assert sum(batch.num_rows for batch in path.batches()) == len(view)
    path.to_parquet(tmp_path / "path.parquet")
    assert pq.read_table(tmp_path / "path.parquet").equals(path.to_arrow())
    assert pq.read_table(path.folder).num_rows == len(view)
    assert "::(0, 1)" in repr(path)
    assert f"{len(view) - 20:,} more rows" in path._repr_html_()


ZONES = [pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin")]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("String", pa.array(["a"]), pa.array(["b"], pa.large_string())),
        ("String", pa.array(["a"]), pa.array(["b"]).dictionary_encode()),
        ("String", pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()),
        ("i32", pa.array([200], pa.uint8()), pa.array([-300], pa.int16())),
        ("DateTime", pa.array([1000], pa.timestamp("us")), pa.array([2], pa.timestamp("ms"))),
        ("DateTime", *(pa.array([moment], zone) for moment, zone in enumerate(ZONES))),
        ("i64", pa.array([], pa.int64()), pa.array([], pa.int64())),
    ],
)
def test_files_may_have_columns_of_other_types_of_arrow(tmp_path, kind, first, second, whole):
    for number, column in enumerate((first, second)):
        write(tmp_path / "e" / f"{number}.parquet", k=np.arange(len(column)) + number, x=column)
    rule = "r(k, y) = e(k, _), e(_, y)" if whole else "r(k, y) = e(k, y)"
    program = dv.Program(f"type e(k: i64, x: {kind}) rel {rule} query r")
    if kind == "DateTime":
        values = [column.cast(pa.timestamp("us")).to_pylist()[0] for column in (first, second)]
    else:
        values = [*first.to_pylist(), *second.to_pylist()]
    expected = {(k, values[y]) for k in range(len(values)) for y in range(len(values)) if whole or k == y}
    assert set(program.run({"e": tmp_path / "e"}, spill=tmp_path / "run")["r"]) == expected


def test_values_are_shown_as_in_memory(tmp_path):
    columns = "x: f32, f: f64, s: String, b: bool, c: char, y: Symbol"
    program = dv.Program(f'type e({columns}) rel e = {{(0.1, 0.1, "a", true, \'c\', s"q")}} query e')
    on_disk = program.run(spill=tmp_path)["e"]
    assert repr(on_disk) == repr(program.run()["e"]) == '{(0.1, 0.1, "a", true, \'c\', s"q")}'


def test_types(tmp_path):
    text = (
        "type r(a: i8, b: u16, c: i64, d: f32, e: bool, f: String, g: DateTime, h: u64, i: char) "
        "rel s(a, b, c, d, e, f, g, h, i) = r(a, b, c, d, e, f, g, h, i) query s"
    )
    row = (-5, 65535, -(2**62), 0.1, True, "é\n", dt.datetime(2026, 1, 2, 3, 4, 5, 6), 2**64 - 1, "ß")
    path = write(
        tmp_path / "r.parquet",
        **{name: [value] for name, value in zip("abcdefg", row)},
        h=pa.array([row[7]], pa.uint64()),
        i=["ß"],
    )
    here = dv.Program(text).run({"r": [row]})["s"]
    for number, facts in enumerate(([row], path, str(path), str(tmp_path / "*.parquet"))):
        relation = dv.Program(text).run({"r": facts}, spill=tmp_path / str(number))["s"]
        assert list(relation) == list(here)
        assert next(iter(relation)) in relation
        assert relation.to_arrow().equals(here.to_arrow())


def test_a_relation_without_columns(tmp_path):
    program = dv.Program(EDGE + "rel found() = edge(x, 5) rel none() = edge(x, 99) query found query none")
    database = program.run(chain(tmp_path), spill=tmp_path)
    assert list(database["found"]) == [()]
    assert () in database["found"]
    assert len(database["none"]) == 0


def test_an_ended_run_goes_on(tmp_path, monkeypatch):
    facts, computed = chain(tmp_path), []
    real_write, real_run = SpilledRun._write, PartitionRun.run

    def fails(run, path, table):
        if len(computed) == 3:
            raise KeyboardInterrupt
        real_write(run, path, table)

    def counted(run, keys, rows, watch=None):
        computed.append((int(keys[0]), int(keys[-1])))
        return real_run(run, keys, rows, watch)

    monkeypatch.setattr(PartitionRun, "run", counted)
    with monkeypatch.context() as patch:
        patch.setattr(SpilledRun, "_write", fails)
        with pytest.raises(KeyboardInterrupt):
            PATH.run(facts, spill=tmp_path)
    first = list(computed)
    database = PATH.run(facts, spill=tmp_path)
    # The third was not written; those before are not computed again.
    assert computed[3][0] == first[2][0]
    assert set(database["path"]) == {(x, y) for x in range(40) for y in range(x + 1, 41)}
    # A run that is whole is read.
    count = len(computed)
    assert len(PATH.run(facts, spill=tmp_path)["path"]) == len(database["path"])
    assert len(computed) == count
    # Other inputs begin at the first key.
    changed = PATH.run(chain(tmp_path, 41), spill=tmp_path)
    assert changed.folder != database.folder
    assert len(changed["path"]) == 41 * 42 // 2
    assert len(PATH.run({"edge": [(0, 1)]}, spill=tmp_path)["path"]) == 1
    assert len(PATH.run({"edge": [(0, 1), (1, 2)]}, spill=tmp_path)["path"]) == 3


def test_python_functions_are_run_again(tmp_path):
    dv.datalog.function(lambda_of(1), name="spilled_step")
    program = dv.Program("type e(x: i64) rel p(x, $spilled_step(x)) = e(x) query p")
    folders = [program.run({"e": [1, 2]}, spill=tmp_path).folder for _ in range(2)]
    assert folders[0] != folders[1]


def lambda_of(step):
    def call(x: int) -> int:
        return x + step

    return call


def test_partitions_that_pass_the_limit_are_split(tmp_path, monkeypatch):
    real, refused = PartitionRun.run, []

    def run(one, keys, rows, watch=None):
        if len(keys) > 20_000:
            refused.append(len(keys))
            raise OutOfMemory("the run passed memory_limit")
        return real(one, keys, rows, watch)

    monkeypatch.setattr(PartitionRun, "run", run)
    database = PATH.run(chain(tmp_path), spill=tmp_path, **MEMORY)
    assert len(database["path"]) == 820
    # Larger ones are not tried again.
    assert len(refused) < 3


def test_what_does_not_fit(tmp_path, monkeypatch):
    facts = chain(tmp_path)

    def run(one, keys, rows, watch=None):
        raise OutOfMemory("the run passed memory_limit = 1 MB: it took 2 MB")

    monkeypatch.setattr(PartitionRun, "run", run)
    with pytest.raises(OutOfMemory, match=r"as small as it can be, do not fit .* all facts of `edge`\n.*it took 2 MB"):
        PATH.run(facts, spill=tmp_path, memory_limit="1 MB")
    with pytest.raises(OutOfMemory, match="there is one partition: "):
        dv.Program(EDGE + "rel n(c) = c := count(x, y: edge(x, y)) query n").run({"edge": [(0, 1)]}, spill=tmp_path)
    with pytest.raises(OutOfMemory, match="every partition needs all facts of `edge`, "):
        PATH.run(facts, spill=tmp_path, memory_limit=100)


def test_a_full_disk(tmp_path):
    """The limit of a file's size stands for it."""
    facts = chain(tmp_path, 300)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2500, before[1]))
    try:
        with pytest.raises(DerivableError, match="cannot write to the folder of the run: ") as raised:
            PATH.run(facts, spill=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "free space there" in str(raised.value)
    assert not list(tmp_path.glob("*/path"))
    assert all(pq.read_table(path) is not None for path in tmp_path.glob("*/path.unfinished/*.parquet"))
    assert len(PATH.run(facts, spill=tmp_path)["path"]) == 300 * 301 // 2


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({"x": [1], "z": [2]}, BindingError, "columns are x, z, and there is no y"),
        ({"x": [1], "y": ["a"]}, TypeMismatchError, "column 'y' is string, and y is usize"),
        ({"x": [1, -1], "y": [2, 3]}, TypeMismatchError, "-1"),
        ({"x": [1, None], "y": [2, 3]}, TypeMismatchError, "missing"),
        ({"x": [1], "y": [2], "tag": ["a"]}, TypeMismatchError, "'tag' of tags is string"),
    ],
)
def test_bad_columns(columns, kind, message, tmp_path):
    path = write(tmp_path / "edge.parquet", **columns)
    with pytest.raises(kind, match=message):
        PATH.run({"edge": path}, spill=tmp_path)
    assert not list(tmp_path.glob("*/path"))


def test_bad_paths(tmp_path):
    for path in ("gone.parquet", "gone/*.parquet"):
        with pytest.raises(BindingError, match=r"there is no .*gone"):
            PATH.run({"edge": str(tmp_path / path)}, spill=tmp_path)
    with pytest.raises(ParseError, match="cannot read the file"):
        PATH.run({"edge": str(tmp_path / "gone.csv")}, spill=tmp_path)
    (tmp_path / "edge.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ParseError, match="cannot read the file"):
        PATH.run({"edge": tmp_path / "edge.parquet"}, spill=tmp_path)
    write(tmp_path / "delta" / "0.parquet", x=[1], y=[2])
    (tmp_path / "delta" / "_delta_log").mkdir()
    for path in ("delta", "delta/*.parquet", "delta/0.parquet"):
        with pytest.raises(UnsupportedError, match="delta is a table of Delta"):
            PATH.run({"edge": str(tmp_path / path)}, spill=tmp_path)
    write(tmp_path / "hive" / "x=1" / "0.parquet", y=[1])
    with pytest.raises(UnsupportedError, match="values of a column in their names, such as x=1"):
        PATH.run({"edge": tmp_path / "hive"}, spill=tmp_path)
    write(tmp_path / "two" / "0.parquet", x=[1], y=[2])
    write(tmp_path / "two" / "1.parquet", x=[1], y=[2.5])
    with pytest.raises(TypeMismatchError, match=r"1.parquet has the columns x bigint, y double"):
        PATH.run({"edge": tmp_path / "two"}, spill=tmp_path)
    with pytest.raises(DerivableError, match="cannot write to the folder of the run"):
        PATH.run(chain(tmp_path), spill=tmp_path / "edge.parquet")


def test_refusals(tmp_path):
    facts = chain(tmp_path)
    text = EDGE + "rel s(x, y) = edge(p, x), edge(p, y) rel s(x, y) = edge(p, x), s(p, q), edge(q, y) query s"
    with pytest.raises(UnsupportedError, match="`s` is not computed in partitions: column 0 of `s` is not passed on"):
        dv.Program(text).run(facts, spill=tmp_path)
    for options in ({"keep": True}, {"tuple_limit": 3}, {"seed": 3}):
        with pytest.raises(UnsupportedError, match="a run in partitions takes no"):
            PATH.run(facts, spill=tmp_path, **options)
    with pytest.raises(UnsupportedError, match="takes no partitions"):
        PATH.run(facts, spill=tmp_path, partitions=3)
    with pytest.raises(UnsupportedError, match="is Duration, which is not written"):
        dv.Program('rel p = {(d"1 day")} query p').run(spill=tmp_path)
    with pytest.raises(BindingError, match="unknown relation `edges`"):
        PATH.run({"edges": facts["edge"]}, spill=tmp_path)
    database = PATH.run({"edge": list(pairwise(range(3)))}, spill=tmp_path)
    with pytest.raises(BindingError, match="unknown relation `paths`"):
        database["paths"]
    with pytest.raises(DomainError, match="explains its distribution"):
        database.explain("plan")
