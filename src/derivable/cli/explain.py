"""`derivable explain FILE`: the stages between a program or circuit and what runs."""

from __future__ import annotations

import sys

import click

from derivable.cli.report import write_json
from derivable.cli.user_file import file_options, roots_of
from derivable.core.terminal import visible

CIRCUIT_ENDINGS = (".cnf", ".dimacs", ".sdd", ".nnf", ".ddnnf", ".dvc")


@click.command("explain")
@click.argument("file", type=click.Path())
@click.option(
    "--stage",
    help="Of a program: syntax, types, desugar, strata, ram (default), compilation. Of a circuit: nodes, levels "
    "(default), kernels.",
)
@file_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the stage and its text.")
def explain_command(file: str, stage: str | None, roots: tuple[str, ...], allow_files: bool, as_json: bool) -> None:
    """Show what the program or circuit in FILE becomes.

    FILE is a circuit if its name ends in .cnf, .sdd, .nnf or .dvc (.gz or not), else a logic program.
    """
    if file.lower().removesuffix(".gz").endswith(CIRCUIT_ENDINGS):
        from derivable.cli.compile import compiled

        stage = stage or "levels"
        text = compiled(file, "sdd", None).explain(stage)
    else:
        from derivable.datalog.api.program import Program

        stage = stage or "ram"
        text = Program.from_file(file, roots=roots_of(file, roots, allow_files)).explain(stage)
    if as_json:
        write_json({"file": file, "stage": stage, "text": text})
        return
    click.echo(visible(text) if sys.stdout.isatty() else text)
