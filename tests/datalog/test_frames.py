"""Relations as pandas and Arrow tables."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import derivable as dv
from derivable.core.diagnostics import DomainError, MissingDependencyError, ShapeError, TypeMismatchError

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


def test_columns_of_outputs_have_the_names_of_variables():
    program = dv.Program("""
        type edge(source: i32, target: i32), pair(i32, i32)
        rel path(x, y) = edge(x, y) or path(x, z) and edge(z, y)
        rel from_zero(0, y) = path(0, y)
        rel from_zero(start, 7) = edge(start, _)
        rel both(x, y + 1, x) = edge(x, y)
        rel pair = {(1, 2)}
        query edge
        query path
        query path(0, reached)
        query path(a, _)
        query from_zero
        query both
        query pair
    """)
    database = program.run({"edge": [(0, 1), (1, 2)]}, keep=True)
    names = {name: list(frame) for name, frame in database.to_pandas().items()}
    assert names == {
        "edge": ["source", "target"],
        "path": ["x", "y"],
        "path(0, reached)": ["x", "reached"],
        "path(a, _)": ["a", "y"],
        "from_zero": ["start", "y"],
        "both": ["x", "column_1", "x_1"],
        "pair": ["column_0", "column_1"],
    }
    assert list(database.fork()["path"].to_pandas()) == ["x", "y"]
    # Variables of rules name no columns of facts.
    given = dv.Program("rel path(x, y) = step(x, y)\ntype step(i32, i32)\nquery path")
    assert (0, 1) in given.run({"step": pd.DataFrame({"y": [0], "x": [1]})})["path"]


def test_polars(monkeypatch, database):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingDependencyError, match=r"this needs polars(.|\n)*pip install polars"):
        database.to_polars()
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(from_arrow=lambda table: ("polars", table)))
    kind, table = database.to_polars()["person"]
    assert (kind, table) == ("polars", database["person"].to_arrow())


@pytest.mark.parametrize("given", ["frame", "columns", "arrow"])
def test_columns_that_fit_the_declaration_in_part(given):
    forms = {"frame": pd.DataFrame, "columns": lambda columns: columns, "arrow": pa.table}
    program = dv.Program("type lives(name: String, city: String)\nquery lives")

    def run(**columns):
        return list(program.run({"lives": forms[given](columns)})["lives"])

    assert run(city=["Bozen"], name=["Ada"]) == [("Ada", "Bozen")]
    assert run(City=["Bozen"], Name=["Ada"]) == [("Ada", "Bozen")]
    assert run(who=["Ada"], where=["Bozen"]) == [("Ada", "Bozen")]
    with pytest.raises(ShapeError, match="the columns are named city, who, and the declared ones name, city") as caught:
        run(city=["Bozen"], who=["Ada"])
    assert "rename them" in str(caught.value)
    with pytest.raises(ShapeError, match="named city, who, and the declared"):
        run(city=["Bozen"], who=["Ada"], probability=[0.5])


@pytest.mark.parametrize(
    ("column", "row"),
    [
        (pd.Series([1.0, float("nan")]), 1),
        (pd.array([None, 2], dtype="Int64"), 0),
        ([3, None], 1),
        (np.array([float("nan"), 1.0]), 0),
    ],
)
@pytest.mark.parametrize("kind", ["i64", "f64"])
def test_missing_values_are_named(column, row, kind):
    program = dv.Program(f"type aged(name: String, age: {kind})")
    with pytest.raises(TypeMismatchError, match=rf"row {row}, column .*age.*: the value is missing") as caught:
        program.run({"aged": pd.DataFrame({"name": ["a", "b"], "age": column})})
    assert "dropna()" in str(caught.value)


def test_missing_values_of_arrow_are_dropped_as_arrow_does():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"name": ["a", None], "age": [1, 2]})
    for some in (table, table.to_batches()[0]):
        with pytest.raises(TypeMismatchError, match=r"row 1, column 'name': the value is missing\n.*drop_null\(\)`$"):
            dv.Program("type aged(name: String, age: i64)").run({"aged": some})
    dv.Program("type aged(name: String, age: i64)").run({"aged": table.drop_null()})


def test_missing_texts_are_named():
    with pytest.raises(TypeMismatchError, match=r"row 1, column 0 \(text\): the value is missing \(nan\)"):
        dv.Program("type word(text: String)").run({"word": pd.DataFrame({"text": ["a", float("nan")]})})


def test_a_text_in_place_of_a_path():
    with pytest.raises(TypeMismatchError, match=r"facts for `e` are the text 'e.csv'") as caught:
        dv.Program("type e(x: i32)").run({"e": "e.csv"})
    assert "Path('e.csv')" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (
            pd.DataFrame({"name": ["Ann"], "years": ["81"]}),
            r'row 0, column 1 \(years\): expected i32, found "81"',
            "pandas.to_numeric(column)",
        ),
        (
            pd.DataFrame({"name": ["Ann"], "years": [81.0]}),
            r"column 1 \(years\): expected i32, found an array of dtype float64",
            "declare the column as f64, or convert it: `array.astype(np.int32)`",
        ),
        (
            pd.DataFrame({"name": ["Ann"], "years": pd.to_datetime(["1945-01-01"])}),
            r"column 1 \(years\): expected i32, found an array of dtype datetime64",
            "declare the column as DateTime",
        ),
        (
            pd.DataFrame({"name": ["Ann"], "years": [81]}).set_index("name"),
            r"1 column \(years\) for 2",
            "`frame.reset_index()`",
        ),
        (
            pd.DataFrame({"name": ["Ann"], "years": [81], "town": ["Ayr"]}),
            r"3 columns \(name, years, town\) for 2",
            "select those of `age(String, i32)`",
        ),
    ],
    ids=["text", "float", "date", "index", "more"],
)
def test_mistakes_in_a_first_frame_have_a_hint(given, message, hint):
    with pytest.raises(dv.DerivableError, match=message) as caught:
        dv.Program("type age(name: String, years: i32)").run({"age": given})
    assert hint in str(caught.value)
