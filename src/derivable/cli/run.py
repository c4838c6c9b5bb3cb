"""`derivable run FILE.scl`: run a logic program and print its output relations."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from derivable.cli.report import write_json, write_table
from derivable.cli.user_file import PYTHON, provenance_option

TABLE_ROWS = 50


@click.command("run")
@click.argument("file", type=click.Path())
@provenance_option(None, "  [default: exact if facts have probabilities, else unit]")
@PYTHON
@click.option("-k", type=click.IntRange(min=1), default=3, show_default=True, help="Proofs kept by topkproofs.")
@click.option("--query", "queries", multiple=True, metavar="RELATION", help="Show only this; may be repeated.")
@click.option("--facts", type=click.Path(), metavar="DIR", help="Facts from DIR/RELATION.csv, .facts or .txt.")
@click.option("--iteration-limit", type=click.IntRange(min=1), help="Rounds of each recursion at most.")
@click.option("--time-limit", type=float, metavar="SECONDS", help="Give up after this long.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the tuples and tags of each relation.")
def run_command(
    file: str,
    provenance: str | None,
    k: int,
    queries: tuple[str, ...],
    facts: str | None,
    iteration_limit: int | None,
    time_limit: float | None,
    as_json: bool,
) -> None:
    """Run the logic program in FILE (- for stdin) and print its output relations.

    A program with `query` items prints those relations, another one all of them. In a pipe, one fact a line:
    `path(0, 1)`, or `0.9::path(0, 1)` if the provenance has tags.
    """
    program, shown = _program(file, queries)
    given: dict[str, Any] = {}
    if facts is not None:
        from derivable.cli.fact_files import facts_from

        relations = program.lowered().relations
        given = facts_from(facts, {name: r.types for name, r in relations.items() if not name.startswith("#")})
    database: Any = program.run(
        facts=given, provenance=provenance, k=k, iteration_limit=iteration_limit, time_limit=time_limit
    )
    names = [name for name in database if shown is None or name in shown]
    if as_json:
        write_json({name: _document(database[name]) for name in names})
        return
    for name in names:
        _write(name, database[name])


def _program(file: str, queries: tuple[str, ...]) -> tuple[Any, set[str] | None]:
    """The program with the queries added, and the names of the relations to show, None for all outputs."""
    from derivable.core.files import read_bytes
    from derivable.datalog.program import Program

    if file == "-":
        text, source = sys.stdin.read(), "<stdin>"
    else:
        text, source = _decoded(read_bytes(file), file), os.fspath(Path(file))
    if not queries:
        return Program(text, source), None
    before = set(Program(text, source).lowered().outputs)
    program = Program(text + "".join(f"\nquery {query}" for query in queries) + "\n", source)
    added = set(program.lowered().outputs) - before
    return program, added | set(queries)


def _decoded(data: bytes, source: str) -> str:
    from derivable.core.diagnostics import ParseError

    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ParseError(f"not UTF-8 text: byte {error.start} is {data[error.start]:#04x}", source=source) from None


def _document(view: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"tuples": [list(row) for row in view]}
    if view.tags is not None:
        document["tags"] = view.tag_list()
    return document


def _write(name: str, view: Any) -> None:
    from derivable.datalog.database import tag_text
    from derivable.datalog.values import show_value

    relation = name.partition("(")[0]  # the facts of `query path(0, x)` are facts of path
    tags = None if view.tags is None else view.tag_list()
    rows = ([show_value(value) for value in row] for row in view)
    if sys.stdout.isatty():
        arity = len(view.columns)
        columns = [*([] if tags is None else ["tag"]), *(str(place) for place in range(arity))]
        shown = (row if tags is None else [tag_text(tags[place]), *row] for place, row in enumerate(rows))
        if arity == 0 and tags is None:
            click.echo(f"{name}(): {'true' if len(view) else 'false'}")
            return
        write_table(f"{name}  ({len(view):,})", columns, shown, TABLE_ROWS)
        return
    for place, row in enumerate(rows):
        fact = f"{relation}({', '.join(row)})"
        click.echo(fact if tags is None else f"{tag_text(tags[place], 9)}::{fact}")
