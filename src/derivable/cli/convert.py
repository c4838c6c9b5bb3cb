"""`derivable convert FILE OUTPUT`: programs of other systems in this library's language."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from derivable.cli.user_file import file_options, macros_of, roots_of, souffle_options, without_souffle_options
from derivable.core.terminal import visible


@click.command("convert")
@click.argument("file", type=click.Path())
@click.argument("output", type=click.Path(), required=False)
@souffle_options
@file_options
def convert_command(
    file: str, output: str | None, macros: tuple[str, ...], word: str, roots: tuple[str, ...], allow_files: bool
) -> None:
    """Write the program in FILE to OUTPUT in Scallop's language, or print it.

    FILE is a program of Soufflé's (.dl) or of ProbLog's (.pl, .pro, .problog), whose comments are kept, or a network
    (.bif, .xmlbif, .uai). What Scallop's language cannot say is refused with its line.
    """
    if not file.lower().endswith(".dl"):
        without_souffle_options(macros, word)
    text = converted(file, macros_of(macros), int(word), roots_of(file, roots, allow_files))
    if output is None or output == "-":
        click.echo(visible(text) if sys.stdout.isatty() else text, nl=False)
        return
    from derivable.core.files import atomic_write

    with atomic_write(Path(output), "wb") as target:
        target.write(text.encode())


def converted(file: str, macros: dict[str, str], word: int, roots: tuple[str, ...] | None) -> str:
    """The text of a program of another system. Raises DomainError for a file that is none."""
    from derivable.cli.run import text_of
    from derivable.core.diagnostics import DomainError
    from derivable.core.other_files import NETWORKS, is_network, is_problog
    from derivable.core.roots import Roots
    from derivable.datalog.api.conversion import souffle_text
    from derivable.datalog.api.program import Program

    if is_network(file):
        from derivable.circuit.queries.network import load_network

        return load_network(file).program()
    text, source = text_of(file)
    if file.lower().endswith(".dl"):
        return souffle_text(text, source, macros, word, Roots.of(roots))
    if is_problog(source, text):
        return Program.from_problog(text, source, roots=roots).to_scallop()
    hint = f"known are .dl, .pl, .pro, .problog, {', '.join(NETWORKS)}"
    raise DomainError("this is no program of another system, by its ending", source=file, hint=hint)
