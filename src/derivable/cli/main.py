"""The command `derivable`: finds the subcommand, and turns every outcome into an exit status.

0    done
1    the input or the command line is at fault: an error message of ours on stderr, no traceback
2    a bug in this library: traceback and how to report it on stderr
     with --json, stdout holds one document after either: {"error": {"kind", "message", ...}}
130  interrupted (Ctrl-C), quietly
141  whatever reads our output stopped reading (`| head`), quietly
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click

from derivable.cli.report import write_json
from derivable.core.diagnostics import DerivableError, DerivableWarning
from derivable.core.lazy import optional_module
from derivable.core.terminal import visible

USER_ERROR, BUG, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

COMMANDS = {
    "accelerate": "design an accelerator for a PyTorch model",
    "compile": "compile a CNF to a circuit file",
    "convert": "write a program of Soufflé's or ProbLog's, or a network, in Scallop's language",
    "count": "exact and weighted model count of a CNF or circuit file",
    "demo": "demonstrations on handwritten digits",
    "explain": "show what a program or circuit becomes, stage by stage",
    "fit": "learn the probabilities of a logic program",
    "run": "run a logic program",
    "warm": "compile the usual kernels beforehand, once on a machine",
}


def _show_version(ctx: click.Context, param: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        from derivable.core.version import __version__

        click.echo(f"derivable, version {__version__}")
        ctx.exit()


class LateGroup(click.Group):
    """Subcommands are imported when they are called: `--help` and a discrete run start without torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name == "demo":  # a package of examples, which stands on the library as a user's code does
            return optional_module("derivable_demos.command", "derivable_demos", "demo").demo_command
        return getattr(importlib.import_module(f"derivable.cli.{cmd_name}"), f"{cmd_name}_command")

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        near = get_close_matches(args[0], COMMANDS, 1)
        if args[0] not in COMMANDS and not args[0].startswith("-") and near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LateGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Show the version."
)
def cli() -> None:
    """Symbolic knowledge as fast, exactly differentiable array programs.

    Results go to stdout: for people by default, for programs with --json. Errors and progress go to
    stderr; with --json stdout then holds {"error": ...}. Exit status: 0 done, 1 the input or the
    command line is at fault, 2 a bug in derivable.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; nothing escapes but what kills the process.

    arguments  None takes those of the process
    """
    try:
        status = _outcome(arguments)
        # Flushed here, where a closed pipe can still be reported, and not by the interpreter at exit.
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _leave_the_pipe()
        return BROKEN_PIPE


def _show_warning(message: Warning | str, kind: type[Warning], *place: Any) -> None:
    """Our warnings are about the input, and say where in it; others are shown as Python does."""
    text = str(message) if issubclass(kind, DerivableWarning) else warnings.formatwarning(message, kind, *place[:2])
    click.echo(text.rstrip("\n"), err=True)


def _outcome(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    try:
        if "_DERIVABLE_COMPLETE" in os.environ:
            cli.main(prog_name="derivable")  # the shell asks for completions; ends the process
        # Not `cli.main`, which ends the process itself when a pipe closes.
        with warnings.catch_warnings(), cli.make_context("derivable", list(given)) as context:
            warnings.showwarning = _show_warning
            cli.invoke(context)
        return 0
    except click.exceptions.Exit as wanted:
        return wanted.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except click.ClickException as error:
        error.show(sys.stderr)
        message, hint, source, span = error.format_message(), None, None, None
    except DerivableError as error:
        click.echo(error.report() if error.span or error.source else f"error: {error.report()}", err=True)
        message, hint, source, span = error.message, error.hint, error.source, error.span
    except OSError as error:
        if error.filename is None:
            return _bug(as_json)
        message, hint, source, span = error.strerror or str(error), None, os.fspath(error.filename), None
        click.echo(visible(f"{source}: error: {message}"), err=True)
    except MemoryError:
        message, hint, source, span = "out of memory", "try a smaller batch or problem", None, None
        click.echo(f"error: {message}\nhelp: {hint}", err=True)
    except Exception:
        return _bug(as_json)
    if as_json:
        line, column = (span.line, span.column) if span else (None, None)
        _write_error("input", message=message, hint=hint, source=source, line=line, column=column)
    return USER_ERROR


def _write_error(kind: str, **details: Any) -> None:
    """The document that stands in for the one that --json asks for."""
    write_json({"error": {"kind": kind, **details}})


def _bug(as_json: bool) -> int:
    from derivable.core.version import __version__

    traceback.print_exc()
    click.echo(
        f"\nThis is a bug in derivable {__version__}, not in your input. Please report it with the lines above,\n"
        f"the command, and the file it read; Python {sys.version.split()[0]} on {sys.platform}.",
        err=True,
    )
    if as_json:
        _write_error("bug", message=traceback.format_exc(), version=__version__)
    return BUG


def _leave_the_pipe() -> None:
    """Point stdout at nothing, so that the interpreter's own flush at exit does not complain."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
