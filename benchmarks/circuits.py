"""Circuit evaluation side by side with klaycircuits: value and gradient, log and real, batch 1 and 128.

    python benchmarks/circuits.py                      # everything, a table on the standard output
    python benchmarks/circuits.py --quick              # the circuits that need no compilation
    python benchmarks/circuits.py --write docs/benchmarks/circuits.md

Both sides get the same files and the same float32 weights in one process, are checked against each other first, and
are then timed in turn, each after a call that is not timed. The real semiring gets explicit negative weights, scaled
so that float32 holds the root. The peer is klaycircuits' fastest back end that can do the job: eager torch or jitted
JAX (vmapped for batches). JAX has no gradient for its products in the real semiring. `--compiled` adds torch.compile,
which takes minutes a circuit.
Time to the first gradient and memory are taken in fresh processes of their own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import harness

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("DERIVABLE_DATA", ROOT.parent / "shared" / "data"))
BATCHES = (1, 128)

# Random 3-CNFs: variables, clauses, seed, vtree. Chosen so that the circuits have about 10^3 to 10^6 nodes.
RANDOM = (
    (15, 35, 1, "balanced"),
    (20, 40, 1, "balanced"),
    (25, 50, 1, "balanced"),
    (30, 60, 1, "balanced"),
    (40, 80, 1, "balanced"),
    (42, 90, 1, "right"),
    (45, 80, 1, "balanced"),
)
COUNTING = ("track1_000", "track1_009", "track1_013", "track2_000", "track1_033", "track1_017", "track1_019")


@dataclass(frozen=True)
class Instance:
    name: str
    path: Path
    num_variables: int


def instances(cache: Path, quick: bool, only: str | None) -> list[Instance]:
    found = []
    for name, variables in (("sudoku_4", 64), ("4-grid", 40)):
        packed = DATA / "circuits" / f"{name}.sdd.gz"
        if packed.exists():
            path = cache / f"{name}.sdd"
            path.write_bytes(gzip.decompress(packed.read_bytes()))
            found.append(Instance(name, path, variables))
    if not quick:
        for variables, clauses, seed, vtree in RANDOM:
            path = cache / f"random-{variables}-{clauses}-{seed}-{vtree}.sdd"
            choice = str(variables), str(clauses), str(seed), vtree
            if path.exists() or _call("make_sdd", str(path), *choice, limit=900):
                found.append(Instance(f"3-CNF {variables}/{clauses}", path, variables))
        for name in COUNTING:
            packed = DATA / "model_counting" / f"mc2022_{name}.cnf.gz"
            path = cache / f"{name}.nnf"
            if packed.exists() and (path.exists() or _call("make_nnf", str(packed), str(path), limit=120)):
                text = gzip.decompress(packed.read_bytes()).decode()
                header = next(line for line in text.splitlines() if line.startswith("p cnf"))
                found.append(Instance(f"D4 {name}", path, int(header.split()[2])))
    return [instance for instance in found if only is None or only in instance.name]


def _call(*arguments: str, limit: float) -> bool:
    """Run a part of this file in a process of its own; whether it came to an end in time."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--part", *arguments], timeout=limit, stdout=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def make_sdd(path: str, variables: str, clauses: str, seed: str, shape: str) -> None:
    from pysdd.sdd import SddManager, Vtree

    choice = random.Random(int(seed))
    rows = [
        [v * choice.choice((1, -1)) for v in choice.sample(range(1, int(variables) + 1), 3)]
        for _ in range(int(clauses))
    ]
    # Clauses that touch the bottom of the vtree first: intermediate results stay small.
    rows.sort(key=lambda row: (max(map(abs, row)), min(map(abs, row))), reverse=shape == "right")
    manager = SddManager.from_vtree(Vtree(var_count=int(variables), vtree_type=shape))
    found = manager.true()
    for row in rows:
        clause = manager.false()
        for literal in row:
            clause = manager.disjoin(clause, manager.literal(literal))
        together = manager.conjoin(found, clause)
        together.ref()
        if not found.is_true():
            found.deref()
        found = together
    found.save((path + ".part").encode())
    os.replace(path + ".part", path)


def make_nnf(packed: str, path: str) -> None:
    import py_d4

    text = gzip.decompress(Path(packed).read_bytes()).decode()
    cnf = Path(path).with_suffix(".cnf")
    cnf.write_text("\n".join(line for line in text.splitlines() if not line.startswith("c")) + "\n")
    compiled = py_d4.Solver(str(cnf)).compile()
    Path(path + ".part").write_text(compiled.getNNFString())
    os.replace(path + ".part", path)


def make_counting(path: Path, variables: int, modulus: int, is_balanced: bool) -> None:
    """Write the SDD of "as many variables are true as half the modulus, modulo the modulus".

    Its vtree is balanced, or right-linear, where the SDD is a decision diagram as deep as there are variables.
    """
    lines: list[str] = []

    def numbered(line: str) -> int:
        lines.append(line.format(len(lines)))
        return len(lines) - 1

    false = numbered("F {}")
    signed = [sign * v for v in range(1, variables + 1) for sign in (-1, 1)]
    literals = {literal: numbered(f"L {{}} {2 * (abs(literal) - 1)} {literal}") for literal in signed}

    def states(low: int, high: int, wanted: list[int]) -> dict[int, int]:
        """The node of each wanted state, false where no assignment of the variables of low + 1 to high has it."""
        if high - low == 1:
            return {s: {0: literals[-high], 1: literals[high]}.get(s, false) for s in wanted}
        middle = (low + high) // 2 if is_balanced else low + 1
        left_states = range(min(modulus, middle - low + 1))
        left = states(low, middle, list(left_states))
        needed = sorted({(s - t) % modulus for s in wanted for t in left_states})
        right = states(middle, high, needed)
        found = {}
        for s in wanted:
            elements = [f"{left[t]} {right[(s - t) % modulus]}" for t in left_states]
            is_there = any(right[(s - t) % modulus] != false for t in left_states)
            vtree = 2 * middle - 1
            found[s] = numbered(f"D {{}} {vtree} {len(elements)} {' '.join(elements)}") if is_there else false
        return found

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * variables))
    states(0, variables, [modulus // 2])
    path.write_text("\n".join([f"sdd {len(lines)}", *lines]) + "\n", encoding="utf-8")


def klay_circuit(path: Path):
    import klay

    circuit = klay.Circuit()
    (circuit.add_sdd_from_file if path.suffix == ".sdd" else circuit.add_d4_from_file)(str(path))
    return circuit


def weights_for(circuit, semiring: str, batch: int):
    """(weights, negative weights or None) [row, variable] float32."""
    import numpy as np

    rng = np.random.default_rng(0)
    shape = (batch, circuit.num_variables)
    if semiring == "log":
        return np.log(rng.uniform(0.05, 0.95, shape)).astype(np.float32), None
    weights, negatives = rng.uniform(0.5, 1.5, shape), rng.uniform(0.5, 1.5, shape)
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        logs = np.log(weights[:1]) + middle, np.log(negatives[:1]) + middle
        if circuit.evaluate(*logs, semiring="log").max() > 0:
            high = middle
        else:
            low = middle
    scale = np.exp(low)
    return (weights * scale).astype(np.float32), (negatives * scale).astype(np.float32)


def torch_call(module, arrays):
    import torch

    tensors = [torch.from_numpy(array).requires_grad_() for array in arrays if array is not None]

    def call():
        for tensor in tensors:
            tensor.grad = None
        values = module(*tensors)
        values.sum().backward()
        return values.detach().numpy(), [tensor.grad.numpy() for tensor in tensors]

    return call


def jax_call(function, arrays, batch: int):
    import jax
    import jax.numpy as jnp

    inputs = [jnp.asarray(array if batch > 1 else array[0]) for array in arrays if array is not None]
    places = tuple(range(len(inputs)))
    graded = jax.value_and_grad(lambda *inputs: function(*inputs)[0], argnums=places)
    compiled = jax.jit(jax.vmap(graded) if batch > 1 else graded)

    def call():
        value, gradients = compiled(*inputs)
        jax.block_until_ready(gradients)
        return value, gradients

    return call


def numpy_call(circuit, semiring: str, arrays):
    from derivable.circuit.fold.evaluate import value_and_gradient

    def call():
        values, gradient, negative = value_and_gradient(circuit, *arrays, semiring=semiring)
        return values, [gradient] if negative is None else [gradient, negative]

    return call


def check_agreement(ours, theirs, name: str) -> None:
    import numpy as np

    (value, gradients), (other, others) = ours, theirs
    rows = len(value)
    np.testing.assert_allclose(np.reshape(value, rows), np.reshape(other, rows), rtol=2e-3, atol=2e-3, err_msg=name)
    for mine, other in zip(gradients, others, strict=True):
        scale = float(np.abs(mine).max()) + 1e-30
        np.testing.assert_allclose(mine, np.reshape(other, mine.shape), rtol=2e-2, atol=2e-3 * scale, err_msg=name)


def compare(instance: Instance, semiring: str, batch: int, compiled: bool, clock) -> dict:
    """One row of the table of times."""
    import derivable as dv

    circuit = dv.circuit.load(instance.path, num_variables=instance.num_variables)
    peer = klay_circuit(instance.path)
    arrays = weights_for(circuit, semiring, batch)
    contestants = {
        "derivable": numpy_call(circuit, semiring, arrays),
        "derivable torch": torch_call(circuit.to_torch(semiring), arrays),
        "klay torch": torch_call(peer.to_torch_module(semiring, compile=False), arrays),
    }
    if compiled:
        contestants["klay torch.compile"] = torch_call(peer.to_torch_module(semiring, compile=True), arrays)
    if semiring == "log":
        contestants["klay jax"] = jax_call(peer.to_jax_function(semiring), arrays, batch)
    ours = contestants["derivable"]()
    for name, call in contestants.items():
        check_agreement(ours, call(), f"{instance.name} {semiring} {batch}: {name}")
    timing = harness.paired(contestants, rounds=7, slice_seconds=0.04, untimed=1, clock=clock)
    fastest = timing.fastest([name for name in contestants if name.startswith("klay")])
    return {
        "name": instance.name,
        "semiring": semiring,
        "batch": batch,
        "nodes": circuit.num_nodes,
        "edges": circuit.num_edges,
        "peer nodes": peer.nb_nodes(),
        "medians": {name: timing.median(name) for name in contestants},
        "fastest": fastest,
        "ratio": timing.ratio(fastest, "derivable"),
        "torch ratio": timing.ratio(fastest, "derivable torch"),
    }


def peak_memory_bytes() -> int:
    """The largest resident size of this process; unlike getrusage's it starts anew with the program."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return harness.peak_memory_bytes()


def first_gradient(who: str, path: str, variables: str, started: str) -> None:
    """In a fresh process: seconds from its start to the first gradient; from the file to a gradient once more, as
    for another circuit in the same process; then the memory that gradients at batch 128 take."""
    import numpy as np

    rng = np.random.default_rng(0)
    batch = np.log(rng.uniform(0.05, 0.95, (128, int(variables)))).astype(np.float32)

    def fresh():
        """From the file to a function of rows that computes values and gradients."""
        if who.startswith("klay"):
            circuit = klay_circuit(Path(path))
            if who == "klay jax":
                function = circuit.to_jax_function("log")
                return lambda rows: jax_call(function, (rows, None), len(rows))
            module = circuit.to_torch_module("log", compile=False)
            return lambda rows: torch_call(module, (rows, None))
        import derivable as dv

        circuit = dv.circuit.load(path, num_variables=int(variables))
        if who == "derivable torch":
            module = circuit.to_torch("log")
            return lambda rows: torch_call(module, (rows, None))
        return lambda rows: numpy_call(circuit, "log", (rows, None))

    fresh()(batch[:1])()
    first = time.time() - float(started)
    again = time.perf_counter()
    graded = fresh()
    graded(batch[:1])()
    following = time.perf_counter() - again
    call = graded(batch)
    for _ in range(2):
        call()
    print(json.dumps({"first": first, "next": following, "peak": peak_memory_bytes()}))


def in_fresh_processes(who: str, instance: Instance) -> dict:
    """Medians over three processes of what `first_gradient` prints."""
    rows = []
    for _ in range(3):
        part = [sys.executable, __file__, "--part", "first_gradient", who, str(instance.path)]
        done = subprocess.run(
            [*part, str(instance.num_variables), str(time.time())], capture_output=True, text=True, check=True
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def _duration(seconds: float) -> str:
    return harness.duration(seconds)


def _mebibytes(size: float) -> str:
    return f"{size / 2**20:.0f}"


def report(times: list[dict], firsts: list[dict]) -> str:
    lines = ["Value and gradient, medians. The ratio is that of the fastest klaycircuits back end to `derivable`.", ""]
    rows = []
    names = ("derivable", "derivable torch", "klay torch", "klay torch.compile", "klay jax")
    names = tuple(name for name in names if any(name in row["medians"] for row in times))
    for row in times:
        cells = [harness.duration(row["medians"][name]) if name in row["medians"] else "" for name in names]
        nodes = f"{row['nodes']:,}", f"{row['edges']:,}", f"{row['peer nodes']:,}"
        ratios = f"{row['ratio']:.1f}", f"{row['torch ratio']:.1f}"
        rows.append([row["name"], *nodes, row["semiring"], row["batch"], *cells, *ratios])
    header = ["circuit", "nodes", "edges", "klay nodes", "semiring", "batch", *names, "ratio", "ratio torch"]
    lines += [harness.table(header, rows), ""]
    rows = []
    for batch in BATCHES:
        for semiring in ("log", "real", None):
            chosen = [row for row in times if row["batch"] == batch and semiring in (None, row["semiring"])]
            if chosen:
                cells = []
                for key in ("ratio", "torch ratio"):
                    ratios = [row[key] for row in chosen]
                    cells += [f"{harness.geometric_mean(ratios):.1f}", f"{min(ratios):.1f}"]
                rows.append([batch, semiring or "both", len(chosen), *cells])
    header = ["batch", "semiring", "circuits", "geometric mean", "least", "through torch: mean", "least"]
    lines += ["Ratios in summary:", "", harness.table(header, rows), ""]
    if firsts:
        names = ("derivable", "derivable torch", "klay torch", "klay jax")
        for key, title, shown in (
            (
                "next",
                "From the file to the first gradient (log, batch 1) of a circuit in a running process:",
                _duration,
            ),
            ("first", "From the start of a Python process to the first gradient, all imports included:", _duration),
            ("peak", "Peak resident memory of that process after gradients at batch 128, MiB:", _mebibytes),
        ):
            rows = [[row["name"], *(shown(row[who][key]) if row[who] else "" for who in names)] for row in firsts]
            lines += [title, "", harness.table(["circuit", *names], rows), ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--compiled", action="store_true", help="klaycircuits through torch.compile too")
    parser.add_argument("--only", help="circuits whose name contains this")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: the time of all threads together"
    )
    parser.add_argument("--no-first", action="store_true", help="leave out first gradients and memory")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "derivable" / "benchmarks")
    parser.add_argument("--write", type=Path, help="write the report to this Markdown file")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        name, *arguments = options.part
        {"make_sdd": make_sdd, "make_nnf": make_nnf, "first_gradient": first_gradient}[name](*arguments)
        return
    harness.use_threads(options.threads)
    os.environ["DERIVABLE_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    options.cache.mkdir(parents=True, exist_ok=True)
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    times, firsts = [], []
    for instance in instances(options.cache, options.quick, options.only):
        for semiring in ("log", "real"):
            for batch in BATCHES:
                row = compare(instance, semiring, batch, options.compiled, clock)
                times.append(row)
                shown = {name: harness.duration(seconds) for name, seconds in row["medians"].items()}
                print(instance.name, row["nodes"], semiring, batch, shown, f"{row['ratio']:.1f}", file=sys.stderr)
        if not options.no_first:
            names = ("derivable", "derivable torch", "klay torch", "klay jax")
            firsts.append({"name": instance.name} | {who: in_fresh_processes(who, instance) for who in names})
            shown = {who: {key: round(value, 4) for key, value in firsts[-1][who].items()} for who in names}
            print(instance.name, "first gradient", shown, file=sys.stderr)
    text = report(times, firsts)
    print(text)
    if options.write:
        machine = harness.machine(("numpy", "numba", "torch", "jax", "klaycircuits"))
        setting = f"{options.threads} threads, {options.clock} time" if options.threads > 1 else f"{options.clock} time"
        head = f"# Circuits: value and gradient\n\n`python benchmarks/circuits.py`, {setting}. {machine}\n"
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(f"{head}\n{text}")


if __name__ == "__main__":
    main()
