"""What is wrong with facts, programs and sessions of an engine is said in our words, before anything is computed."""

from decimal import Decimal

import pytest

import derivable as dv
from datalog.distribution.engines import needs_sail, sail
from derivable.core.diagnostics import (
    BindingError,
    DomainError,
    LimitError,
    TypeMismatchError,
    UnsupportedError,
)
from derivable.datalog.policy.costs import under

PATH = "rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), edge(y, z)"
CLOSURE = f"type edge(x: usize, y: usize) {PATH} query path"
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def frame(**columns):
    import pyarrow as pa

    return sail().createDataFrame(pa.table(columns))


def frames_of(*arguments, **options):
    """The DataFrames of all outputs."""
    return run(*arguments, **options).to_spark()


def run(facts, provenance=None, text=CLOSURE, **options):
    return dv.Program(text).run(facts, provenance, engine="sail", partitions=2, **options)


@needs_sail
@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({"x": [1], "z": [2]}, BindingError, "columns are x, z, and there is no y"),
        ({"x": [1]}, BindingError, "there is no y"),
        ({"x": [1], "y": ["a"]}, TypeMismatchError, "column 'y' is string, and y is usize"),
        ({"x": [1.5], "y": [2]}, TypeMismatchError, "column 'x' is double, and x is usize"),
        ({"x": [Decimal("1.5")], "y": [2]}, TypeMismatchError, r"column 'x' is decimal\(2,1\), and x is usize"),
        ({"x": [1], "y": [2], "tag": ["a"]}, TypeMismatchError, "'tag' of tags is string"),
        ({"a": [1], "b": [2], "c": [3]}, BindingError, "the columns are a, b, c"),
    ],
)
def test_columns(columns, kind, message):
    with pytest.raises(kind, match=message):
        run({"edge": frame(**columns)})


@needs_sail
def test_values():
    with pytest.raises(TypeMismatchError, match="usize"):
        run({"edge": frame(x=[1, -1], y=[2, 3])})["path"]
    with pytest.raises(TypeMismatchError, match="missing"):
        run({"edge": frame(x=[1, None], y=[2, 3])})["path"]
    # In a partition, when rows are read.
    text = "type e(s: i64, x: u8) rel p(s, x) = e(s, x) query p"
    with pytest.raises(TypeMismatchError, match=r"facts for `e`, row 0 of its partition, column 1 \(x\): .* found 300"):
        run({"e": frame(s=[1, 2], x=[300, 4])}, text=text)["p"].to_arrow()
    with pytest.raises(
        TypeMismatchError, match=r"facts for `e`, row 0 of its partition, column 'x': the value is missing"
    ):
        run({"e": frame(s=[1, 2], x=[None, 4])}, text=text)["p"].to_arrow()
    with pytest.raises(DomainError, match=r"the tag 1\.5 of row 0 of its partition of the facts for `e`"):
        run({"e": frame(s=[1, 2], x=[3, 4], tag=[1.5, 0.5])}, "exact", text=text)["p"].to_arrow()
    text = "type e(s: u64) rel p(s * 2) = e(s) query p"
    with pytest.raises(UnsupportedError, match="64 bits"):
        run({"e": [2**62]}, text=text)["p"].to_arrow()


@needs_sail
def test_what_is_not_there(tmp_path):
    with pytest.raises(BindingError, match="no table 'nowhere'"):
        run({"edge": "nowhere"})
    with pytest.raises(BindingError, match=r"there is no .*gone.parquet"):
        run({"edge": tmp_path / "gone.parquet"})
    with pytest.raises(BindingError, match=r"'data/edges.csv' is neither Parquet nor the name of a table"):
        run({"edge": "data/edges.csv"})
    with pytest.raises(BindingError, match="unknown relation `edges`"):
        run({"edges": frame(x=[1], y=[2])})
    with pytest.raises(BindingError, match="unknown relation `paths`"):
        run({"edge": [(0, 1)]})["paths"]


@needs_sail
def test_a_session_that_is_gone():
    from pysail.spark import SparkConnectServer

    from derivable.datalog.distribution.session import session_of

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    host, port = server.listening_address
    sail()
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(f"sc://{host}:{port}").create()
    assert session_of(session) is session
    there = session.createDataFrame([(0, 1)], "x bigint, y bigint")
    with pytest.raises(BindingError, match="the DataFrame is one of another session"):
        run({"edge": there})
    path = dv.Program(CLOSURE).run({"edge": there}, engine=session)["path"]
    assert len(path) == 1
    server.stop()
    for ask in (len, lambda relation: relation.to_arrow()):
        with pytest.raises(DomainError, match="session of the engine is gone"):
            ask(path)
    with pytest.raises(DomainError, match="session of the engine is gone"):
        dv.Program(CLOSURE).run({"edge": [(0, 1)]}, engine=session)
    with pytest.raises(DomainError, match="nobody listens at"):
        dv.Program(CLOSURE).run({"edge": [(0, 1)]}, engine=f"sc://{host}:{port}")


def test_what_is_no_engine():
    for engine in ("spark", 3, object()):
        with pytest.raises(DomainError, match="is no engine"):
            dv.Program(CLOSURE).run({"edge": [(0, 1)]}, engine=engine)


@needs_sail
@pytest.mark.parametrize(
    ("text", "provenance", "message"),
    [
        # Without a pivot.
        (
            "rel s(x, y) = edge(x, p), edge(y, p) rel s(x, y) = edge(x, p), s(p, q), edge(y, q) query s",
            "topkproofs",
            "tags of topkproofs are no columns that the engine adds up, nor in partitions: .* passed on",
        ),
        # Over all partitions.
        ("rel n(c) = c := count(x, y: edge(x, y)) query n", "exact", "what `count` gives"),
        # Tags that do not add up.
        (f"{PATH} rel end(y) = path(_, y) query end", "exact", "tags of exact do not add up"),
        (f"{PATH} rel end(y) = path(_, y) query end", "topkproofs", "tags of topkproofs do not add up"),
        ("rel p(x, y) = edge(x, y) query p", "proofs", "no columns of numbers"),
        ("rel q(x) = x := uniform<2>(y: edge(y, _)) query q", None, "draws"),
        ("type E = Leaf(usize) | Pair(E, E) rel p(new Leaf(x)) = edge(x, _) query p", None, "terms"),
        ("type w(i128) rel p(x) = w(x) query p", None, "which the engine has not"),
        ("rel p(x) = edge(x, _) query p evidence p(1)", None, "evidence"),
    ],
)
def test_what_is_refused(text, provenance, message):
    with pytest.raises((UnsupportedError, TypeMismatchError), match=message):
        frames_of({"edge": frame(x=[1], y=[2])}, provenance, text=f"type edge(x: usize, y: usize) {text}")


@needs_sail
@pytest.mark.parametrize(
    "option", [{"keep": True}, {"time_limit": 1.0}, {"tuple_limit": 3}, {"device": "cuda"}, {"evidence": {"path": []}}]
)
def test_options_of_one_machine(option):
    if "evidence" in option:
        option = {"evidence": {"path": [(0, 1)]}}
    with pytest.raises(UnsupportedError, match=f"takes no {next(iter(option))}"):
        run({"edge": [(0, 1)]}, **option)


def test_options_of_engines():
    with pytest.raises(UnsupportedError, match="one machine takes no partitions"):
        dv.Program(CLOSURE).run({"edge": [(0, 1)]}, partitions=2)


@needs_sail
def test_too_much_for_every_partition():
    """Rounds send nothing to all of them; what these do not compute is refused for both reasons."""
    edges = frame(x=list(range(9)), y=list(range(1, 10)))
    with under(small_bytes=64):
        database = run({"edge": edges})
        assert len(database["path"]) == 45
        assert "output path: rounds; no partitions: every partition needs all facts of `edge`" in database.explain()
        database = run({"edge": edges}, "exact")
        with pytest.raises(LimitError, match=r"more than 4 rows; nor is it computed in rounds, as tags of exact"):
            database["path"]
        assert "edge\n  broadcast, and by column 0 of it\n" in database.explain()
