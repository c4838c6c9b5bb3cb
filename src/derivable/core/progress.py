"""Progress bars for long work, on stderr, silent where nobody sees them; and its time limits."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

from derivable.core.diagnostics import CompileTimeout, DomainError
from derivable.core.lazy import whole_import


def checked_time_limit(time_limit: float | None) -> float | None:
    """Seconds, None without a limit. Raises DomainError for anything else."""
    if time_limit is None:
        return None
    if isinstance(time_limit, bool) or not isinstance(time_limit, (int, float)) or not time_limit > 0:
        raise DomainError(f"time_limit is {time_limit!r}, expected seconds greater than zero, or None")
    return None if time_limit > sys.float_info.max else float(time_limit)


class Deadline:
    """The end of work that began now, for loops to look at; None never ends it.

    what, hint  of the error: `{what} did not finish within {time_limit} s`
    """

    def __init__(self, time_limit: float | None, what: str, hint: str):
        self.time_limit, self.what, self.hint = time_limit, what, hint
        self.end = None if time_limit is None else time.monotonic() + time_limit

    @property
    def room(self) -> int | None:
        """How many results more there may be; None without a limit."""
        return None

    @property
    def bytes_left(self) -> int | None:
        """How much memory more there may be taken; None without a limit."""
        return None

    def remaining(self) -> float | None:
        """Seconds left, None without a limit. Raises CompileTimeout if there are none."""
        if self.end is None:
            return None
        left = self.end - time.monotonic()
        if left <= 0:
            raise self.error()
        return left

    def error(self, doing: str = "") -> CompileTimeout:
        """doing  what was done then, ` while it ...`"""
        return CompileTimeout(f"{self.what} did not finish within {self.time_limit:g} s{doing}", hint=self.hint)


NEVER = Deadline(None, "", "")


def is_seen() -> bool:
    """Whether a person sees stderr: a terminal or a notebook, unless DERIVABLE_PROGRESS is 0."""
    if os.environ.get("DERIVABLE_PROGRESS", "").strip() == "0":
        return False
    return sys.stderr.isatty() or "ipykernel.zmqshell" in sys.modules


@contextlib.contextmanager
def progress(
    description: str, total: float | None = None, *, enabled: bool | None = None
) -> Iterator[Callable[..., None]]:
    """Show a bar while the block runs; yields `advance(amount=1, note="")`.

    total    steps in all; None shows a spinner with the elapsed time
    enabled  None means: if a person sees stderr (`is_seen`)
    """
    if enabled is None:
        enabled = is_seen()
    if not enabled:
        yield lambda amount=1, note="": None
        return
    with whole_import():
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn()]
    if total is not None:
        columns.append(MofNCompleteColumn())
    columns += [TimeElapsedColumn(), TextColumn("{task.fields[note]}")]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, note="")

        def advance(amount: float = 1, note: str = "") -> None:
            bar.update(task, advance=amount, note=note)

        yield advance
