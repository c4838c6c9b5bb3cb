"""Dates and durations, against Python's datetime and dateutil's calendar arithmetic."""

import datetime as dt
import json
import subprocess
import sys

import numpy as np
import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.datalog.api.fact_output import write_facts
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.values.datetimes import Duration, parse_datetime

MOMENTS = st.datetimes() | st.sampled_from(
    [dt.datetime.min, dt.datetime.max, dt.datetime(2024, 2, 29), dt.datetime(2024, 1, 31), dt.datetime(1969, 12, 31)]
)
DURATIONS = st.builds(
    Duration, st.just(0) | st.integers(-40, 40) | st.integers(-(10**5), 10**5), st.integers(-(10**16), 10**16)
)
LITERALS = {
    "2024-01-01T00:00:00Z": dt.datetime(2024, 1, 1),
    "2023-01-01": dt.datetime(2023, 1, 1),
    "2024-05-06 07:08": dt.datetime(2024, 5, 6, 7, 8),
    "2024-05-06 07:08:09.5 UTC": dt.datetime(2024, 5, 6, 7, 8, 9, 500000),
    "2024-05-06T07:08:09+02:00": dt.datetime(2024, 5, 6, 5, 8, 9),
    "1511648546": dt.datetime(2017, 11, 25, 22, 22, 26),
    "1511648546123": dt.datetime(2017, 11, 25, 22, 22, 26, 123000),
    "2024/05/06": dt.datetime(2024, 5, 6),
    "05/26/2024 07:08": dt.datetime(2024, 5, 26, 7, 8),
    "May 6, 2024": dt.datetime(2024, 5, 6),
    "6 May 2024": dt.datetime(2024, 5, 6),
}
DAY = 86400 * 10**6
SPANS = {
    "1y5d": Duration(12, 5 * DAY),
    "3 months, 2 weeks and 1 day": Duration(3, 15 * DAY),
    "1 hour 30 min": Duration(0, 5400 * 10**6),
    "1h30m": Duration(0, 5400 * 10**6),
    "1.5h": Duration(0, 5400 * 10**6),
    "2M": Duration(2, 0),
    "2m": Duration(0, 120 * 10**6),
    "-2.5s": Duration(0, -2_500_000),
    "90": Duration(0, 90 * 10**6),
    "1500ms 20us 3000ns": Duration(0, 1_500_023),
    "0.5y": Duration(6, 0),
    "1day 1sec": Duration(0, DAY + 10**6),
}


@pytest.mark.parametrize("text", LITERALS)
def test_dates_in_programs(text):
    db = dv.Program(f'rel r(t"{text}") rel s("{text}" as DateTime)').run()
    assert set(db["r"]) == set(db["s"]) == {(LITERALS[text],)}


WRITTEN = {
    "September 17, 2012 10:09am": "2012-09-17T10:09",
    "September 17, 2012 at 10:09am PST": "2012-09-17T18:09",
    "2014年04月08日": "2014-04-08",
    "2014年04月08日11时25分18秒": "2014-04-08T11:25:18",
    "May 8, 2009 5:57:51 PM": "2009-05-08T17:57:51",
    "Wed, 02 Jun 2021 06:31:39 GMT": "2021-06-02T06:31:39",
    "2019-11-29 08:08-08": "2019-11-29T16:08",
    "2021-05-02 23:31:36.0741-07": "2021-05-03T06:31:36.0741",
    "2012-08-03 18:31:59.257000000": "2012-08-03T18:31:59.257",
    "2014-04-26 13:13:43 +0800": "2014-04-26T05:13:43",
    "2020-07-20+08:00": "2020-07-19T16:00",
    "2021-Feb-21": "2021-02-21",
    "12 Feb 2006, 19:17": "2006-02-12T19:17",
    "oct. 7, 70": "1970-10-07",
    "8/8/1965 12:00:00 AM": "1965-08-08",
    "08.21.71": "1971-08-21",
    "2014.03": "2014-03-01",
    "2014/04/2 03:00:51": "2014-04-02T03:00:51",
    "171113 14:14:20": "2017-11-13T14:14:20",
    "1620024872717915000": "2021-05-03T06:54:32.717915",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_dates_as_people_write_them(text):
    wanted = dt.datetime.fromisoformat(WRITTEN[text])
    assert set(dv.Program(f'rel p(t"{text}") rel q(x as DateTime) = s(x) rel s("{text}")').run()["q"]) == {(wanted,)}
    assert parse_datetime(text) == wanted


@pytest.mark.parametrize(
    "text", ["05.03.2026", "5.3.26", "05.03.2026 10:00", "12.11.2026 23:00 -08", "05/03/2026", "5/3/26 10:00"]
)
def test_dates_of_which_either_number_may_be_the_month_are_refused(tmp_path, text):
    year, first, second = "2026", *text.partition(" ")[0].replace("/", ".").split(".")[:2]
    either = f"{year}-{int(second):02}-{int(first):02} or {year}-{int(first):02}-{int(second):02}"
    with pytest.raises(ValueError, match=either):
        parse_datetime(text)
    with pytest.raises(dv.DerivableError, match=either):
        dv.Program(f'rel r(t"{text}")')
    (tmp_path / "e.csv").write_text(f"{text}\n")
    for facts in ([text], tmp_path / "e.csv"):
        with pytest.raises(dv.DerivableError, match=f"{either}.*2026-03-05"):
            dv.Program("type e(DateTime)").run({"e": facts})
    assert parse_datetime("08.08.2026") == dt.datetime(2026, 8, 8)
    assert parse_datetime("08.21.2026") == dt.datetime(2026, 8, 21)


@pytest.mark.parametrize("text", ["31.12.2026", "31/12/26 10:00"])
def test_dates_with_the_day_first_lead_to_the_form_that_is_read(text):
    with pytest.raises(ValueError, match="no month 31: write 2026-12-31"):
        parse_datetime(text)


def test_durations_times_and_through_integers():
    text = 'rel d = {d"10 days", d"-1y3M", d"1h"} rel r(x, 2 * x, x * 2, x / 3, x / -2) = d(x) rel none(x / 0) = d(x)'
    days, months, hour = (Duration.parse(t) for t in ("10 days", "-9M", "1h"))
    wanted = {
        days: ("20d", "20d", "3d8h", "-5d"),
        months: ("-18M", "-18M", "-3M", "4M"),
        hour: ("2h", "2h", "20m", "-30m"),
    }
    db = dv.Program(text).run()
    assert set(db["r"]) == {(x.plain(), *(Duration.parse(t).plain() for t in results)) for x, results in wanted.items()}
    assert not db["none"]


def test_times_are_of_today():
    before = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    found = [parse_datetime("4:00pm"), parse_datetime("May 6 at 9:24 PM")]
    after = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    assert found[0] in [day.replace(hour=16, minute=0, second=0, microsecond=0) for day in (before, after)]
    assert found[1] in [dt.datetime(day.year, 5, 6, 21, 24) for day in (before, after)]


@pytest.mark.parametrize("text", SPANS)
def test_durations_in_programs(text):
    db = dv.Program(f'rel r(d"{text}") rel s("{text}" as Duration)').run()
    assert set(db["r"]) == set(db["s"]) == {(SPANS[text].plain(),)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2024-13-01",
        "2023-02-29",
        "2024-01-01T25:00",
        "12",
        "2014-04",
        "May 6",
        "13/1/2014",
        "junk 3, 2020",
        "May 3, 2021 13:00pm",
        "2024-01-01T00:00:00.1234567Z",
        "99999-01-01",
    ],
)
def test_texts_that_are_no_dates(text):
    with pytest.raises(ValueError, match=r"no date|finer"):
        parse_datetime(text)
    assert not dv.Program("type q(String)\nrel r(x as DateTime) = q(x)").run({"q": [text]})["r"]


@pytest.mark.parametrize("text", ["", "5 fortnights", "y", "1y 5", "0.3M", "5ns", "9" * 30 + "d", "1..5s"])
def test_texts_that_are_no_durations(text):
    with pytest.raises(ValueError, match=r"no duration|no unit|no whole|more than"):
        Duration.parse(text)
    assert not dv.Program("type q(String)\nrel r(x as Duration) = q(x)").run({"q": [text]})["r"]


@given(DURATIONS)
def test_durations_are_written_as_they_are_read(duration):
    assert Duration.parse(str(duration)) == duration


@given(MOMENTS)
def test_dates_are_written_as_they_are_read(moment):
    db = dv.Program("type q(t: DateTime)\nrel r(t as String, (t as String) as DateTime) = q(t)").run({"q": [moment]})
    ((text, again),) = db["r"]
    assert again == moment
    assert parse_datetime(text) == moment
    assert eval_literal(repr(db["r"])) == moment


def eval_literal(shown):
    """The second value of the one row as the language writes it, read by a program."""
    ((found,),) = dv.Program(f"rel r({shown[2:-2].split(', ')[1]})").run()["r"]
    return found


def later(moment, duration, sign=1):
    """Months first, then the rest; None outside Python's years."""
    try:
        moment += relativedelta(months=sign * duration.months)
        return moment + sign * dt.timedelta(microseconds=duration.microseconds)
    except (ValueError, OverflowError):
        return None


def summed(a, b, sign=1):
    try:
        return Duration(a.months + sign * b.months, a.microseconds + sign * b.microseconds).plain()
    except ValueError:
        return None


def length(d):
    return d.months * 2_629_746_000_000 + d.microseconds, d.months


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(MOMENTS, MOMENTS, DURATIONS, DURATIONS, st.integers(-5, 5)), min_size=1, max_size=25))
def test_arithmetic_and_order(rows):
    text = """type q(i: usize, t: DateTime, u: DateTime, d: Duration, e: Duration, n: i32)
    rel plus(i, t + d) = q(i, t, _, d, _, _)
    rel plus_left(i, d + t) = q(i, t, _, d, _, _)
    rel minus(i, t - d) = q(i, t, _, d, _, _)
    rel gap(i, t - u) = q(i, t, u, _, _, _)
    rel sum(i, d + e) = q(i, _, _, d, e, _)
    rel rest(i, d - e) = q(i, _, _, d, e, _)
    rel times(i, d * n) = q(i, _, _, d, _, n)
    rel before(i) = q(i, t, u, _, _, _), t < u
    rel shorter(i) = q(i, _, _, d, e, _), d < e
    rel at_most(i) = q(i, _, _, d, e, _), e >= d
    rel first(t) = t := min(t: q(_, t, _, _, _, _))
    rel longest(d) = d := max(d: q(_, _, _, d, _, _))
    rel parts(i, $datetime_year(t), $datetime_month(t), $datetime_month0(t), $datetime_day(t)) = q(i, t, _, _, _, _)
    rel ymd(i, y, m, d) = q(i, t, _, _, _, _), datetime_ymd(t, y, m, d)"""
    program = dv.Program(text)
    facts = {"q": [(i, *row) for i, row in enumerate(rows)]}
    db = program.run(facts)

    def by_row(name, meaning):
        found = {(i, value) for i, row in enumerate(rows) if (value := meaning(*row)) is not None}
        assert set(db[name]) == found, name

    by_row("plus", lambda t, u, d, e, n: later(t, d))
    by_row("plus_left", lambda t, u, d, e, n: later(t, d))
    by_row("minus", lambda t, u, d, e, n: later(t, d, -1))
    by_row("gap", lambda t, u, d, e, n: t - u)
    by_row("sum", lambda t, u, d, e, n: summed(d, e))
    by_row("rest", lambda t, u, d, e, n: summed(d, e, -1))
    by_row("times", lambda t, u, d, e, n: Duration(d.months * n, d.microseconds * n).plain())
    assert set(db["before"]) == {(i,) for i, (t, u, *_) in enumerate(rows) if t < u}
    assert set(db["shorter"]) == {(i,) for i, (_, _, d, e, _) in enumerate(rows) if length(d) < length(e)}
    assert set(db["at_most"]) == {(i,) for i, (_, _, d, e, _) in enumerate(rows) if length(d) <= length(e)}
    assert set(db["first"]) == {(min(row[0] for row in rows),)}
    assert set(db["longest"]) == {(max((row[2] for row in rows), key=length).plain(),)}
    assert set(db["parts"]) == {(i, t.year, t.month, t.month - 1, t.day) for i, (t, *_) in enumerate(rows)}
    assert set(db["ymd"]) == {(i, t.year, t.month, t.day) for i, (t, *_) in enumerate(rows)}
    small = {"q": [(i, t, u, d.plain(), e.plain(), n) for i, (t, u, d, e, n) in enumerate(rows[:2])]}
    model, found = interpret(program.lowered(), small), program.run(small)
    for name in ("plus", "gap", "times", "before", "shorter", "ymd"):
        assert set(found[name]) == model[name]


def test_types_are_found_from_both_sides():
    text = """type ev(t: DateTime, d: Duration)
    rel end(t + d) = ev(t, d)
    rel long(x) = ev(t, _), x == t - t"2020-01-01", x > d"10d"
    rel twice(2 * n, d * 2) = n in 1..3, ev(_, d)
    rel chain(t + d + d - d) = ev(t, d)"""
    program = dv.Program(text)
    shown = program.explain("types").splitlines()
    assert "type end(DateTime)" in shown
    assert "type long(Duration)" in shown
    assert "type twice(i32, Duration)" in shown
    assert "type chain(DateTime)" in shown
    db = program.run({"ev": [(dt.datetime(2020, 1, 15), dt.timedelta(days=3))]})
    assert set(db["end"]) == set(db["chain"]) == {(dt.datetime(2020, 1, 18),)}
    assert set(db["long"]) == {(dt.timedelta(days=14),)}


def test_columns_and_frames():
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    moments = np.array(["2024-01-31T01:02:03.5", "1960-02-29"], "datetime64[ms]")
    spans = np.array([90, -1], "timedelta64[m]")
    text = 'type q(t: DateTime, d: Duration)\nrel r(t, d) = q(t, d)\nrel s(t + d"1M", d + d"1M") = q(t, d)'
    program = dv.Program(text)
    frame = pandas.DataFrame({"t": moments, "d": spans})
    expected = {(dt.datetime(2024, 1, 31, 1, 2, 3, 500000), dt.timedelta(minutes=90))}
    expected |= {(dt.datetime(1960, 2, 29), dt.timedelta(minutes=-1))}
    for facts in (frame, arrow.Table.from_pandas(frame), {"t": moments, "d": spans}, list(zip(moments, spans))):
        db = program.run({"q": facts})
        assert set(db["r"]) == expected
    assert db["r"].columns[0].dtype == "datetime64[us]"
    assert db["r"][dt.datetime(1960, 2, 29, tzinfo=dt.UTC), np.timedelta64(-60, "s")] is True
    assert (dt.datetime(1960, 2, 29), dt.timedelta(0)) not in db["r"]
    table = db["s"].to_arrow()
    assert table.column(0).type == arrow.timestamp("us")
    assert table.column(1).to_pylist() == ["1M-1m", "1M1h30m"]
    assert db["r"].to_arrow().column(1).type == arrow.duration("us")
    assert db["r"].to_pandas().iloc[0, 0] == pandas.Timestamp(1960, 2, 29)
    undeclared = dv.Program("rel r(t) = q(t, _)").run({"q": list(expected)})
    assert len(undeclared["r"]) == 2


@pytest.mark.parametrize(
    "value", [np.datetime64("NaT"), np.datetime64("20000-01-01"), "soon", 3, None, dt.timedelta(1)]
)
def test_values_that_are_no_dates(value):
    with pytest.raises(dv.DerivableError, match=r"expected DateTime|the value is missing"):
        dv.Program("type q(DateTime)").run({"q": [(value,)]})


def test_json_on_the_command_line(tmp_path):
    program = tmp_path / "event.scl"
    program.write_text('rel event = {(t"2024-01-31T01:00:00Z", d"1M"), (t"2023-01-01", d"5d")}\n')
    command = [sys.executable, "-m", "derivable.cli", "run", str(program), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [["2023-01-01T00:00:00Z", "5d"], ["2024-01-31T01:00:00Z", "1M"]]
    assert json.loads(shown)["event"]["tuples"] == rows
    assert set(dv.Program("type event(DateTime, Duration)").run({"event": [tuple(row) for row in rows]})["event"]) == {
        (dt.datetime(2023, 1, 1), dt.timedelta(days=5)),
        (dt.datetime(2024, 1, 31, 1), Duration(1)),
    }


def test_files(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "event.csv").write_text("a,2024-01-31T00:00:00Z,1M\nb,2023-05-06,5d\n")
    text = f"""@file("{tmp_path / "event.csv"}") type event(name: String, t: DateTime, d: Duration)
    rel end(name, t + d) = event(name, t, d)
    rel span(t, d) = event(_, t, d)
    rel plain(t, d) = event(_, t, d), d < d"20d" """
    db = dv.Program(text).run()
    assert set(db["end"]) == {("a", dt.datetime(2024, 2, 29)), ("b", dt.datetime(2023, 5, 11))}
    for name in ("span", "plain"):
        again = dv.Program(f"type {name}(t: DateTime, d: Duration)")
        for ending in ("csv", "parquet", "arrow"):
            write_facts(db[name], tmp_path / f"{name}.{ending}")
            assert set(again.run({name: tmp_path / f"{name}.{ending}"})[name]) == set(db[name])


def test_functions_of_dates():
    @dv.datalog.function
    def next_monday(day: dt.datetime) -> dt.datetime:
        return day + dt.timedelta(days=7 - day.weekday())

    @dv.datalog.function
    def halved(span: dt.timedelta) -> dt.timedelta:
        return span / 2

    try:
        db = dv.Program('rel r($next_monday(t"2024-05-08"), $halved(d"3d"))').run()
        assert set(db["r"]) == {(dt.datetime(2024, 5, 13), dt.timedelta(days=1.5))}
    finally:
        from derivable.datalog.foreign.standard import FUNCTIONS

        FUNCTIONS.remove("next_monday")
        FUNCTIONS.remove("halved")


@pytest.mark.parametrize(
    ("text", "month"), [("31.02.2026", "2026-02"), ("31.04.2026", "2026-04"), ("30/2/2024", "2024-02")]
)
def test_no_hint_names_a_day_that_is_not(text, month):
    """The help of `31.02.2026` was to write `2026-02-31`."""
    with pytest.raises(dv.DerivableError, match=f"the month {month} has no day"):
        dv.Program("type e(d: DateTime)").run({"e": [(text,)]})
