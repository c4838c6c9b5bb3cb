"""Results on stdout: a table or lines for people, JSON for programs."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from derivable.core.terminal import visible


def write_json(value: Any) -> None:
    """One JSON document, indented, and a newline. NumPy numbers and arrays become plain ones."""
    click.echo(json.dumps(value, indent=2, default=plain, ensure_ascii=False))


def plain(value: Any) -> Any:
    """What JSON can hold of a value that it does not know."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, (dt.datetime, dt.timedelta)):
        from derivable.datalog.values.datetimes import Duration, datetime_literal

        return datetime_literal(value) if isinstance(value, dt.datetime) else str(Duration.of(value))
    return str(value)


def write_facts(rows: Iterable[tuple[str, str]]) -> None:
    """Name and value, one a line: aligned on a terminal, `name: value` in a pipe."""
    rows = list(rows)
    if not sys.stdout.isatty():
        for name, value in rows:
            click.echo(f"{name}: {value}")
        return
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in ((visible(name), visible(value)) for name, value in rows):
        click.echo(f"{click.style(name.ljust(width), dim=True)}  {click.style(value, bold=True)}")


def write_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], count: int) -> None:
    """A table on the terminal of the first rows, with a note of how many there are if `count` are more."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Cells and titles are texts, not the markup of rich, nor commands to the terminal.
    table = Table(title=Text(visible(title), style="bold"), title_justify="left")
    for column in columns:
        table.add_column(Text(visible(column)))
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console().print(table)
    if table.row_count < count:
        click.echo(f"... {count - table.row_count:,} more of {count:,}; pipe the output or use --json to see all")
