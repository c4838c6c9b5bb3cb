"""Layers over batches whose samples have facts of their own, forward and backward, on the programs of `proofs.py`.

    python benchmarks/batches.py [NAME ...] [--batch 64] [--k 1 3] [--provenance topkproofs minmaxprob exact]

Each row has the processor time of a warm call and its gradients for one sample of a batch, on one thread: from lists
of tuples and tensors of probabilities to a loss and the gradients of all probabilities. Scallop's time (0.2.5, see
`proofs.py`) is that of one forward run with k proofs. The last column is the memory of a call over that of a call with
a quarter of the samples, 4 where it is linear.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import harness
from proofs import TASKS

from derivable.core.diagnostics import CompileTimeout

# Seconds that a row is measured, and that one call may take.
SECONDS, MOST = 1.0, 60.0


def calls(name: str, batch: int, provenance: str, k: int) -> Callable[[], tuple[float, float]]:
    """A call of a layer over samples of a task: (seconds of the forward pass, seconds with the gradients)."""
    import torch

    import derivable as dv

    make, _ = TASKS[name]
    samples = [make(sample) for sample in range(batch)]
    text, first = samples[0]
    rules, _, output = text.rstrip().rpartition("\nquery ")
    # Facts without probabilities are those of the layer.
    static = {name: rows for name, rows in first.items() if not isinstance(rows[0][1], tuple)}
    names = [name for name in first if name not in static]
    varying = {name: dv.varying() for name in names}
    layer = dv.nn.Logic(rules, varying, {output: None}, provenance, k=k, facts=static, time_limit=MOST)
    inputs: dict[str, list[Any]] = {}
    for name in names:
        facts = [sample[name] for _, sample in samples]
        numbers = [torch.tensor([tag for tag, _ in rows]).requires_grad_() for rows in facts]
        inputs[name] = [([row for _, row in rows], p) for rows, p in zip(facts, numbers)]

    def call() -> tuple[float, float]:
        start = time.process_time()
        values = torch.cat([values for _, values in layer(**inputs)])
        forward = time.process_time() - start
        values.square().sum().backward()
        return forward, time.process_time() - start

    return call


def least(call: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """The least seconds of warm calls, of the forward pass and of both."""
    found, end = [call() for _ in range(2)], time.process_time() + SECONDS
    while time.process_time() < end:
        found.append(call())
    warm = found[1:]
    return min(forward for forward, _ in warm), min(both for _, both in warm)


def peak(call: Callable[[], Any]) -> int:
    """The most bytes that a warm call has at once, none of them left from another one."""
    from derivable.device.cpu.memory import empty_cache

    call()
    empty_cache()
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="tasks; all but the two largest without")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--k", type=int, nargs="*", default=[1, 3])
    parser.add_argument("--provenance", nargs="*", default=["topkproofs"])
    options = parser.parse_args(arguments)
    harness.use_threads(1)
    small = [name for name in TASKS if name not in ("path12", "maze15")]
    header = ["task", "provenance", "forward, ms", "both, ms", "Scallop's forward, ms", "times", "memory"]
    cells, ratios = [], []
    for name in options.names or small:
        for provenance in options.provenance:
            for k in options.k if provenance == "topkproofs" else options.k[:1]:
                call = calls(name, options.batch, provenance, k)
                try:
                    forward, both = (1e3 * seconds / options.batch for seconds in least(call))
                except CompileTimeout:
                    cells.append([name, provenance, *[""] * 3, f"no end in {MOST:.0f} s", ""])
                    continue
                memory = peak(call) / peak(calls(name, max(1, options.batch // 4), provenance, k))
                theirs = TASKS[name][1].get(k) if provenance == "topkproofs" else None
                ratio = "" if theirs is None else f"{theirs / both:.1f}"
                ratios += [] if theirs is None else [theirs / both]
                shown = f"{provenance}, k = {k}" if provenance == "topkproofs" else provenance
                row = [name, shown, f"{forward:.3f}", f"{both:.3f}", "" if theirs is None else f"{theirs:,.1f}", ratio]
                cells.append([*row, f"{memory:.1f}"])
    print(harness.machine())
    print(harness.table(header, cells))
    if ratios:
        print(f"{harness.geometric_mean(ratios):.1f} times Scallop's speed, {min(ratios):.1f} at least")


if __name__ == "__main__":
    main()
