"""Facts from objects of other libraries: the values, or an error of ours. Probabilities are numbers, and no masked,
complex or timed ones are taken for them."""

import datetime as dt
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import DomainError, TypeMismatchError

jax = pytest.importorskip("jax")
jnp = jax.numpy

ONE = dv.Program("rel z(x) = r(x)\nquery z")
TWO = dv.Program("rel z(x, y) = r(x, y)\nquery z")
SUM = dv.Program("rel s(x) = x := sum(v: r(v))\nquery s")


@pytest.mark.parametrize(
    "facts",
    [
        pd.MultiIndex.from_tuples([(1, 2**40), (3, 4)]),
        pd.DataFrame({"a": [1, 3], "b": [2**40, 4]}),
        pa.table({"a": [1, 3], "b": [2**40, 4]}),
        np.array([[1, 2**40], [3, 4]]),
        np.array([(1, 2**40), (3, 4)], "i8,i8"),
        torch.tensor([[1, 2**40], [3, 4]]),
    ],
    ids=lambda facts: type(facts).__name__,
)
def test_tables_are_rows_of_any_facts(facts):
    assert sorted(TWO.run({"r": facts})["z"]) == [(1, 2**40), (3, 4)]
    chances = TWO.run({"r": dv.independent(facts, [0.5, 0.25])}, "exact")["z"]
    assert dict(chances.items()) == {(1, 2**40): 0.5, (3, 4): 0.25}
    assert sorted(TWO.run({"r": dv.categorical(facts, [0.5, 0.25])}, "exact")["z"]) == [(1, 2**40), (3, 4)]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([2**31 - 1, 1]),
        pa.array([2**31 - 1, 1]),
        pa.chunked_array([[2**31 - 1], [1]]),
        np.array([2**31 - 1, 1]),
        torch.tensor([2**31 - 1, 1]),
    ],
    ids=lambda column: type(column).__name__,
)
def test_choices_have_the_types_of_their_column(column):
    assert dict(SUM.run({"r": dv.independent(column, [1.0, 1.0])}, "exact")["s"].items())[(2**31,)] == 1
    layer = dv.nn.Logic("rel q() = r(x), x + 1 > 2147483647", {"r": dv.categorical(column)}, {"q": ()})
    assert layer(torch.tensor([0.25, 0.75])).item() == pytest.approx(0.25)


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_dates_of_any_unit_are_values_of_choices(unit):
    days = np.array(["2024-01-01", "2024-01-02"], f"M8[{unit}]")
    expected = [(dt.datetime(2024, 1, 1),), (dt.datetime(2024, 1, 2),)]
    for facts in (days, list(days), pd.Series(days)):
        assert sorted(ONE.run({"r": dv.categorical(facts, [0.5, 0.5])}, "exact")["z"]) == expected


@pytest.mark.parametrize(
    "facts", [np.array(3), np.ma.array([1, 2], mask=[False, True]), np.zeros((2, 2, 2), int), jax.random.key(0)]
)
def test_other_arrays_are_refused(facts):
    with pytest.raises(dv.DerivableError):
        dv.independent(facts, [0.5])


@pytest.mark.parametrize("facts", [[np.array([1, 2]), np.array([3, 4])], [torch.tensor([1, 2, 3])], [jnp.ones((2, 2))]])
def test_a_list_of_arrays_leads_to_one_array(facts):
    program = dv.Program("type e(x: i32, y: i32)\nquery e")
    with pytest.raises(dv.DerivableError, match=r"1 value for 2 columns(?s:.*)np\.stack\(rows\)"):
        program.run({"e": facts})
    rows = np.stack([np.array([1, 2]), np.array([3, 4])])
    assert set(program.run({"e": rows})["e"]) == {(1, 2), (3, 4)}


READ = {
    "bfloat16": torch.tensor([0.5, 0.25], dtype=torch.bfloat16),
    "view": torch.tensor([-0.5j, -0.25j]).conj().imag,
    "decimals": [Decimal("0.5"), Decimal("0.25")],
    "JAX": jnp.array([0.5, 0.25], jnp.bfloat16),
}
REFUSED = {
    "masked": np.ma.array([0.5, 0.25], mask=[False, True]),
    "complex": np.array([0.5j, 0.25]),
    "durations": np.array([1, 0], "m8[s]"),
    "dates": pd.to_datetime(["1970-01-01", "1970-01-01"]),
    "texts": ["0.5", "0.25"],
    "bytes": np.array([b"0.5", b"0.25"]),
    "huge": [10**400, 0],
    "missing": pd.array([0.5, None], dtype="Float64"),
    "signalling NaN": [Decimal("sNaN"), Decimal("0.5")],
    "keys": jax.random.split(jax.random.key(0)),
}


@pytest.mark.parametrize("kind", [*READ, *REFUSED])
@pytest.mark.parametrize("form", ["independent", "column"])
def test_probabilities_are_numbers(kind, form):
    def run(tags):
        facts = dv.independent([1, 2], tags) if form == "independent" else {"tag": tags, "x": [1, 2]}
        return dict(ONE.run({"r": facts}, "exact")["z"].items())

    if kind in READ:
        assert run(READ[kind]) == {(1,): 0.5, (2,): 0.25}
    else:
        with pytest.raises(dv.DerivableError):
            run(REFUSED[kind])


@pytest.mark.parametrize("tag", [np.array(0.5), torch.tensor(0.5), jnp.array(0.5), Decimal("0.5")])
def test_the_error_of_a_tag_says_how_it_becomes_a_number(tag):
    with pytest.raises(DomainError, match=r"`float\(tag\)`"):
        ONE.run({"r": [(tag, (1,))]}, "exact")
    assert dict(ONE.run({"r": [(float(tag), (1,))]}, "exact")["z"].items()) == {(1,): 0.5}


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("f32", 1e39, "f32 holds numbers up to 3.4e"),
        ("f32", np.array([1e39]), "f32 holds numbers up to 3.4e"),
        ("f32", 10**39, "f32 holds numbers up to 3.4e"),
        ("f32", [Decimal("1e39")], "expected f32"),
        ("f64", [Decimal("1e400")], "expected f64"),
        ("f64", [Decimal("sNaN")], "missing"),
        ("i64", [Decimal("sNaN")], "missing"),
        ("i64", [np.ma.masked], "missing"),
        ("i64", [torch.tensor(3)], "expected i64"),
        ("Duration", dt.timedelta.max, "durations of less than"),
        ("Duration", np.array([2**62], "m8[D]"), "durations of less than"),
        ("Duration", np.array([2**40], "m8[M]"), "durations of less than"),
        ("DateTime", dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=5))), "years 1 to 9999"),
    ],
)
def test_values_beyond_their_type_are_refused(kind, value, message):
    program = dv.Program(f"type r({kind})\nrel z(x) = r(x)\nquery z")
    with pytest.raises(TypeMismatchError, match=message):
        program.run({"r": value if isinstance(value, (list, np.ndarray)) else [value]})


@pytest.mark.filterwarnings("ignore:.*more digits")
@pytest.mark.parametrize("value", [float(np.finfo(np.float32).max), -float(np.finfo(np.float32).max), float("inf")])
def test_the_largest_numbers_of_32_bits_are_values(value):
    program = dv.Program("type r(f32)\nrel z(x) = r(x)\nquery z")
    for facts in ([value], [(value,)], np.array([value]), [Decimal(value)]):
        assert list(program.run({"r": facts})["z"]) == [(value,)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1j]), "the real and the imaginary parts"),
        (np.array([b"ab"]), r"`array.astype\(str\)` has texts"),
        (np.array([b"abc"], "V3"), "each of its fields"),
        ([b"ab"], "columns hold numbers, texts"),
        ([2**40], r"declare a wider type: `type r\(...\)` with i64"),
        ([-(2**63)], r"declare a wider type: `type r\(...\)` with i64"),
        ([2**63], r"declare a wider type: `type r\(...\)` with i128"),
        ([2**127], "i32 holds -2147483648 to 2147483647$"),
        ([1, 2.5], "declare the column types"),
    ],
)
def test_the_error_of_a_value_says_what_to_do(value, message):
    with pytest.raises(TypeMismatchError, match=message):
        ONE.run({"r": value})


def test_missing_moments_have_no_digits(recwarn):
    for column in (pd.to_datetime(["2024-01-01", None]).tz_localize("UTC"), np.array(["NaT"], "M8[ns]")):
        with pytest.raises(TypeMismatchError, match="missing"):
            ONE.run({"r": {"x": column}})
    assert not recwarn


class _Lists(list):
    """A series of polars whose values are lists or arrays of one length, which it has as a table."""

    def __init__(self, values, dtype):
        super().__init__(values)
        self.dtype = dtype

    def to_arrow(self):
        return pa.array(list(self))


@pytest.mark.parametrize("dtype", ["List(Int64)", "Array(Int64, shape=(2,))"])
def test_columns_of_lists_are_tensors(dtype):
    def run(values):
        frame = SimpleNamespace(columns=["x"], to_series={0: _Lists(values, dtype)}.get)
        return [row[0].tolist() for row in ONE.run({"r": frame})["z"]]

    assert sorted(run([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    with pytest.raises(TypeMismatchError, match="None"):
        run([[1, None], [3, 4]])


def test_ranges_are_columns():
    assert sorted(TWO.run({"r": {"a": range(2), "b": range(2, 4)}})["z"]) == [(0, 2), (1, 3)]


def test_columns_of_columns_are_refused():
    with pytest.raises(dv.DerivableError, match=r"column 'b' has shape .*one value a row"):
        TWO.run({"r": {"a": np.arange(2), "b": np.zeros((2, 3))}})
