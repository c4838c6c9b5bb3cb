"""Reduce-by-index and scan with any operator, beside PyTorch and JAX, forward and backward.

    python benchmarks/parallel.py --quick
    python benchmarks/parallel.py --write docs/benchmarks/parallel.md

One process for each operator and number of threads; in it all contestants take turns and work on the same numbers.
Everybody returns new arrays; malloc is told to keep memory, since the first touch of fresh pages costs more than the
folds. With `--processes 10` each operator runs in ten fresh processes with malloc as it comes, and rows are medians
over them: what users see, page faults included. On one thread the clock is the processor's, on several the wall's.
Medians over rounds, ratios within a round.

The thesis is the overhead (forward + backward) / forward on a GPU, tables 9.1, 9.5, 9.7 and 9.9 of Brunin and Bruun
(2024), the best of its variants.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

BUCKETS = (31, 1023, 1_500_000)
THESIS = {
    "satadd": (52.4, 96.7, 33.7),
    "argmax": (30.3, 38.7, 9.8),
    "add": (1.0, 0.9, 0.8),
    "mul": (2.6, 2.8, 12.9),
    "max": (2.5, 3.1, 5.1),
    "vecadd": (1.6, 0.5, 0.3),
    "vecmul": (12.9, 9.4, 3.2),
    "vecmax": (None, 6.3, 2.4),
}
THESIS_SCAN = {
    "add": 1.96,
    "mul": 4.35,
    "vecadd": 0.03,
    "vecmul": 0.05,
    "linear": 4.0,
    "2x2": 8.9,
    "3x3": 11.3,
    "4x4": 11.3,
    "6-tuple": 137.8,
}
# Columns of the vectorised operators, as in the thesis.
INDEX_COLUMNS, SCAN_COLUMNS = 100, 200


@dataclass
class Case:
    """Calls without arguments, by contestant: forward, and forward with backward. None where there is none."""

    fold: str
    name: str
    buckets: int | None
    moved: int  # bytes that the forward pass has to read and write
    forward: dict[str, Callable[[], Any]]
    both: dict[str, Callable[[], Any]]
    thesis: float | None


def operators() -> dict[str, tuple[Any, tuple[str, ...]]]:
    import numpy as np

    from derivable.algebra import expr
    from derivable.algebra.monoids import NAMED, matrix_product, operator

    def argmax(a, b):
        first = (a[0] > b[0]) | (expr.equal(a[0], b[0]) & (a[1] <= b[1]))
        return expr.where(first, a[0], b[0]), expr.where(first, a[1], b[1])

    def linear(f, g):
        return f[0] * g[0], f[1] * g[0] + g[1]

    def plane(f, g):
        return f[0] @ g[0], f[1] @ g[0] + g[1]

    def three(a, b):
        return a[0] + b[0], a[1] * b[1], expr.maximum(a[2], b[2])

    one, pair = ("float32",), ("float32", "float32")
    return {
        **{name: (NAMED[name], one) for name in ("add", "mul", "max", "logaddexp")},
        **{f"vec{name}": (NAMED[name], one) for name in ("add", "mul", "max")},
        "satadd": (operator(lambda a, b: expr.minimum(a + b, 1e5), neutral=0.0), one),
        "argmax": (operator(argmax, neutral=(-np.inf, 2**62), commutative=True), ("float32", "int64")),
        "linear": (operator(linear, neutral=(1.0, 0.0)), pair),
        "2x2": (matrix_product(2), one),
        "3x3": (matrix_product(3), one),
        "4x4": (matrix_product(4), one),
        "6-tuple": (operator(plane, neutral=(np.eye(2), np.zeros(2))), pair),
        "add, mul, max": (operator(three, neutral=(0.0, 1.0, -np.inf)), ("float32",) * 3),
    }


def elements(op: Any, rows: int, width: int, rng: Any) -> tuple:
    import numpy as np

    leaves = []
    for dtype, size in zip(op.leaf_dtypes, op.leaf_sizes):
        shape = (rows, width, size)
        if dtype == "int64":
            leaves.append(np.arange(rows * width * size).reshape(shape))
        else:
            # Near one, and matrices near the identity, so that long products stay in range.
            leaf = 1 + 1e-3 * (rng.random(shape) - 0.5) if size == 1 else 1e-3 * rng.normal(size=shape)
            side = int(size**0.5)
            if size > 1 and side * side == size:
                leaf += np.eye(side).reshape(-1)
            leaves.append(leaf.astype(dtype))
    return tuple(leaves)


def ones_like(op: Any, leaves: tuple) -> tuple:
    import numpy as np

    return tuple(np.ones_like(leaf) if k in op.float_leaves else None for k, leaf in enumerate(leaves))


def index_case(name: str, buckets: int, n: int) -> Case:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import torch

    import derivable as dv
    from derivable.parallel import element_by_index

    op = typed(name)
    rng = np.random.default_rng(0)
    width = INDEX_COLUMNS if name.startswith("vec") else 1
    rows = n // (width * op.size)
    values, destination = elements(op, rows, width, rng), elements(op, buckets, width, rng)
    indices = rng.integers(0, buckets, rows)
    adjoints = ones_like(op, destination)

    def ours():
        return element_by_index.reduce_by_index(op, destination, indices, values)

    def ours_both():
        return forward_and_back(op, adjoints, destination, indices, values)

    forward, both = {"ours": ours}, {"ours": ours_both}
    where = torch.from_numpy(indices)
    both["autograd"] = through_autograd(
        name, lambda op, into, given: dv.parallel.reduce_by_index(into, op, where, given), destination, values
    )
    base = name.removeprefix("vec")
    if base in ("add", "mul", "max"):
        # JAX's indices have 32 bits, torch's have 64; each is compared with ours on its own.
        short = indices.astype("int32")

        def ours_short():
            return element_by_index.reduce_by_index(op, destination, short, values)

        def ours_short_both():
            return forward_and_back(op, adjoints, destination, short, values)

        forward["ours, 32-bit indices"], both["ours, 32-bit indices"] = ours_short, ours_short_both
        start, given = (torch.from_numpy(leaf[0].reshape(-1, width).squeeze()) for leaf in (destination, values))
        one = torch.ones_like(start)
        run = torch_by_index(base, where, width)
        forward["torch"] = lambda: run(start, given)

        def torch_both():
            x, y = start.detach().requires_grad_(), given.detach().requires_grad_()
            run(x, y).backward(one)
            return y.grad

        both["torch"] = torch_both
        jax_start, jax_given = jnp.asarray(start.numpy()), jnp.asarray(given.numpy())
        jax_where, jax_one = jnp.asarray(indices), jnp.asarray(one.numpy())
        method = {"add": "add", "mul": "multiply", "max": "max"}[base]

        # Indices are an argument, as for the others: XLA would prepare constants when it compiles.
        def fold(x, y, where):
            return getattr(x.at[where], method)(y)

        jitted = jax.jit(fold)
        forward["JAX"] = lambda: jitted(jax_start, jax_given, jax_where).block_until_ready()
        if base != "mul":  # JAX has no derivative of products by index
            pullback = jax.jit(lambda x, y, i, g: (fold(x, y, i), jax.vjp(lambda x, y: fold(x, y, i), x, y)[1](g)))
            both["JAX"] = lambda: jax.block_until_ready(pullback(jax_start, jax_given, jax_where, jax_one))
    moved = indices.nbytes + sum(leaf.nbytes for leaf in values) + 2 * sum(leaf.nbytes for leaf in destination)
    thesis = THESIS[name][BUCKETS.index(buckets)] if name in THESIS and buckets in BUCKETS else None
    return Case("reduce_by_index", name, buckets, moved, forward, both, thesis)


def forward_and_back(op: Any, adjoints: tuple, destination: tuple, indices: Any, values: tuple) -> tuple:
    """What a training step runs: the forward pass knows that its vjp follows, and hands it what it found on the way."""
    from derivable.parallel import element_by_index

    results, kept = element_by_index.reduce_by_index_keeping(op, destination, indices, values)
    made = element_by_index.reduce_by_index_vjp(op, adjoints, destination, indices, values, results, kept=kept)
    return results, made


def torch_by_index(base: str, where: Any, width: int) -> Callable:
    if width == 1:
        if base == "add":
            return lambda x, y: x.scatter_add(0, where, y)
        return lambda x, y: x.scatter_reduce(0, where, y, {"mul": "prod", "max": "amax"}[base])
    if base == "add":
        return lambda x, y: x.index_add(0, where, y)
    return lambda x, y: x.index_reduce(0, where, y, {"mul": "prod", "max": "amax"}[base])


def scan_case(name: str, n: int) -> Case:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import torch

    import derivable as dv
    from derivable.parallel import element_folds

    op = typed(name)
    width = SCAN_COLUMNS if name.startswith("vec") else 1
    rows = n // (width * op.size)
    values = elements(op, rows, width, np.random.default_rng(0))
    adjoints = ones_like(op, values)

    def ours():
        return element_folds.scan(op, values)

    def ours_both():
        return element_folds.scan_vjp(op, adjoints, values, element_folds.scan(op, values))

    forward, both = {"ours": ours}, {"ours": ours_both}
    both["autograd"] = through_autograd(name, dv.parallel.scan, values)
    base = name.removeprefix("vec")
    theirs = {
        "add": torch.cumsum,
        "mul": torch.cumprod,
        "max": lambda x, axis: torch.cummax(x, axis).values,
        "logaddexp": torch.logcumsumexp,
    }
    if base in theirs:
        given = torch.from_numpy(values[0].reshape(-1, width).squeeze())
        one = torch.ones_like(given)
        forward["torch"] = lambda: theirs[base](given, 0)

        def torch_both():
            x = given.detach().requires_grad_()
            theirs[base](x, 0).backward(one)
            return x.grad

        both["torch"] = torch_both

    def product(a, b):
        return jnp.matmul(a, b)

    def linear(f, g):
        return f[0] * g[0], f[1] * g[0] + g[1]

    # cumlogsumexp is left out: its gradient takes minutes.
    jax_scans: dict[str, Callable] = {
        "add": jnp.cumsum,
        "mul": jnp.cumprod,
        "max": jax.lax.cummax,
        "linear": lambda f: jax.lax.associative_scan(linear, f),
        "2x2": lambda f: jax.lax.associative_scan(product, f),
        "3x3": lambda f: jax.lax.associative_scan(product, f),
    }
    if base in jax_scans:
        fold = jax_scans[base] if base in ("linear", "2x2", "3x3") else lambda f: jax_scans[base](f, axis=0)
        if base == "linear":
            jax_given: Any = tuple(jnp.asarray(leaf.reshape(-1)) for leaf in values)
        elif base in ("2x2", "3x3"):
            jax_given = jnp.asarray(values[0].reshape(rows, int(base[0]), int(base[0])))
        else:
            jax_given = jnp.asarray(values[0].reshape(-1, width).squeeze())
        jax_one = jax.tree.map(jnp.ones_like, jax_given)
        jitted = jax.jit(fold)
        pullback = jax.jit(lambda f, g: (fold(f), jax.vjp(fold, f)[1](g)))
        forward["JAX"] = lambda: jax.block_until_ready(jitted(jax_given))
        both["JAX"] = lambda: jax.block_until_ready(pullback(jax_given, jax_one))
    moved = 2 * sum(leaf.nbytes for leaf in values)
    return Case("scan", name, None, moved, forward, both, THESIS_SCAN.get(name))


def typed(name: str) -> Any:
    made, dtypes = operators()[name]
    return made.typed(dtypes)


def names() -> list[tuple[str, str, int | None]]:
    by_index = ["add", "mul", "max", "satadd", "argmax", "add, mul, max", "vecadd", "vecmul", "vecmax"]
    scans = ["add", "mul", "max", "logaddexp", "linear", "2x2", "3x3", "4x4", "6-tuple", "add, mul, max"]
    found: list[tuple[str, str, int | None]] = [("index", name, b) for name in by_index for b in BUCKETS]
    return [("scan", name, None) for name in [*scans, "vecadd", "vecmul"]] + found


def through_autograd(name: str, call: Callable, *arrays: tuple) -> Callable:
    """The public fold on torch tensors, forward and backward: what users of torch call."""
    import torch

    op, _ = operators()[name]
    given = []
    for leaves in arrays:
        tensors = []
        for leaf, shape in zip(leaves, op.element.leaf_shapes):
            batch = leaf.shape[1:2] if leaf.shape[1] > 1 else ()
            tensors.append(torch.from_numpy(leaf.reshape(len(leaf), *batch, *shape)))
        given.append(tensors)

    def both() -> Any:
        fresh = [[leaf.detach().requires_grad_(leaf.is_floating_point()) for leaf in leaves] for leaves in given]
        elements = [leaves[0] if len(leaves) == 1 else tuple(leaves) for leaves in fresh]
        results = call(op, *elements)
        results = results if isinstance(results, tuple) else (results,)
        kept = [r for r in results if r.requires_grad]
        torch.autograd.backward(kept, [torch.ones_like(r) for r in kept])
        return fresh[-1][0].grad

    return both


def measure(n: int, threads: int, rounds: int, group: str) -> None:
    """Print one line of JSON for the bandwidth of a copy and one for each case of an operator."""
    harness.use_threads(threads)
    import numpy as np
    import torch

    from derivable.device.cpu.threads import set_num_threads

    torch.set_num_threads(threads)
    set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    source, target = np.ones(n, np.float32), np.ones(n, np.float32)
    copied = harness.paired({"copy": lambda: np.copyto(target, source)}, rounds=rounds, clock=clock)
    bandwidth = 8 * n / copied.median("copy")
    print(json.dumps({"bandwidth": bandwidth}), flush=True)
    for fold, name, buckets in names():
        if group != f"{fold} {name}":
            continue
        case = index_case(name, buckets, n) if buckets else scan_case(name, n)
        runs = {f"{who} forward": call for who, call in case.forward.items()}
        runs |= {f"{who} both": call for who, call in case.both.items()}
        timing = harness.paired(runs, rounds=rounds, untimed=1, clock=clock)
        row: dict[str, Any] = {"fold": case.fold, "name": name, "buckets": buckets, "thesis": case.thesis}
        row["seconds"] = {run: timing.median(run) for run in runs}
        row["overhead"] = {
            who: timing.ratio(f"{who} both", f"{who} forward") for who in case.both if who in case.forward
        }
        row["speed"] = {
            f"{who} {way}": timing.ratio(f"{who} {way}", f"{peer_of(who, calls)} {way}")
            for way, calls in (("forward", case.forward), ("both", case.both))
            for who in calls
            if who in ("torch", "JAX")
        }
        row["bandwidth"] = case.moved / timing.median("ours forward")
        print(json.dumps(row), flush=True)


def medians(same: tuple[Any, ...]) -> Any:
    """One line of several processes: the median of each number; names and what is absent are the same in all."""
    first = same[0]
    if isinstance(first, dict):
        return {key: medians(tuple(line[key] for line in same)) for key in first}
    return statistics.median(same) if isinstance(first, float) else first


def peer_of(who: str, calls: dict[str, Callable]) -> str:
    short = "ours, 32-bit indices"
    return short if who == "JAX" and short in calls else "ours"


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def report(threads: int, lines: list[dict]) -> str:
    bandwidth, rows = lines[0]["bandwidth"], lines[1:]
    texts = []
    for row in rows:
        seconds, speed = row["seconds"], row["speed"]
        buckets = "" if row["buckets"] is None else f"{row['buckets']:,}"
        cells = [row["fold"].replace("_", " "), row["name"], buckets, milliseconds(seconds["ours forward"])]
        cells += [f"{row['bandwidth'] / 1e9:.0f}", milliseconds(seconds["ours both"])]
        cells.append(milliseconds(seconds["autograd both"]))
        for who in ("torch", "JAX"):
            for way in ("forward", "both"):
                key = f"{who} {way}"
                cells.append(f"{milliseconds(seconds[key])} ({speed[key]:.2g}x)" if key in speed else "")
        cells += [f"{row['overhead']['ours']:.2f}", "" if row["thesis"] is None else f"{row['thesis']:g}"]
        texts.append(cells)
    head = ["fold", "operator", "buckets", "forward", "GB/s", "forward + backward", "through torch"]
    head += [f"{who} {way}" for who in ("torch", "JAX") for way in ("forward", "f + b")]
    head += ["overhead", "thesis"]
    title = f"## {threads} thread{'s' * (threads > 1)}\n\nA copy moves {bandwidth / 1e9:.0f} GB/s (read and written)."
    return f"{title} Times in ms; in brackets, how many times longer than ours.\n\n{harness.table(head, texts)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a million numbers, three rounds")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=0, help="medians over so many fresh processes, plain malloc")
    parser.add_argument("--only", default="", help="operators whose title contains this, as in 'index mul'")
    parser.add_argument("--write", type=Path, help="write the tables to this Markdown file")
    parser.add_argument("--part", nargs=2, metavar=("THREADS", "TITLE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    n, rounds = (1_000_000, 3) if options.quick else (10_000_000, options.rounds)
    if options.part:
        measure(n, int(options.part[0]), rounds, options.part[1])
        return
    # malloc keeps what is freed, for all contestants alike.
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 28)}
    environment = os.environ if options.processes else {**os.environ, **kept}
    groups = [group for group in dict.fromkeys(f"{f} {name}" for f, name, _ in names()) if options.only in group]
    parts = []
    for threads in options.threads:
        rows, missing = [], []
        # A process for each operator: the gradients of the largest cases take many times their 600 MB.
        for group in groups:
            command = [sys.executable, __file__, "--part", str(threads), group, "--rounds", str(rounds)]
            command += ["--quick"] if options.quick else []
            runs = []
            for _ in range(max(1, options.processes)):
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
                print(done.stdout, end="", file=sys.stderr, flush=True)
                if done.returncode:
                    missing += [group] if group not in missing else []
                runs.append([json.loads(line) for line in done.stdout.splitlines()])
            lines = [medians(same) for same in zip(*runs)]
            rows += lines if not rows else lines[1:]
        if len(rows) < 2:
            sys.exit("no case was measured")
        parts.append(report(threads, rows))
        if missing:
            parts.append(f"The process ended early, so rows are missing: {', '.join(missing)}.\n")
    size = f"{n:,} float32 numbers in all, whatever an element is"
    foot = f"{size}; {harness.machine(('numpy', 'numba', 'torch', 'jax'))}"
    text = "\n".join(parts) + f"\n{foot}\n"
    print(text)
    if options.write:
        options.write.write_text(INTRODUCTION + "\n" + text)


INTRODUCTION = """# Reduce by index and scan

`python benchmarks/parallel.py --write docs/benchmarks/parallel.md`: values and gradients of folds with any operator on
the CPU, beside PyTorch and JAX where they have the fold at all. "vec" operators work on vectors of 100 (by index) and
200 (scan) numbers; matrix products, linear functions and the 6-tuple (linear functions of the plane) are scans only.
JAX's scans of pairs and matrices are `associative_scan`; its indices have 32 bits, and its times are compared with ours
on such indices. "Through torch" is forward + backward of `dv.parallel` on tensors with autograd. The overhead is
(forward + backward) / forward; the last column is that of the thesis that the rules come from, on a GPU.
"""


if __name__ == "__main__":
    main()
