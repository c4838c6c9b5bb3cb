"""What derivable writes to a file it reads as the same facts, by every door, beside the rows that were put in."""

import datetime as dt
import gzip
import shutil

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.cli.main import main
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.api.fact_output import write_facts
from derivable.datalog.facts.fact_folders import facts_from
from derivable.datalog.facts.file_forms import FileForm
from derivable.datalog.policy.costs import under

TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "a b", 'say "no"', '"', "two\nlines", "\r\n", "tab\there", "#x", "x", "y", "column_0", "tag"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4),
)
VALUES = {
    "i32": st.integers(-(2**31), 2**31 - 1),
    "u64": st.integers(0, 2**64 - 1),
    "i128": st.integers(-(2**127), 2**127 - 1),
    "f32": st.floats(width=32, allow_nan=False).map(lambda x: x + 0.0),
    "f64": st.floats(allow_nan=False).map(lambda x: x + 0.0),
    "bool": st.booleans(),
    "char": st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    "String": TEXTS,
    "Symbol": TEXTS,
    "DateTime": st.datetimes(),
    "Duration": st.timedeltas(min_value=dt.timedelta(-(10**6)), max_value=dt.timedelta(10**6)),
    "T": st.builds(lambda n, s: dv.datalog.Entity("N", n, s), st.integers(-5, 5), st.text('a"\\\n ,', max_size=3)),
}
DATA = "type T = N(i32, String) | L()\n"
TEXT = (".csv", ".tsv", ".facts", ".txt")
ENDINGS = (*TEXT, ".parquet", ".arrow", ".feather")


@st.composite
def relations(draw):
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=3))
    rows = draw(st.lists(st.tuples(*(VALUES[t] for t in types)), max_size=5, unique=True))
    tags = draw(st.one_of(st.none(), st.lists(st.floats(0.01, 0.99), min_size=len(rows), max_size=len(rows))))
    return types, rows, tags


def declaration(types, names):
    columns = types if names is None else [f"{n}: {t}" for n, t in zip(names, types)]
    return f"type r({', '.join(columns)})\n"


def read(types, names, path, door):
    text = DATA * ("T" in types)
    if door == "@file":
        return dv.Program(text + f'@file("{path}") {declaration(types, names)}query r').run()["r"]
    program = dv.Program(text + declaration(types, names) + "query r")
    if door == "--facts":
        relations = {"r": program.lowered().relations["r"]}
        return program.run(facts_from(path.parent, relations))["r"]
    return program.run({"r": dv.datalog.FactFile(path) if door == "FactFile" else path})["r"]


def written(folder, types, rows, tags, names, ending, header):
    """A relation and its file, None where its kind of file cannot hold the rows."""
    facts = rows if tags is None else dict(zip(rows, tags))
    text = DATA * ("T" in types) + declaration(types, names) + "query r"
    view = dv.Program(text).run({"r": facts})["r"]
    if tags is None:
        assert set(view) == set(rows)
    path = folder / f"r{ending}"
    try:
        write_facts(view, path, FileForm(header=header))
    except UnsupportedError:
        return view, None
    return view, path


@settings(max_examples=25, deadline=None)
@given(
    relation=relations(),
    ending=st.sampled_from(ENDINGS),
    names=st.sampled_from([None, ("x", "y", "z"), ("city", "tag", "name")]),
    few=st.sampled_from([0, 1 << 16]),
    header=st.booleans(),
)
@example(relation=([], [()], None), ending=".csv", names=None, few=0, header=False)
def test_what_is_written_is_read_by_every_door(tmp_path_factory, relation, ending, names, few, header):
    types, rows, tags = relation
    folder = tmp_path_factory.mktemp("out")
    # `-o` writes a header to .csv, and `@file` of a query where it says so.
    header = True if ending == ".csv" and header else None
    view, path = written(folder, types, rows, tags, names, ending, header)
    if path is None:
        # Lines without quotes have no place for every text.
        assert ending in TEXT[1:]
        assert {*types} & {"String", "Symbol", "char", "T"}
        return
    for packed in (False, *([True] if ending in TEXT else [])):
        if packed:
            with gzip.open(folder / f"r{ending}.gz", "wb") as file:
                file.write(path.read_bytes())
            path.unlink()
            path = folder / f"r{ending}.gz"
        for door in ("Path", "FactFile", "@file", "--facts"):
            for again in (names, None):
                with under(many=few):
                    found = read(types, again, path, door)
                assert dict(found.items()) == dict(view.items()), (door, again)
    shutil.rmtree(folder)


def test_rows_like_a_header_are_facts(tmp_path):
    for ending in TEXT:
        for header in (True, None) if ending == ".csv" else (None,):
            rows, names = [("src", "dst"), ("tag", "x")], ("src", "dst")
            _, path = written(tmp_path, ["String", "String"], rows, None, names, ending, header)
            assert set(read(["String", "String"], names, path, "Path")) == set(rows)


@pytest.mark.parametrize("ending", [*TEXT, ".parquet"])
@pytest.mark.parametrize("types", ["String, String", "i32, i32"])
@pytest.mark.parametrize("tag", ["", "0.5::"])
def test_a_pipeline_of_two_programs(tmp_path, capsys, ending, types, tag):
    """Three paths over two edges, by set arithmetic; their columns have names in the first program alone."""
    edges = '("a", "b"), ("b", "c")' if "String" in types else "(1, 2), (2, 3)"
    (tmp_path / "1.scl").write_text(
        f"type e({types})\nrel e = {{{tag}{edges.replace('), (', f'), {tag}(')}}}\n"
        "rel path(x, y) = e(x, y) or (e(x, z) and path(z, y))\nquery path"
    )
    assert main(["run", str(tmp_path / "1.scl"), "-o", f"{tmp_path}/out/*{ending}"]) == 0
    ask = "rel n(c) = c := count(x, y: path(x, y))\nquery n"
    (tmp_path / "2.scl").write_text(f"type path({types})\n{ask}")
    (tmp_path / "3.scl").write_text(f'@file("out/path{ending}") type path({types})\n{ask}')
    capsys.readouterr()
    for command in (["run", str(tmp_path / "2.scl"), "--facts", f"{tmp_path}/out"], ["run", str(tmp_path / "3.scl")]):
        assert main(command) == 0
        out = capsys.readouterr().out
        assert (out == "n(3)\n") if not tag else "n(3)" in out
        # Each path holds with 1/2, 1/2 and 1/4, independently as the file has it.
        assert not tag or "0.0625::n(3)" in out


def test_a_relation_with_a_column_called_tag_keeps_its_tags(tmp_path):
    view = dv.Program("rel r(tag) = s(tag)\nrel s = {0.25::0.5}\nquery r").run()["r"]
    assert list(view.to_pandas().columns) == ["tag", "tag_1"]
    for facts in (view.to_pandas(), view.to_arrow()):
        again = dv.Program("type r(f32)\nquery r").run({"r": facts})["r"]
        assert dict(again.items()) == {(0.5,): 0.25}


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int8, np.bool_])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (1, 2, 1)])
def test_tensors_come_back_with_dtype_and_shape(tmp_path, ending, dtype, shape):
    program = dv.Program("type r(i32, Tensor)\nquery r")
    tensors = [np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) * k % 2, dtype) for k in (1, 2)]
    view = program.run({"r": list(enumerate(tensors))})["r"]
    write_facts(view, tmp_path / f"r{ending}")
    found = dict(iter(program.run({"r": tmp_path / f"r{ending}"})["r"]))
    for number, tensor in enumerate(tensors):
        assert found[number].dtype == dtype
        assert found[number].shape == shape
        assert np.array_equal(found[number], tensor)
    if shape:
        with pytest.raises(UnsupportedError, match="cannot hold"):
            write_facts(view, tmp_path / "r.csv")
