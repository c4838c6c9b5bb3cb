"""The round plan on Sail: rows and tags are those of one machine."""

import collections
import datetime as dt
import gc

import pytest

import derivable as dv
from datalog.distribution.engines import needs_sail, sail
from datalog.distribution.test_partitions import EDGE, FACTS, PROGRAMS
from datalog.distribution.test_sail import edges
from datalog.test_language import CASES
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.api.partitions import RoundPlan
from derivable.datalog.api.spark_rounds import Rounds

pytestmark = [
    needs_sail,
    pytest.mark.filterwarnings("ignore::derivable.DerivableWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
SAME = EDGE + (
    "rel same(x, y) = edge(p, x), edge(p, y), x != y rel same(x, y) = edge(p, x), same(p, q), edge(q, y) query same"
)
TRANSITIVE = EDGE + "rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), path(y, z) query path"


def in_rounds(program, facts, provenance, outputs=None, engine="sail", spill=None):
    """Output -> {row: tag} of outputs that rounds compute, whether partitions do or not."""
    run = program.run(facts, provenance, engine=engine, partitions=2, spill=spill)._run
    rows_of = {}
    for output in run.distribution.plans if outputs is None else outputs:
        planned = RoundPlan.of(run.plan, output, run.record)
        if isinstance(planned, RoundPlan):
            run.distribution.plans[output], run.distribution.rounds[output] = "", planned
            rows_of[output] = dict(dv.datalog.api.spark.SparkRelation(run, output).items())
    return rows_of


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "max_product", "maxmultprob", "min_plus", "addmultprob"])
@pytest.mark.parametrize("text", [SAME, TRANSITIVE, EDGE + PROGRAMS["closure"][0] + "query path"])
def test_tags(text, provenance):
    program = dv.Program(text)
    [(output, rows)] = in_rounds(program, {"edge": edges()}, provenance).items()
    assert rows == pytest.approx(dict(program.run(FACTS, provenance)[output].items()), abs=1e-12)


def test_facts_of_no_rows():
    program = dv.Program(SAME)
    frame = sail().createDataFrame([], "x bigint, y bigint")
    for facts in ([], frame):
        for provenance in ("unit", "real"):
            assert in_rounds(program, {"edge": facts}, provenance) == {"same": {}}


def language(cases):
    """How many outputs of cases of the language rounds compute, with the rows of one machine, and how many not."""
    counts = collections.Counter()
    for _, text, *_ in cases:
        program = dv.Program(text)
        try:
            computed = in_rounds(program, None, "unit")
        except UnsupportedError:
            continue
        expected = program.run(provenance="unit")
        for output, rows in computed.items():
            assert set(rows) == set(expected[output]), (text, output)
        counts["compared"] += len(computed)
        counts["refused"] += len(expected) - len(computed)
    return counts


def test_language():
    counts = language(CASES[::4])
    assert counts["compared"] > 30


@pytest.mark.slow
def test_all_of_the_language():
    assert language(CASES)["compared"] > 140


def test_rounds_are_chosen_without_a_pivot():
    program = dv.Program(SAME)
    database = program.run({"edge": edges().select("x", "y")}, engine="sail", partitions=2)
    assert "output same: rounds; no partitions: column 0 of `same` is not passed on" in database.explain()
    assert set(database["same"]) == set(program.run({"edge": list(FACTS["edge"])})["same"])


def test_values_are_checked():
    program = dv.Program(SAME)
    for bad in ([1, None], [1, -1]):
        frame = sail().createDataFrame([(0, 1), *((x, 2) for x in bad)], "x bigint, y bigint")
        with pytest.raises(dv.DerivableError, match="does not fit"):
            program.run({"edge": frame}, engine="sail")["same"]


@pytest.mark.parametrize("provenance", ["minmaxprob", "max_product", "min_plus", "addmultprob"])
def test_tags_are_checked(provenance):
    """Facts that are no rows are left out; tags that the semiring has not, or that could grow for ever, are refused."""
    program = dv.Program(SAME)
    zero = float("inf") if provenance == "min_plus" else 0.0
    rows = [(0, 1, 0.5), (0, 2, 0.25), (0, 3, zero)]
    here = {(x, y): tag for x, y, tag in rows}
    expected = program.run({"edge": here}, provenance)["same"]
    schema = "x bigint, y bigint, tag double"
    for facts in (sail().createDataFrame(rows, schema), here):
        derived = in_rounds(program, {"edge": facts}, provenance)["same"]
        assert derived == pytest.approx(dict(expected.items()), abs=1e-12)
        assert len(derived) == 2
    for bad in (float("nan"), -0.5, *([] if provenance == "min_plus" else [1.5])):
        frame = sail().createDataFrame([(0, 1, bad), (0, 2, 0.5)], schema)
        with pytest.raises(dv.DerivableError, match="does not fit"):
            program.run({"edge": frame}, provenance, engine="sail")["same"]


def test_values_of_floats_and_characters_are_checked():
    text = "type e(x: {0}, y: {0}) rel s(x, y) = e(p, x), e(p, y) rel s(x, y) = e(p, x), s(p, q), e(q, y) query s"
    for kind, engine_kind, good, bad in (("f64", "double", 1.0, float("nan")), ("char", "string", "a", "ab")):
        for value, fits in ((good, True), (bad, False)):
            frame = sail().createDataFrame([(good, good), (good, value)], f"x {engine_kind}, y {engine_kind}")
            if fits:
                assert set(dv.Program(text.format(kind)).run({"e": frame}, engine="sail")["s"]) == {(good, good)}
            else:
                with pytest.raises(dv.DerivableError, match="does not fit"):
                    dv.Program(text.format(kind)).run({"e": frame}, engine="sail")["s"]


def test_times_are_those_of_no_time_zone():
    zone = "spark.sql.session.timeZone"
    before = sail().conf.get(zone)
    time = dt.datetime(2026, 1, 2, 3, 4, 5, 6)
    program = dv.Program("type e(t: DateTime) rel s(t) = e(t) query s")
    sail().conf.set(zone, "America/New_York")
    try:
        assert in_rounds(program, {"e": [(time,)]}, "unit", ["s"]) == {"s": {(time,): True}}
    finally:
        sail().conf.set(zone, before)


@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64", "u8", "u32", "u64", "usize"])
@pytest.mark.filterwarnings("ignore::derivable.DerivableWarning")
def test_arithmetic(kind):
    """Sums stay at the bounds of their type, products wrap, up to what the engine has."""
    bits = 64 if kind == "usize" else int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "i" else (0, min(1 << bits, 1 << 63) - 1)
    values = sorted({low, low + 1, 0, 1, 3, high // 3 + 5, high - 1, high})
    is_beyond = kind in ("u64", "usize")
    pairs = [(x, y) for x in values for y in values if not is_beyond or max(x + y, x * y % (1 << 64)) <= high]
    text = "rel p(x, y, {0}) = e(x, y) query p"
    for expression in ("x + y", "x - y", "x * y"):
        program = dv.Program(f"type e(x: {kind}, y: {kind}) {text.format(expression)}")
        assert in_rounds(program, {"e": pairs}, "unit") == {"p": dict.fromkeys(program.run({"e": pairs})["p"], True)}
    for expression, pair in (("x + y", (high, 1)), ("x * y", (high, 2))) if is_beyond else ():
        program = dv.Program(f"type e(x: {kind}, y: {kind}) {text.format(expression)}")
        with pytest.raises(dv.DerivableError, match="beyond 64 bits"):
            in_rounds(program, {"e": [pair]}, "unit")


@pytest.mark.parametrize("kind", ["i8", "i64", "u32", "u64", "f64", "f32"])
@pytest.mark.filterwarnings("ignore::derivable.DerivableWarning")
def test_expressions_without_a_value(kind):
    """Rows are dropped of quotients, of differences that leave their type, and of what is no number."""
    if kind[0] == "f":
        values = [0.0, 1.0, -1.5, 0.1, 1e38, float("inf"), float("-inf")]
        expressions = ["x / y", "x + y", "x - y", "x * y", "-x", "(x + y) * x - y"]
    else:
        bits = int(kind[1:])
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "i" else (0, min(1 << bits, 1 << 63) - 1)
        values = sorted({low, low + 1, 0, 3, 7, high - 1, high} | ({-1, -3} if low else set()))
        expressions = ["x / y", "x % y", *(["-x"] if low else [])]
    pairs = [(x, y) for x in values for y in values]
    rules = [f"rel p{n}(x, y, {expression}) = e(x, y)" for n, expression in enumerate(expressions)]
    rules += ["rel back(x, y, z) = e(x, y), y == z + x", "rel less(x, y) = e(x, y), x / y < y"]
    names = [*(f"p{n}" for n in range(len(expressions))), "back", "less"]
    text = f"type e(x: {kind}, y: {kind}) {' '.join(rules)} {' '.join(f'query {name}' for name in names)}"
    program = dv.Program(text)
    expected, found = program.run({"e": pairs}), in_rounds(program, {"e": pairs}, "unit")
    assert found == {name: dict.fromkeys(expected[name], True) for name in names}
    assert all(map(len, expected.values()))
    assert len(expected["p0"]) < len(pairs)


def test_a_recursion_with_numbers():
    """Fibonacci's numbers, whose rule looks one number back, and lengths of walks as floats."""
    program = dv.Program(
        "type n(x: i64) rel fib = {(0, 0), (1, 1)} rel fib(i + 1, a + b) = fib(i, a), fib(i - 1, b), n(i) query fib"
    )
    frame = sail().createDataFrame([(i,) for i in range(1, 12)], "x bigint")
    assert set(program.run({"n": frame}, engine="sail")["fib"]) >= {(12, 144), (11, 89)}
    text = (
        "type road(a: i64, b: i64, length: f64) rel walk(b, d) = road(0, b, d) "
        "rel walk(c, d + length) = walk(b, d), road(b, c, length), d < 3.0 query walk"
    )
    roads = [(0, 1, 0.5), (1, 0, 0.25), (1, 2, 0.1), (2, 0, 1.5)]
    frame = sail().createDataFrame(roads, "a bigint, b bigint, length double")
    database = dv.Program(text).run({"road": frame}, engine="sail")
    assert set(database["walk"]) == set(dv.Program(text).run({"road": roads})["walk"])
    assert "output walk: rounds" in database.explain()


@pytest.mark.parametrize("kind", ["i8", "i64", "u32", "u64", "f64", "f32"])
def test_sums_of_values(kind):
    """Of integers they stay at the bounds of their type; a group without rows has 0, and what is no number no row."""
    text = (
        "rel s(k, t) = t := sum(x: e(k, x)) rel z(k, t) = t := sum(x: e(k, x) where k: g(k)) "
        "rel n(t) = t := sum(x: e(5, x)) query s query z query n"
    )
    program = dv.Program(f"type e(k: i64, x: {kind}) type g(k: i64) {text}")
    if kind[0] == "f":
        rows = [(1, 0.5), (1, 0.25), (2, -3.0), (3, float("inf")), (4, float("inf")), (4, float("-inf"))]
    else:
        bits = int(kind[1:])
        high = (1 << bits - (kind[0] == "i")) - 1 if kind != "u64" else 1 << 62
        rows = [(1, 1), (1, 3), (2, high), (3, 7)]
        rows += [] if kind == "u64" else [(4, high), (4, high - 1), (4, 5)]
        rows += [(6, -high - 1), (6, -1)] if kind[0] == "i" else []
    expected = program.run({"e": rows, "g": [(1,), (4,), (9,)]})
    found = in_rounds(program, {"e": rows, "g": [(1,), (4,), (9,)]}, "unit")
    assert found == {output: dict.fromkeys(expected[output], True) for output in expected}
    if kind == "u64":
        with pytest.raises(dv.DerivableError, match="beyond 64 bits"):
            in_rounds(program, {"e": [(1, high + 1), (1, high)], "g": [(1,)]}, "unit", ["s"])


def test_longest_paths():
    """max_plus of tags up to 0, as larger ones could grow for ever."""
    program = dv.Program(SAME)
    here = {(0, 1): -0.5, (0, 2): -1.0, (1, 3): -0.25, (2, 4): 0.0, (2, 5): float("-inf")}
    expected = {(1, 2): -1.5, (2, 1): -1.5, (3, 4): -1.75, (4, 3): -1.75}
    frame = sail().createDataFrame([(*row, tag) for row, tag in here.items()], "x bigint, y bigint, tag double")
    for facts in (here, frame):
        same = program.run({"edge": facts}, "max_plus", engine="sail")["same"]
        assert same == pytest.approx(expected, abs=1e-12)
    with pytest.raises(dv.DerivableError, match="a tag from -inf to 0"):
        program.run({"edge": frame.selectExpr("x", "y", "-tag AS tag")}, "max_plus", engine="sail")["same"]


def test_frames_outlive_their_run():
    """Its files go with the session: a DataFrame reads them whenever its rows are read. Those of rounds go at once."""
    frame = dv.Program(SAME).run({"edge": edges().select("x", "y")}, engine="sail")["same"].to_spark()
    gc.collect()
    assert frame.count() == len(dv.Program(SAME).run({"edge": list(FACTS["edge"])})["same"])


def test_many_rounds_are_folded(tmp_path):
    """A chain of 25: files of rounds are written as one every ten rounds, below the folder that the run names."""
    import pyarrow as pa

    frame = sail().createDataFrame(pa.table({"x": list(range(25)), "y": list(range(1, 26))}))
    text = (
        EDGE
        + "rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), edge(y, z) rel n(c) = c := count(x, y: path(x, y))"
    )
    database = dv.Program(text + " query n").run({"edge": frame}, engine="sail", spill=tmp_path)
    assert list(database["n"]) == [(25 * 26 // 2,)]
    assert len(list(tmp_path.glob("*/stratum_*/*/to_*"))) == 2


def test_a_failed_run_leaves_no_files(tmp_path, monkeypatch):
    """Those before its first round have been written when it fails."""
    written = []

    def fails(*_):
        written.extend(tmp_path.glob("*/stratum_*"))
        return "SELECT c0 FROM nowhere"

    monkeypatch.setattr(Rounds, "_news", fails)
    with pytest.raises(dv.DerivableError, match="`same`: the engine says"):
        dv.Program(SAME).run({"edge": edges().select("x", "y")}, engine="sail", spill=tmp_path)["same"]
    assert written
    assert list(tmp_path.iterdir()) == []


def test_refusals_name_both_reasons():
    program = dv.Program(EDGE + "rel n(s) = s := prod(x: edge(x, _)) query n")
    with pytest.raises(
        UnsupportedError, match="neither in rounds, as `prod` is no aggregate of the engine, nor in partitions"
    ):
        program.run({"edge": edges()}, "unit", engine="sail")["n"]
    program = dv.Program(SAME)
    with pytest.raises(UnsupportedError, match="tags of exact are no columns"):
        program.run({"edge": edges()}, engine="sail")["same"]
