"""Semirings, aggregates and functions from a user's Python file."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.shell_completion import CompletionItem

from derivable.core.diagnostics import DerivableError
from derivable.core.registry import nearest, suggestion


def run_file(path: str) -> ModuleType:
    """The module of a Python file, which may register what it likes.

    From here on the file's folder comes first where modules are looked for, as in `python FILE`.

    Raises DerivableError if there is none and, with the line, if it fails, OSError if it cannot be read.
    """
    file = Path(path)
    if not file.exists():
        others = [other.name for other in file.parent.glob("*.py")] if file.parent.is_dir() else []
        hint = suggestion(file.name, others, "check the path")
        raise DerivableError("cannot read the file: No such file or directory", source=path, hint=hint)
    with file.open("rb"):
        name = f"derivable_user_{file.stem}"
    specification = importlib.util.spec_from_file_location(name, file)
    if specification is None or specification.loader is None:
        raise DerivableError(f"{path} is not a Python file", hint="its name ends in .py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        specification.loader.exec_module(module)
    except DerivableError:
        raise
    except (Exception, SystemExit) as error:
        raise failure(path, error) from error
    return module


def from_file(place: str, what: str, fits: Callable[[Any], bool]) -> Any:
    """What FILE.py:NAME names; None for a text of another form.

    Raises DerivableError, with the nearest name of the file, if the file has nothing of that name that fits.
    """
    path, _, name = place.rpartition(":")
    if not path.endswith(".py"):
        return None
    module = run_file(path)
    found = getattr(module, name, None)
    if fits(found):
        return found
    known = [key for key, value in vars(module).items() if fits(value) and not key.startswith("_")]
    close = nearest(name, known)
    raise DerivableError(
        f"{path} has no {what} {name!r}",
        hint=f"did you mean {close!r}?" if close else f"it has {', '.join(known) or 'none'}",
    )


def failure(path: str, error: BaseException, what: str = "") -> DerivableError:
    """The report of an error in a user's file: the last line of the file that was running, and the error."""
    trace, line, file = error.__traceback__, None, os.path.abspath(path)
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == file else line
        trace = trace.tb_next
    where = f"{path}, line {line}" if line else path
    parts = [where, what, f"{type(error).__name__}: {error}"]
    return DerivableError(": ".join(part for part in parts if part))


class ProvenanceType(click.ParamType):
    """The name of a provenance, or FILE.py:NAME: a semiring in a Python file, which is registered by its own name, or a
    class that is a provenance, of which an object is made."""

    name = "NAME"

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        from derivable.datalog.tags.provenance import PROVENANCES

        return [CompletionItem(name) for name in PROVENANCES.known() if name.startswith(incomplete)]

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from derivable.algebra import semirings
        from derivable.algebra.semiring import Semiring
        from derivable.datalog.tags.custom import Provenance, has_methods
        from derivable.datalog.tags.provenance import provenance_of

        def fits(found: Any) -> bool:
            return isinstance(found, Semiring) or (has_methods(found) and found is not Provenance)

        record = from_file(value, "provenance", fits) if isinstance(value, str) else value
        if record is None:
            provenance_of(value)
            return value
        if isinstance(record, Semiring):
            return semirings.register(record).name
        return record() if isinstance(record, type) else record


def file_options(command: Callable) -> Callable:
    """The options --root and --allow-files: which files a program may name."""
    root = click.option(
        "--root",
        "roots",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        help="A folder whose files the program may read, beside its own folder and the working directory. May be "
        "repeated.",
    )
    return root(click.option("--allow-files", is_flag=True, help="The program may name any file.")(command))


def roots_of(file: str, roots: tuple[str, ...], allow_files: bool) -> tuple[str, ...] | None:
    """The folders whose files a program may read, None for all. file: the program's, - for standard input."""
    return None if allow_files else (os.path.dirname(os.path.abspath(file)), os.getcwd(), *roots)


def souffle_options(command: Callable) -> Callable:
    """The options --macro and --word, of programs of Soufflé's."""
    macro = click.option(
        *("-M", "--macro", "macros"), multiple=True, metavar="NAME=TEXT", help="A macro of a program of Soufflé's."
    )
    word = click.option(
        "--word", type=click.Choice(["32", "64"]), default="32", help="Bits of Soufflé's numbers.  [default: 32]"
    )
    return macro(word(command))


def macros_of(macros: tuple[str, ...]) -> dict[str, str]:
    """NAME=TEXT as a text by its name."""
    return {name: text for name, _, text in (macro.partition("=") for macro in macros)}


def without_souffle_options(macros: tuple[str, ...], word: str) -> None:
    """Raise UsageError if one of them is set, for a file of another language."""
    if macros or word != "32":
        raise click.UsageError("--macro and --word are for programs of Soufflé's, which end in .dl.")


def _run_files(context: Any, option: Any, paths: tuple[str, ...]) -> None:
    for path in paths:
        run_file(path)


# Eager: what these files register may be named by the other options.
PYTHON = click.option(
    "--python",
    multiple=True,
    type=click.Path(),
    metavar="FILE.py",
    is_eager=True,
    expose_value=False,
    callback=_run_files,
    help="Run this first: it may register semirings, aggregates and functions. May be repeated.",
)


def provenance_option(default: str | None, note: str = "") -> Any:
    """The option --provenance."""
    return click.option(
        "-p",
        "--provenance",
        type=ProvenanceType(),
        metavar="NAME|FILE.py:NAME",
        default=default,
        show_default=default is not None,
        help="What tags are: exact, topkproofs, or a semiring such as minmaxprob, addmultprob, max_product, counting, "
        f"unit, or one of your own from a Python file.{note}",
    )
