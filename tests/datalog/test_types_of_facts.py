"""Types of relations that a program does not declare come from their facts, beside sums by Python's own numbers."""

import datetime as dt
import random
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import feather, parquet

import derivable as dv
from derivable.cli.main import main
from derivable.core.diagnostics import TypeMismatchError

TEXT = "rel s(x) = x := sum(v: r(_, v))\nquery s"
SUM = dv.Program(TEXT)
LARGE = [2_000_000_000, 2_000_000_001, 7]
CENTS = [0.1, 123_456_789.12, 1e-3]
FORMS = ["rows", "array", "pandas", "arrow", "mapping", "parquet", "feather", "csv", "tagged csv"]


def facts_of(form, values, folder):
    keys = list(range(len(values)))
    frame = pd.DataFrame({"k": keys, "v": np.array(values)})
    match form:
        case "rows":
            return list(zip(keys, np.array(values)))
        case "array":
            return np.array([keys, values]).T
        case "pandas":
            return frame
        case "arrow":
            return pa.table({"k": keys, "v": values})
        case "mapping":
            return {"k": np.array(keys), "v": np.array(values)}
        case "torch":
            return torch.tensor([keys, values]).T
        case "parquet" | "feather":
            path = folder / f"r.{form}"
            (parquet.write_table if form == "parquet" else feather.write_feather)(
                pa.table({"k": keys, "v": values}), path
            )
            return path
    path = folder / "r.csv"
    frame.insert(0, "tag", 1.0)
    frame.to_csv(path, index=False, columns=["tag", "k", "v"] if "tagged" in form else ["k", "v"])
    return path


@pytest.mark.parametrize("form", [*FORMS, "torch"])
def test_integers_keep_64_bits(tmp_path, form):
    found = SUM.run({"r": facts_of(form, LARGE, tmp_path)}, "unit")["s"]
    assert list(found) == [(sum(LARGE),)]
    assert found.columns[0].dtype == np.int64


@pytest.mark.parametrize("form", FORMS)
def test_floats_keep_64_bits(tmp_path, form):
    facts = facts_of(form, CENTS, tmp_path)
    if form == "array":
        # One dtype for all columns makes numbers of the keys.
        facts = {"k": facts[:, 0], "v": facts[:, 1]}
    ((found,),) = SUM.run({"r": facts}, "unit")["s"]
    exact = sum(map(Fraction, CENTS))
    assert abs(Fraction(found) - exact) <= Fraction(np.spacing(float(exact)))


def test_unsigned_integers_and_narrow_ones():
    for dtype, values, kept in [
        (np.uint64, [2**63, 5], np.uint64),
        (np.uint32, [2**32 - 1, 2**32 - 2], np.int64),
        (np.int16, [2**15 - 1, 2**15 - 2], np.int32),
        (np.uint8, [255, 254], np.int32),
    ]:
        found = SUM.run({"r": {"k": np.arange(2), "v": np.array(values, dtype)}})["s"]
        assert list(found) == [(sum(values),)]
        assert found.columns[0].dtype == kept
    less = dv.Program("rel d(y) = r(v), y == v - 9\nquery d").run({"r": np.array([5], np.uint32)})["d"]
    assert list(less) == [(-4,)]


def test_what_python_writes_has_the_types_of_scallop():
    assert SUM.run({"r": [(0, 1), (1, 2)]})["s"].columns[0].dtype == np.int32
    assert SUM.run({"r": [(0, 0.5)]})["s"].columns[0].dtype == np.float32
    assert dv.Program("rel r = {(0, 1)}\n" + TEXT).run()["s"].columns[0].dtype == np.int32


def test_a_declaration_or_a_use_says_more_than_the_data():
    frame = pd.DataFrame({"k": [0, 1], "v": [1, 2]})
    assert dv.Program("type r(i64, i16)\n" + TEXT).run({"r": frame})["s"].columns[0].dtype == np.int16
    used = dv.Program("type t(i32)\nrel t(v) = r(_, v)\n" + TEXT)
    assert used.run({"r": frame})["s"].columns[0].dtype == np.int32
    joined = dv.Program("rel t(v) = r(_, v), q(v)\nquery t")
    assert joined.run({"r": frame, "q": np.array([2], np.int32)})["t"].columns[0].dtype == np.int64
    assert list(joined.run({"r": frame, "q": [2]})["t"]) == [(2,)]


@pytest.mark.parametrize("kind", ["arrow", "pandas", "rows", "parquet"])
def test_decimals_are_numbers_of_64_bits(tmp_path, kind):
    values = [Decimal("1.10"), Decimal("2.25"), Decimal("1000000.01")]
    table = pa.table({"k": [0, 1, 2], "v": pa.array(values, pa.decimal128(12, 2))})
    facts = {"arrow": table, "pandas": pd.DataFrame({"k": [0, 1, 2], "v": values}), "rows": list(zip(range(3), values))}
    parquet.write_table(table, tmp_path / "r.parquet")
    ((found,),) = SUM.run({"r": facts.get(kind, tmp_path / "r.parquet")})["s"]
    assert found == pytest.approx(1000003.36, abs=1e-9)


def test_decimals_of_more_digits_are_said():
    long = pa.array([Decimal("123456789012345678.10")], pa.decimal128(30, 2))
    with pytest.warns(dv.DerivableWarning, match=r"column 'v' .* more digits than f64\nhelp: .* scaled by 10\*\*2"):
        SUM.run({"r": pa.table({"k": [0], "v": long})})
    whole = pa.array([Decimal(10**30), Decimal(1)], pa.decimal128(38, 0))
    assert list(SUM.run({"r": pa.table({"k": [0, 1], "v": whole})})["s"]) == [(10**30 + 1,)]


def test_decimals_of_frames_are_those_of_arrow(recwarn):
    """Where the type of a column says how many digits there are, whole numbers are integers in every library."""

    def total(scale, *values):
        column = pa.array([*map(Decimal, values)], pa.decimal128(38, scale))
        frame = pd.DataFrame({"k": range(len(values)), "v": pd.array(column, dtype=pd.ArrowDtype(column.type))})
        ((result,),) = SUM.run({"r": frame})["s"]
        ((expected,),) = SUM.run({"r": pa.table({"k": range(len(values)), "v": column})})["s"]
        assert (result, type(result)) == (expected, type(expected))
        return result

    assert total(0, 2**60 + 1, 2) == 2**60 + 3
    assert total(0, 10**30, 1) == 10**30 + 1
    assert total(2, "1.10", "2.25") == pytest.approx(3.35, abs=1e-12)
    assert not recwarn


class _Lazy:
    """A frame that is not computed yet, as polars has it: reading its columns warns."""

    def collect(self):
        raise AssertionError

    @property
    def columns(self):
        raise AssertionError


class _Wide(list):
    """A series of polars whose integers have 128 bits, which NumPy has not."""

    dtype = "Int128"

    def __array__(self, *_, **__):
        raise AssertionError


@pytest.mark.parametrize("values", [[3, 2**40], [2**100, 1]])
def test_integers_of_128_bits(values):
    columns = {0: np.arange(2), 1: _Wide(values)}
    frame = SimpleNamespace(columns=["k", "v"], to_series=columns.get)
    assert list(SUM.run({"r": frame})["s"]) == [(sum(values),)]


def test_lazy_frames_are_to_be_collected():
    with pytest.raises(TypeMismatchError, match=r"not _Lazy\nhelp: collect it first"):
        SUM.run({"r": _Lazy()})


@pytest.mark.parametrize("frame", [pa.table, pd.DataFrame])
def test_dates_times_and_truth_values(frame):
    program = dv.Program("rel z(x) = r(x)\nquery z")
    for value, expected in [
        (dt.date(2024, 1, 2), dt.datetime(2024, 1, 2)),
        (dt.datetime(2024, 1, 2, 3, 4, 5, 6), dt.datetime(2024, 1, 2, 3, 4, 5, 6)),
        (dt.datetime(2024, 1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=1))), dt.datetime(2024, 1, 2, 2)),
        (dt.time(1, 2, 3, 4), dt.timedelta(hours=1, minutes=2, seconds=3, microseconds=4)),
        (dt.timedelta(days=1, microseconds=5), dt.timedelta(days=1, microseconds=5)),
        (True, True),
    ]:
        assert list(program.run({"r": frame({"x": [value]})})["z"]) == [(expected,)]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([7, 2**40], name="v"),
        pd.Index([7, 2**40]),
        pa.array([7, 2**40]),
        pa.chunked_array([[7], [2**40]]),
        np.array([(7,), (2**40,)], [("v", "i8")]),
        np.ma.array([7, 2**40]),
    ],
    ids=lambda column: type(column).__name__,
)
def test_a_column_alone_has_its_type(column):
    assert list(dv.Program("rel s(x) = r(x)\nquery s").run(facts={"r": column})["s"]) == [(7,), (2**40,)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("form", [lambda x: x, lambda x: {"v": x[:, 0].requires_grad_()}])
def test_narrow_floats_that_numpy_has_not(dtype, form):
    given = form(torch.tensor([[1.5], [-2.0]]).to(dtype))
    assert list(dv.Program("rel s(x) = r(x)\nquery s").run(facts={"r": given})["s"]) == [(-2.0,), (1.5,)]


@pytest.mark.parametrize("values", [np.array([1, 2]), np.array([1.0, 2.0]), np.array(["2020", "2021"], "M8[Y]")])
@pytest.mark.parametrize(
    "form", [lambda x: x, lambda x: x[:, None], lambda x: {"v": x}, lambda x: pd.DataFrame({"v": x})]
)
def test_masked_values_are_missing(values, form):
    masked = np.ma.array(values, mask=[False, True])
    with pytest.raises(TypeMismatchError, match="row 1, column 0: the value is missing"):
        dv.Program("rel s(x) = r(x)\nquery s").run(facts={"r": form(masked)})


def test_missing_values_are_refused_by_column(tmp_path):
    table = pa.table({"k": [0, 1, 2], "v": pa.array([1, None, None], pa.int64())})
    parquet.write_table(table, tmp_path / "r.parquet")
    message = r"row 1, column 'v': the value is missing \(2 of 3 are\)"
    with pytest.raises(TypeMismatchError, match=message):
        SUM.run({"r": table})
    with pytest.raises(TypeMismatchError, match=rf"r.parquet: .*{message}") as caught:
        SUM.run({"r": tmp_path / "r.parquet"})
    assert "drop_null()" in str(caught.value)
    assert "dropna" not in str(caught.value)
    clean = parquet.read_table(tmp_path / "r.parquet").drop_null()
    assert list(SUM.run({"r": clean})["s"]) == [(1,)]
    with pytest.raises(TypeMismatchError, match="missing"):
        SUM.run({"r": pd.DataFrame({"k": [0, 1], "v": pd.array([1, None], dtype="Int64")})})


def test_more_facts_and_files_of_the_command_line(tmp_path, capsys):
    database = SUM.run({"r": pd.DataFrame({"k": [0], "v": [LARGE[0]]})}, keep=True)
    database.add({"r": pd.DataFrame({"k": [1], "v": [LARGE[1]]})})
    assert list(database["s"]) == [(sum(LARGE[:2]),)]
    (tmp_path / "p.scl").write_text(TEXT)
    for form in ("csv", "parquet"):
        folder = tmp_path / form
        folder.mkdir()
        facts_of(form, LARGE, folder)
        assert main(["run", str(tmp_path / "p.scl"), "--facts", str(folder)]) == 0
        assert capsys.readouterr().out == f"s({sum(LARGE)})\n"


def test_layers_take_the_types_of_their_facts():
    text = "rel big(x) = x := sum(v: r(_, v))\nrel q() = a(0), big(x), x / 2 > 1500000000"
    layer = dv.nn.Logic(
        text, {"a": dv.independent([0])}, {"q": ()}, facts={"r": pd.DataFrame({"k": [0, 1], "v": LARGE[:2]})}
    )
    assert layer(torch.tensor([0.25], dtype=torch.float64)).item() == pytest.approx(0.25)


def test_a_wrong_number_of_columns_is_one_of_the_facts(tmp_path):
    path = Path(tmp_path / "r.csv")
    path.write_text("1,2,3,4\n")
    for facts in (np.ones((2, 3), np.int64), pd.DataFrame({"a": [1], "b": [2], "c": [3], "d": [4]}), [(1, 2, 3)], path):
        with pytest.raises(dv.DerivableError) as caught:
            SUM.run({"r": facts})
        assert "<program>" not in str(caught.value)
        assert "columns" in str(caught.value)


def test_a_frame_with_tags_says_the_types_of_its_other_columns():
    frame = pd.DataFrame({"k": [0, 1], "v": LARGE[:2], "tag": [1.0, 1.0]})
    assert dict(SUM.run({"r": frame}, "minmaxprob")["s"].items())[sum(LARGE[:2]),] == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rel r = {2000000000, 2000000001}\nrel s(x) = x := sum(v: r(v))",
            "`sum` is 4000000001, .* becomes 2147483647",
        ),
        ("rel r = {-2000000000, -2000000001}\nrel s(x) = x := sum(v: r(v))", "`sum` is -4000000001, .* -2147483648"),
        ("type r(u64)\nrel r = {18446744073709551615, 2}\nrel s(x) = x := sum(v: r(v))", "as i128"),
        (
            "type r(i8)\nrel r = {2, 4, 16}\nrel s(x) = x := prod(v: r(v))",
            "`prod` is beyond what i8 holds, -128 to 127",
        ),
        ("rel r = {0.5::2000000000, 0.5::2000000001}\nrel s(x) = x := sum(v: r(v))", "`sum` is 4000000001"),
        ("rel r = {(0, 1), (1, 2147483647), (1, 1)}\nrel s(k, x) = x := sum(v: r(k, v))", "`sum` is 2147483648"),
    ],
)
def test_a_total_beyond_its_type_is_said_once(text, message, recwarn):
    program = dv.Program(text)
    program.run()
    (said,) = [str(w.message) for w in recwarn if issubclass(w.category, dv.DerivableWarning)]
    assert re.search(message, said)
    assert re.search(r"help: cast the values, `(sum|prod)\(w: r\(v\), w == v as i\d+\)`", said)
    program.run()
    assert sum(issubclass(w.category, dv.DerivableWarning) for w in recwarn) == 1


@pytest.mark.parametrize(
    "text",
    [
        "rel r = {2147483646, 1}\nrel s(x) = x := sum(v: r(v))",
        "rel r = {-2147483648}\nrel s(x) = x := sum(v: r(v))",
        "type r(i8)\nrel r = {2, 4, 15}\nrel s(x) = x := prod(v: r(v))",
        "rel r = {1000000, 1000001, 0}\nrel s(x) = x := prod(v: r(v))",
        "rel r = {0.5::2147483646, 0.5::1}\nrel s(x) = x := sum(v: r(v))",
        "rel s(x) = x := sum(v: r(v))\ntype r(i32)",
    ],
)
def test_totals_inside_their_type_are_not_said(text, recwarn):
    dv.Program(text).run()
    assert not [w for w in recwarn if issubclass(w.category, dv.DerivableWarning)]


@pytest.mark.parametrize(
    "run",
    [
        lambda n: dv.Program("type r(f64)\nquery r").run(facts={"r": [(n,)]}),
        lambda n: dv.Program("type r(i32)\nquery r").run(facts={"r": {(1,): n}}),
        lambda n: dv.Program("type r(i32)\nquery r").run(facts={"r": [(n, (1,))]}, provenance="max_plus"),
        lambda n: dv.independent([1], [n]),
        lambda n: dv.categorical([1], [n]),
        lambda n: dv.Program(f"rel {n}::r(1)\nquery r").run(),
        lambda n: dv.Program(f"rel 1 - {n}::r(1)\nquery r").run(),
    ],
)
def test_integers_beyond_floats_are_refused(run):
    with pytest.raises(dv.DerivableError, match=r"beyond|expected f64|not a probability|no value|does not fit"):
        run(10**400)
    dv.Program("rel r(1)").run(time_limit=10**400)


@pytest.mark.parametrize("stage", ["types", "desugar", "ram"])
def test_explain_has_the_types_of_the_facts(stage):
    program = dv.Program("rel s(x) = r(x)\nquery s")
    assert "i64" in program.explain(stage, facts={"r": np.array([2**40])})
    assert "i64" not in program.explain(stage)


MOMENTS = "type e(t: DateTime)\nquery e"
NANOSECONDS = np.array([0, 1_000, 1_001], "M8[ns]")


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        (MOMENTS, NANOSECONDS, "DateTime holds microseconds"),
        (MOMENTS, pd.Series(NANOSECONDS), "DateTime holds microseconds"),
        (MOMENTS, list(pd.Series(NANOSECONDS)), "DateTime holds microseconds"),
        (MOMENTS, pa.array(NANOSECONDS), "DateTime holds microseconds"),
        ("type e(t: Duration)\nquery e", NANOSECONDS - NANOSECONDS[0], "Duration holds microseconds"),
        ("rel s(t) = e(t)\nquery s", [Decimal("123456789012345678.55"), Decimal(1)], "more digits than f64"),
        ("rel s(t) = e(t)\nquery s", pd.Series([Decimal("0.12345678901234567891")]), "more digits than f64"),
    ],
)
def test_digits_that_a_column_does_not_hold_are_said(text, column, message):
    facts = pa.table({"t": column}) if isinstance(column, pa.Array) else {"t": column}
    with pytest.warns(dv.DerivableWarning, match=message):
        dv.Program(text).run({"e": facts})


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (MOMENTS, NANOSECONDS[:2]),
        (MOMENTS, np.array(["2026-03-05", "9999-12-31"], "M8[D]")),
        ("type e(t: Duration)\nquery e", np.array([1, 999], "m8[M]")),
        ("rel s(t) = e(t)\nquery s", [Decimal("0.1"), Decimal("123456789012.34")]),
        ("rel s(t) = e(t)\nquery s", [Decimal("2.50000000000000000000")]),
    ],
)
def test_digits_that_it_holds_are_not_said(text, column, recwarn):
    assert len(next(iter(dv.Program(text).run({"e": {"t": column}}).values()))) == len(column)
    assert not [w for w in recwarn if issubclass(w.category, dv.DerivableWarning)]


@pytest.mark.parametrize(
    ("year", "unit"), [("10000", "D"), ("300000", "D"), ("586000", "D"), ("586560", "Y"), ("-1", "s")]
)
def test_moments_that_are_too_far_away_are_refused(year, unit):
    """Years from 1 to 9999: beyond some 292 thousand the microseconds of NumPy wrap around."""
    with pytest.raises(TypeMismatchError, match="row 1, column 0"):
        dv.Program(MOMENTS).run({"e": {"t": np.array(["2026", year], f"M8[{unit}]")}})


@pytest.mark.parametrize("digits", [20, 38])
def test_decimals_are_rounded_once(digits):
    """Arrow's own conversion misses the nearest number in one of eight."""
    draw = random.Random(digits)
    values = [Decimal(draw.randint(-(10**12), 10**12)) / 100 for _ in range(1000)]
    table = pa.table({"v": pa.array(values, pa.decimal128(digits, 2))})
    found = dv.Program("rel s(v) = r(v)").run({"r": table})["s"]
    assert {v for (v,) in found} == {float(value) for value in values}
