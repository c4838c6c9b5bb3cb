"""Relations as pandas and Arrow tables."""

import sys

import pytest

import derivable as dv
from derivable.core.diagnostics import DomainError, MissingDependencyError

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

PROGRAM = dv.Program("""
    type person(name: String, age: i8, initial: char, present: bool, height: f64)
    type odd(tag: u64, column_1: i32, f32), same(x: i32, x: i32)
    rel odd = {(18446744073709551615, 2, 0.5)}
    rel same = {(1, 2)}
    rel here() = person(_, _, _, true, _)
    rel nobody(n) = person(n, 100, _, _, _)
    query person
    query odd
    query same
    query here
    query nobody
""")
PEOPLE = [("Ötzi\n<b>", 45, "ö", False, 1.6), ("Ada", 36, "a", True, 1.65)]


@pytest.fixture(scope="module")
def database():
    return PROGRAM.run(facts={"person": PEOPLE})


def test_pandas(database):
    frame = database["person"].to_pandas()
    assert list(frame) == ["name", "age", "initial", "present", "height"]
    assert list(frame.itertuples(index=False, name=None)) == sorted(PEOPLE) == list(database["person"])
    assert [str(frame[name].dtype) for name in ("age", "present", "height")] == ["int8", "bool", "float64"]


def test_arrow(database):
    table = database["person"].to_arrow()
    assert table.schema == pa.schema(
        {"name": pa.string(), "age": pa.int8(), "initial": pa.string(), "present": pa.bool_(), "height": pa.float64()}
    )
    assert [tuple(row.values()) for row in table.to_pylist()] == sorted(PEOPLE)


@pytest.mark.parametrize("rows", [[(1, 2), (3, 4)], [(3, 4), (1, 2)]], ids=["in order", "not in order"])
def test_what_is_written_to_columns_does_not_reach_a_table(rows):
    database = dv.Program("type r(u32, u64)\nquery r").run({"r": rows})
    table = database["r"].to_arrow()
    for column in database["r"].columns:
        column[:] = 9
    assert [tuple(row.values()) for row in table.to_pylist()] == [(1, 2), (3, 4)]


def test_the_largest_unsigned_number_stays(database):
    assert database["odd"].to_arrow().column(0).to_pylist() == [2**64 - 1]
    assert database["odd"].to_pandas().iloc[0, 0] == 2**64 - 1


def test_columns_have_distinct_names(database):
    assert list(database["odd"].to_pandas()) == ["tag", "column_1", "column_2"]
    assert list(database["same"].to_pandas()) == ["x", "x_1"]
    tagged = PROGRAM.run(facts={"person": PEOPLE}, provenance="minmaxprob")
    assert list(tagged["odd"].to_pandas()) == ["tag", "column_1", "column_2", "tag_1"]


def test_without_rows_or_columns(database):
    for name, rows, columns in [("here", 1, 0), ("nobody", 0, 1)]:
        assert database[name].to_pandas().shape == (rows, columns)
        assert database[name].to_arrow().shape == (rows, columns)
    assert database["nobody"].to_arrow().schema.field(0).type == pa.string()


@pytest.mark.parametrize("method", ["to_pandas", "to_arrow"])
def test_a_frame_can_be_facts_again(database, method):
    frame = getattr(database["person"], method)()
    again = PROGRAM.run(facts={"person": frame})
    assert list(again["person"]) == sorted(PEOPLE)


def test_tags_are_the_last_column():
    facts = {"edge": {(0, 1): 0.5, (1, 2): 0.25}}
    path = dv.Program("rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))").run(facts, provenance="exact")
    frame = path["path"].to_pandas()
    assert frame["tag"].tolist() == [0.5, 0.125, 0.25]
    assert path["path"].to_arrow().to_pandas().equals(frame)


@pytest.mark.parametrize("method", ["to_pandas", "to_arrow"])
def test_a_text_that_is_no_unicode_is_our_error(method):
    view = dv.Program("type word(text: String)").run(facts={"word": ["a", "\ud800"]})["word"]
    with pytest.raises(DomainError, match="half of a surrogate pair"):
        getattr(view, method)()


def test_a_missing_package_is_named(monkeypatch, database):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError) as caught:
        database["person"].to_pandas()
    assert str(caught.value) == ("this needs pandas, which is not installed\nhelp: pip install 'derivable[frames]'")
