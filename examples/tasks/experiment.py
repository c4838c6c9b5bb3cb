"""What the tasks share: options, a clock for the symbolic part, training through logic, results and a picture."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import extras

# isort: split

import numpy as np
import torch
from torch import Tensor, nn

INK, RIGHT, WRONG, QUIET, BLUE = "#1f2933", "#2f7d5b", "#c0392b", "#9aa5b1", "#3f51b5"


def options(
    description: str,
    arguments: list[str] | None,
    picture: str,
    full: dict[str, Any] | None = None,
    files: Sequence[str] | Callable[[argparse.Namespace], Sequence[str]] = (),
    needs: Sequence[str] = (),
    **sizes: Any,
) -> argparse.Namespace:
    """The options of a task: `--data`, `--picture`, `--seed`, and one for each of its sizes, with their defaults.

    full   the sizes that `--full` has instead: those with which the figures of the documentation are reached
    files  the real data, in the folder of `--data`, maybe by the other options; `data` is None where they are not used,
           and a line says so
    needs  packages of the extras besides torch and matplotlib

    Ends the process where the folder has no such data, or a package is missing, before the task begins.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DERIVABLE_DATA"), help="the folder of real data")
    parser.add_argument("--picture", default=f"{picture}.png")
    parser.add_argument("--seed", type=int, default=0)
    if full:
        parser.add_argument("--full", action="store_true", help=", ".join(f"{k} {v}" for k, v in full.items()))
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=type(default), help=f"{default} unless given")
    wanted = parser.parse_args(arguments)
    defaults = sizes | (full if full and wanted.full else {})
    for name, default in defaults.items():
        if getattr(wanted, name) is None:
            setattr(wanted, name, default)
    extras.check(*needs)
    wanted.data = real_data(wanted.data, files(wanted) if callable(files) else files, parser)
    return wanted


def real_data(folder: str | Path | None, files: Sequence[str], parser: argparse.ArgumentParser) -> Path | None:
    """The folder of real data, None if there is none; says which data are used."""
    if folder is not None:
        folder = Path(folder)
        absent = [name for name in ("", *files) if not (folder / name).exists()]
        if absent:
            parser.error(f"there is no {folder / absent[0]}; without --data, the task draws data of its own")
    if files:
        wanted = " and ".join(files)
        drawn = "drawn by this script, so that no figure compares with a published one"
        print(f"data: {f'{drawn} (with --data: {wanted})' if folder is None else wanted}", flush=True)
    return folder


@dataclass
class Clock:
    """Seconds of the symbolic part, and of all that is measured."""

    symbolic_seconds: float = 0.0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)

    @contextlib.contextmanager
    def symbolic(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.symbolic_seconds += time.perf_counter() - began

    @contextlib.contextmanager
    def all(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began

    @property
    def share(self) -> float:
        return self.symbolic_seconds / self.seconds if self.seconds else 0.0


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """(what the work gives, its seconds of processor time)."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def timed_again(work: Callable[[], Any]) -> tuple[Any, float]:
    """As `timed`, of the second time: the first time kernels are compiled or loaded."""
    work()
    return timed(work)


def train(
    network: nn.Module,
    loss_of: Callable[[Tensor, Any], Tensor],
    batches: Iterable[tuple[Any, Any]],
    rate: float,
    clock: Clock | None = None,
    steps: int | None = None,
) -> Clock:
    """Fit the network to batches of (inputs, what is wanted); returns the clock, with the loss of each step.

    steps    how many batches there are, where the rate falls: over their second half, to 0
    loss_of  what the network found, what is wanted -> a scalar; the symbolic part of the clock is its forward pass and
             its backward pass to what the network found
    """
    clock = clock or Clock()
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    network.train()
    with clock.all():
        for inputs, wanted in batches:
            optimiser.zero_grad()
            found = network(inputs)
            # The graph is cut here, so that the two parts of the backward pass are two calls.
            leaf = found.detach().requires_grad_()
            with clock.symbolic():
                loss = loss_of(leaf, wanted)
                loss.backward()
            found.backward(leaf.grad)
            if steps is not None:
                optimiser.param_groups[0]["lr"] = rate * min(1.0, 2 - 2 * len(clock.losses) / steps)
            optimiser.step()
            clock.losses.append(loss.item())
    network.eval()
    return clock


def batches(inputs: Tensor, wanted: Tensor, size: int, epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Shuffled batches of all rows, once an epoch."""
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(size):
            yield inputs[rows], wanted[rows]


def report(ours: float, baseline: float, published: str, differs: str, what: str = "accuracy") -> None:
    """Print the figure reached, that of the baseline, and what `report_published` prints."""
    print(f"{what} through logic: {ours:.1%}; by a network alone: {baseline:.1%}")
    report_published(published, differs)


def report_published(published: str, differs: str) -> None:
    """Print the published figures with their source, and what differs here from the set-up that gave them."""
    print(f"published: {published}")
    print(f"what differs: {differs}", flush=True)


def report_time(what: str, clock: Clock) -> None:
    print(f"{what}: {clock.seconds:.1f} s, of which {clock.share:.1%} in the symbolic part", flush=True)


def figure(panels: int, height: float = 3.2) -> tuple[Any, list[Any]]:
    """A figure without a window, and its axes, side by side."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(3.4 * panels, height), layout="constrained")
    return made, list(np.atleast_1d(made.subplots(1, panels)))


def draw_losses(axes: Any, losses: list[float]) -> None:
    """The loss of each step, averaged over a fiftieth of them."""
    width = max(1, len(losses) // 50)
    smooth = np.convolve(losses, np.full(width, 1 / width), "valid")
    axes.plot(np.arange(len(smooth)) + width, smooth, color=INK, linewidth=1)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats)")
    axes.spines[["top", "right"]].set_visible(False)


def draw_bars(axes: Any, values: dict[str, float], label: str) -> None:
    """Values from top to bottom with their names; the first is ours."""
    names, heights = list(values)[::-1], list(values.values())[::-1]
    axes.barh(names, heights, color=[QUIET] * (len(names) - 1) + [RIGHT])
    for row, height in enumerate(heights):
        axes.text(height, row, f" {height:.3g}", va="center")
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)


def save(made: Any, path: str) -> None:
    made.savefig(path, dpi=100)
    print(f"picture: {path}")
