"""Progress bars for long work, on stderr, silent when stderr is not a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(
    description: str, total: float | None = None, *, enabled: bool | None = None
) -> Iterator[Callable[..., None]]:
    """Show a bar while the block runs; yields `advance(amount=1, note="")`.

    total    steps in all; None shows a spinner with the elapsed time
    enabled  None means: only if stderr is a terminal
    """
    if enabled is None:
        enabled = sys.stderr.isatty()
    if not enabled:
        yield lambda amount=1, note="": None
        return
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
