"""Dates and durations: what the values of DateTime and Duration are.

A DateTime is a microsecond of Coordinated Universal Time in the years 1 to 9999, whose word counts from 1970. A
Duration is a number of calendar months and one of microseconds, so that a year after a day is the same day of the next
year; it is held in a table, as texts are.
"""

from __future__ import annotations

import datetime as dt
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

import numpy as np

EPOCH = dt.datetime(1970, 1, 1)
FIRST = (dt.datetime.min - EPOCH) // dt.timedelta(microseconds=1)
LAST = (dt.datetime.max - EPOCH) // dt.timedelta(microseconds=1)
_LIMIT = 1 << 63
_MOST_MONTHS = 1 << 31
# A month of the Gregorian calendar's average length, by which durations are ordered.
_MONTH = 2_629_746_000_000

_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# Unit -> (which part, how many months or nanoseconds).
_UNITS: dict[str, tuple[str, int]] = {}
for _names, _kind, _size in (
    ("n ns nsec nsecs nano nanos nanosecond nanoseconds", "microseconds", 1),
    ("us usec usecs micro micros \u00b5s \u03bcs microsecond microseconds", "microseconds", 10**3),
    ("ms msec msecs milli millis millisecond milliseconds", "microseconds", 10**6),
    ("s sec secs second seconds", "microseconds", 10**9),
    ("m min mins minute minutes", "microseconds", 60 * 10**9),
    ("h hr hrs hour hours", "microseconds", 3600 * 10**9),
    ("d day days", "microseconds", 86400 * 10**9),
    ("w wk wks week weeks", "microseconds", 7 * 86400 * 10**9),
    ("M mo mos mon month months", "months", 1),
    ("y yr yrs year years", "months", 12),
):
    _UNITS.update(dict.fromkeys(_names.split(), (_kind, _size)))
_PART = re.compile(r"\s*([+-]?)\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z\u00b5\u03bc]*)[\s,]*(?:and\b)?")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAME = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t|tember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
# The month first, as in `08.21.71` and `8/21/71`, or the day, as most outside of America mean it.
_EITHER = r"(?P<month>\d{1,2})(?P<mark>[./])(?P<day>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})"
_DATES = (
    r"(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})",
    r"(?P<year>\d{4})\.(?P<month>\d{1,2})(?:\.(?P<day>\d{1,2}))?",
    rf"(?P<year>\d{{4}})-{_NAME}-(?P<day>\d{{1,2}})",
    _EITHER,
    rf"{_NAME}\s+(?P<day>\d{{1,2}}),?\s+(?P<year>\d{{4}}|\d{{2}})",
    rf"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,\s*)?(?P<day>\d{{1,2}})\s+{_NAME}\s+(?P<year>\d{{4}}|\d{{2}})",
    r"(?P<year>\d{4})年(?P<month>\d{1,2})月(?P<day>\d{1,2})日",
    # With a time only.
    r"(?P<year>\d{2})(?P<month>\d{2})(?P<day>\d{2})(?=\s)",
    rf"{_NAME}\s+(?P<day>\d{{1,2}})",
    "",
)
_TIME = (
    r"(?:(?:,?\s*(?:\bat\s+)?|T)(?P<hour>\d{1,2})[:时](?P<minute>\d{2})(?:[:分](?P<second>\d{2})秒?(?:\.(?P<part>\d+))?)?"
    r"\s*(?P<half>[ap]m)?)?\s*(?P<zone>z|ut|utc|gmt|[ecmp][sd]t|[-+]\d{2}(?::?\d{2})?)?"
)
_ZONES = {"e": -5, "c": -6, "m": -7, "p": -8}


@total_ordering
@dataclass(frozen=True)
class Duration:
    """Calendar months and microseconds, either of which may be negative.

    >>> print(Duration.parse("1y 5 days"), Duration.parse("1.5h"))
    1y5d 1h30m

    Raises ValueError beyond 2**31 months or 2**63 microseconds. Equal are durations with equal parts; they are ordered
    by their length, a month being 30.436875 days, and those of equal length by their months.
    """

    months: int = 0
    microseconds: int = 0

    def __post_init__(self):
        if not (abs(self.months) < _MOST_MONTHS and abs(self.microseconds) < _LIMIT):
            raise ValueError("a duration of more than 2**31 months or 2**63 microseconds")

    @staticmethod
    def parse(text: str) -> Duration:
        """The sum of the numbers with units in a text, as in `1y5d`, `1 hour 30 min`, `-2.5s`, `90` (seconds).

        Raises ValueError for anything else, for an unknown unit, and if what remains is no whole microsecond or month.
        """
        # Imported here, since it takes longer than most programs' dates.
        from fractions import Fraction

        parts = {"months": Fraction(0), "microseconds": Fraction(0)}
        position = 0
        while position < len(text) or not text:
            match = _PART.match(text, position)
            if match is None:
                raise ValueError(f"{text!r} is no duration")
            sign, number, unit = match.groups()
            if unit not in _UNITS and (unit or position):
                raise ValueError(f"{unit!r} is no unit of time" if unit else f"{number} has no unit")
            kind, size = _UNITS[unit or "s"]
            parts[kind] += Fraction(number) * size * (-1 if sign == "-" else 1)
            position = match.end()
        parts["microseconds"] /= 1000
        for kind, amount in parts.items():
            if amount.denominator != 1:
                raise ValueError(f"{text!r} is no whole number of {kind}")
        return Duration(int(parts["months"]), int(parts["microseconds"]))

    @staticmethod
    def of(value: Any) -> Duration | None:
        """The duration that a Python value is: itself, a timedelta, NumPy's, a text, a time of day since midnight; None
        for anything else."""
        if isinstance(value, Duration):
            return value
        if isinstance(value, str):
            try:
                return Duration.parse(value)
            except ValueError:
                return None
        if isinstance(value, np.timedelta64):
            return None if np.isnat(value) else _of_numpy(value)
        if isinstance(value, dt.timedelta):
            return _within(0, value // dt.timedelta(microseconds=1))
        if isinstance(value, dt.time) and value.tzinfo is None:
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return Duration(0, seconds * 10**6 + value.microsecond)
        return None

    def plain(self) -> dt.timedelta | Duration:
        """What users see: a timedelta, if there are no months."""
        return self if self.months else dt.timedelta(microseconds=self.microseconds)

    def __add__(self, other: Duration) -> Duration:
        return Duration(self.months + other.months, self.microseconds + other.microseconds)

    def __neg__(self) -> Duration:
        return Duration(-self.months, -self.microseconds)

    def __sub__(self, other: Duration) -> Duration:
        return self + -other

    def __mul__(self, times: int) -> Duration:
        return Duration(self.months * times, self.microseconds * times)

    def __floordiv__(self, number: int) -> Duration:
        """Months and microseconds divided separately, towards zero."""
        return Duration(
            *(abs(n) // abs(number) * (1 if (n < 0) == (number < 0) else -1) for n in (self.months, self.microseconds))
        )

    def _length(self) -> tuple[int, int]:
        return self.months * _MONTH + self.microseconds, self.months

    def __lt__(self, other: Any) -> bool:
        duration = Duration.of(other)
        return NotImplemented if duration is None else self._length() < duration._length()

    def __str__(self) -> str:
        if not self.months and not self.microseconds:
            return "0s"
        return _amounts(self.months, ((12, "y"), (1, "M"))) + _amounts(
            self.microseconds, ((86400 * 10**6, "d"), (3600 * 10**6, "h"), (60 * 10**6, "m"), (10**6, "s"))
        )


def _of_numpy(value: np.timedelta64) -> Duration | None:
    """The duration that one of NumPy is; None for a number without a unit, and for one that is too long."""
    unit, step = np.datetime_data(value.dtype)
    if unit == "generic":
        return None
    number = int(value.astype(np.int64)) * step
    if unit in "YM":
        return _within(number * (12 if unit == "Y" else 1), 0)
    if unit in ("ps", "fs", "as"):
        return Duration(0, int(value.astype("timedelta64[us]").astype(np.int64)))
    # In nanoseconds.
    return _within(0, number * _UNITS[unit.lower()][1] // 1000)


def _within(months: int, microseconds: int) -> Duration | None:
    try:
        return Duration(months, microseconds)
    except ValueError:
        return None


def _amounts(number: int, units: tuple[tuple[int, str], ...]) -> str:
    shown, sign, rest = "", "-" if number < 0 else "", abs(number)
    for size, unit in units:
        whole, rest = divmod(rest, size)
        if unit == "s" and rest:
            shown += f"{sign}{whole}.{rest:06d}".rstrip("0") + "s"
        elif whole:
            shown += f"{sign}{whole}{unit}"
    return shown


def parse_datetime(text: str) -> dt.datetime:
    """The moment that a text says, in UTC and without a time zone.

    ISO 8601 (`2024-01-01T00:00:00Z`, `2023-01-01`, `2024-01-01 12:30:05.5+02:00`); seconds to nanoseconds since 1970
    (10, 13, 16 or 19 digits); and dates such as `2024/1/31`, `1/31/2024` (the month first), `31 Jan 2024`,
    `January 31, 2024`, `2024.01.31`, `2024年1月31日`, with times such as `10:09am`, `22:05:03.5` and zones such as
    `PST`, `-08`. Without a time it is midnight, without a zone UTC; `4:00pm` is today, `May 6 at 9:24 PM` this year.
    Raises ValueError for anything else, and for `05.03.2026` and `05/03/2026`, in which either number may be the month.
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) in (10, 13, 16, 19):
        return EPOCH + dt.timedelta(microseconds=_microseconds(text[:10], text[10:], text))
    if text[10:11] in ("", "T", " ") and len(text) < 27:
        # What most texts are, and much faster.
        with suppress(ValueError):
            return in_utc(dt.datetime.fromisoformat(text))
    for form in _DATES:
        match = re.fullmatch(form + _TIME, text, re.IGNORECASE | re.ASCII)
        if match is not None and (form not in _DATES[-3:] or match["hour"]):
            if form is _EITHER:
                _check_order(match, text)
            return _moment(match.groupdict(), text)
    try:
        return in_utc(dt.datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(f"{text!r} is no date") from None


def _microseconds(seconds: str, fraction: str, text: str) -> int:
    if fraction[6:].strip("0"):
        raise ValueError(f"{text!r} is finer than a microsecond")
    return int(seconds) * 10**6 + int(fraction[:6].ljust(6, "0"))


def _year(written: str) -> int:
    return int(written) + (0 if len(written) == 4 else 2000 if int(written) < 70 else 1900)


def _check_order(match: re.Match[str], text: str) -> None:
    """Raises ValueError for a date with the day first, or that may have it first."""
    year, month, day = _year(match["year"]), int(match["month"]), int(match["day"])
    if not 1 <= day <= 12 or day == month or not 1 <= month <= 31:
        return
    first = f"{year:04}-{day:02}-{month:02}"
    if month > 12:
        try:
            dt.date(year, day, month)
        except ValueError:
            raise ValueError(f"{text!r} is no date: the month {year:04}-{day:02} has no day {month}") from None
        raise ValueError(f"{text!r} is no date, as there is no month {month}: write {first}")
    either = f"{first} or {year:04}-{month:02}-{day:02}"
    raise ValueError(f"{text!r} is no date: it may be {either}, so write which of them it is")


def _moment(fields: dict[str, str | None], text: str) -> dt.datetime:
    """The moment of a date's and time's parts; where there is no year or no date at all, it is today's."""
    today, name, zone = dt.datetime.now(dt.UTC), fields.get("name"), (fields["zone"] or "").lower()
    year = _year(fields.get("year") or str(today.year))
    hour, half = int(fields["hour"] or 0), (fields["half"] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(f"{text!r} is no date: {hour} is no hour of half a day")
        hour = hour % 12 + (12 if half == "pm" else 0)
    offset = 0
    if zone[:1] in ("-", "+"):
        offset = int(zone[:3]) * 60 + int(zone[0] + (zone[3:].strip(":") or "0"))
    elif zone[1:] in ("st", "dt"):
        offset = (_ZONES[zone[0]] + (zone[1] == "d")) * 60
    month = _MONTHS.index(name[:3].lower()) + 1 if name else int(fields.get("month") or today.month)
    # `2014.03` is the first of a month.
    day = int(fields["day"] or 1) if "day" in fields else today.day
    try:
        moment = dt.datetime(year, month, day, hour, int(fields["minute"] or 0))
        microseconds = _microseconds(fields["second"] or "0", fields["part"] or "", text)
        if microseconds >= 60 * 10**6:
            raise ValueError("a minute has 60 seconds")
        return moment + dt.timedelta(microseconds=microseconds) - dt.timedelta(minutes=offset)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no date: {error}") from None


def in_utc(moment: dt.datetime) -> dt.datetime:
    """The moment in UTC, without a time zone; one without is in UTC already."""
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:
        raise ValueError(f"{moment} is outside the years 1 to 9999") from None


def word_of_datetime(value: Any) -> int | None:
    """Microseconds since 1970 of a datetime, date, NumPy datetime or text; None for anything else."""
    if isinstance(value, str):
        try:
            value = parse_datetime(value)
        except ValueError:
            return None
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        word = int(value.astype("datetime64[us]").astype(np.int64))
    elif isinstance(value, dt.datetime):
        try:
            word = (in_utc(value) - EPOCH) // dt.timedelta(microseconds=1)
        except (ValueError, OverflowError):
            return None
    elif isinstance(value, dt.date):
        word = (dt.datetime(value.year, value.month, value.day) - EPOCH) // dt.timedelta(microseconds=1)
    else:
        return None
    return word if FIRST <= word <= LAST else None


def shifted(moment: dt.datetime, by: Duration) -> dt.datetime | None:
    """The moment so much later: first by months, to the month's last day at most, then by the rest.

    None outside the years 1 to 9999.
    """
    months = moment.year * 12 + moment.month - 1 + by.months
    year, month = months // 12, months % 12 + 1
    if not 1 <= year <= 9999:
        return None
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    day = min(moment.day, 29 if month == 2 and is_leap else _LENGTHS[month - 1])
    try:
        return moment.replace(year=year, month=month, day=day) + dt.timedelta(microseconds=by.microseconds)
    except OverflowError:
        return None


def datetime_text(moment: dt.datetime) -> str:
    """What a cast to String makes of a DateTime: `2024-01-01 00:00:00 UTC`, with a fraction if there is one."""
    fraction = f".{moment.microsecond:06d}" if moment.microsecond else ""
    if fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{moment:%Y-%m-%d %H:%M:%S}".zfill(19) + f"{fraction} UTC"


def datetime_literal(moment: dt.datetime) -> str:
    """The body of a literal: `2024-01-01T00:00:00Z`."""
    return f"{moment.isoformat()}Z"
