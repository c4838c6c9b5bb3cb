"""`derivable fit FILE.scl INTERPRETATIONS.json`: learn the tunable probabilities of a logic program."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from derivable.cli.items import read_items
from derivable.cli.report import write_json
from derivable.cli.run import facts_of, read_program, text_of
from derivable.cli.user_file import PYTHON, file_options, roots_of
from derivable.core.json_text import json_of
from derivable.core.terminal import visible


@click.command("fit")
@click.argument("file", type=click.Path())
@click.argument("interpretations", type=click.Path())
@PYTHON
@click.option("--facts", type=click.Path(), metavar="DIR", help="Facts from DIR/RELATION.csv, .tsv, .parquet, ...")
@click.option("--method", type=click.Choice(["em", "gradient"]), default="em", show_default=True)
@click.option("--steps", type=click.IntRange(min=0), default=1000, show_default=True, help="At most.")
@click.option(
    "--tolerance", type=float, default=1e-6, show_default=True, help="End when the log-likelihood changes by no more."
)
@click.option("--prior", type=float, default=0.0, show_default=True, help="Pseudo-counts of what holds and does not.")
@click.option("--starts", type=click.IntRange(min=1), default=1, show_default=True, help="How often to begin.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of starts that are drawn.")
@click.option("--time-limit", type=float, metavar="SECONDS", help="Give up after this long.")
@click.option("--memory-limit", metavar="SIZE", help='Give up at more memory, such as "2 GB".')
@click.option("--progress/--no-progress", default=None, help="Show how far it is.  [default: on a terminal]")
@click.option("-o", "--output", type=click.Path(), metavar="FILE.scl", help="Write the program with what was learned.")
@file_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document with probabilities and log-likelihoods.")
def fit_command(
    file: str,
    interpretations: str,
    facts: str | None,
    output: str | None,
    roots: tuple[str, ...],
    allow_files: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Learn the tunable probabilities (`?0.3::`, `?::`) of the logic program in FILE.

    INTERPRETATIONS is a JSON list, or has an entry on each line: what was observed of one world, as
    ["alarm()", "not calls(\\"Ada\\")"] or as {"alarm": true, "calls": [["Ada"]], "not calls": [["Bob"]]}. What is not
    there was not observed.
    """
    program = read_program(file, roots_of(file, roots, allow_files))
    limits = {name: settings[name] for name in ("time_limit", "memory_limit")}
    given = facts_of(program, facts, {**limits, "tuple_limit": None}, settings["progress"])
    fit = program.fit(_read(interpretations, program), given, **settings)
    if output is not None:
        from derivable.core.files import atomic_write

        with atomic_write(output) as stream:
            stream.write(program.with_parameters(fit).text)
    if as_json:
        curve = {"log_likelihood": fit.log_likelihood, "curve": fit.curve, "is_converged": fit.is_converged}
        write_json({"probabilities": dict(fit), **curve})
        return
    for name, value in fit.items():
        click.echo(visible(f"{value:.9g}::{name}") if sys.stdout.isatty() else f"{value:.9g}::{name}")
    end = "" if fit.is_converged else ", still rising"
    click.echo(f"log-likelihood {fit.log_likelihood:.9g} after {len(fit.curve) - 1} steps{end}", err=True)


def _read(path: str, program: Any) -> list[dict[str, Any]]:
    """The interpretations of a file. Raises ParseError with the line."""
    from derivable.core.diagnostics import ParseError

    text = text_of(path)[0].strip()
    found: Any
    try:
        found = json_of(text)
        entries = found if isinstance(found, list) and not all(isinstance(one, str) for one in found) else [found]
    except json.JSONDecodeError as whole:
        entries = []
        for number, line in enumerate(text.splitlines(), 1):
            try:
                entries += [json_of(line)] if line.strip() else []
            except ValueError as error:
                if not isinstance(error, json.JSONDecodeError):
                    raise ParseError(f"line {number}: {error}", source=path) from None
                one = whole if number == 1 else error
                line_number = one.lineno if one is whole else number
                hint = "a list of interpretations, or one on each line"
                raise ParseError(f"no JSON at line {line_number}: {one.msg}", hint=hint, source=path) from None
    except ValueError as error:
        raise ParseError(str(error), source=path) from None
    texts = {text for entry in entries if isinstance(entry, list) for text in entry if isinstance(text, str)}
    items = read_items(program, sorted(texts), "the interpretations")
    known = {text: (item.relation, item.row, item.is_true) for text, item in zip(sorted(texts), items)}
    return [_entry(entry, number, known, path) for number, entry in enumerate(entries)]


def _entry(entry: Any, number: int, known: dict[str, Any], path: str) -> dict[str, Any]:
    """One interpretation in the form of `Program.fit`."""
    from derivable.core.diagnostics import ParseError

    def fail(message: str) -> Any:
        hint = '["alarm()", "not calls(\\"Ada\\")"], or {"alarm": true, "calls": [["Ada"]], "not calls": [["Bob"]]}'
        raise ParseError(f"interpretation {number}: {message}", hint=hint, source=path)

    found: dict[str, Any] = {}

    def put(relation: str, row: tuple[Any, ...], is_true: bool) -> None:
        rows = found.setdefault(relation, {})
        if rows.setdefault(row, is_true) != is_true:
            fail(f"`{relation}` has {row} both ways")

    if isinstance(entry, list):
        for item in entry:
            if item not in known:
                fail(f"{item!r} is no text of an item")
            put(*known[item])
        return found
    if not isinstance(entry, dict):
        fail(f"a {type(entry).__name__} is none")
    for key, observed in entry.items():
        relation, is_true = key.removeprefix("not ").strip(), not key.startswith("not ")
        if isinstance(observed, bool):
            put(relation, (), observed == is_true)
        elif isinstance(observed, list):
            for row in observed:
                put(relation, tuple(row) if isinstance(row, list) else (row,), is_true)
        else:
            fail(f"`{key}` has {observed!r}")
    return found
