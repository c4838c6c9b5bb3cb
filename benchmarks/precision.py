"""Accuracy of a neural plus vector-symbolic model at the accelerator's precisions: table IV of NSFlow, on our problems.

    python benchmarks/precision.py                    # three seeds; about an hour on two cores
    python benchmarks/precision.py --readers DIR      # keep the trained networks there, and take those that are there
    python benchmarks/precision.py --learn 3          # also INT4 with both ends in INT8, and with learned steps
    python benchmarks/precision.py --learn 2 --panels 6000 --epochs 6 --problems 80    # that, half an hour on one core
    python benchmarks/precision.py --hardware 64      # so many problems on the generated hardware's golden machine, too

A reader of panels is trained for each seed, NVSA's abduction reasons on block codes, and the whole model is quantised
after training, with scales from problems that it is not tested on. The table is of an emulation, which in integers is
the hardware to the bit; with `--hardware` the program itself runs beside it on the golden machine. Problems are
Raven-like and our own; noise on the pictures makes hard ones of them, since easy ones are solved at every precision.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from derivable.accelerator.lower.lower import lower, simulate
from derivable.accelerator.machine.instructions import Machine
from derivable.accelerator.numbers.formats import prepare
from derivable.accelerator.numbers.layers import parse_precision, resolve
from derivable.accelerator.numbers.learned import LearnedSteps
from derivable.accelerator.numbers.quantisation import Quantised, calibrate, evaluate
from derivable.accelerator.numbers.steps import steps_of
from derivable.accelerator.operators.operators import OperatorGraph
from derivable.accelerator.trace.trace import trace
from derivable.core.files import atomic_write
from derivable.core.progress import progress
from reasoning import abduction, problems, reader

PRECISIONS = {
    "FP16": ("fp16", "fp16"),
    "FP8": ("fp8", "fp8"),
    "INT8": ("int8", "int8"),
    "MP (INT8, INT4)": ("int8", "int4"),
    "INT4": ("int4", "int4"),
}
# The first and the last layer of the reader in INT8, all else in INT4.
ENDS = {"convolutions.0": "int8", "top.3": "int8", "*": "int4"}
ENDS_NAME, LEARNED_NAME, TRAINED_NAME = "INT4, ends INT8", "INT4, ends INT8, learned", "FP32, trained as long"
TASKS = {
    "RAVEN, noise 0.05": ("raven", 0.05),
    "I-RAVEN, noise 0.05": ("i-raven", 0.05),
    "I-RAVEN, noise 0.15": ("i-raven", 0.15),
    "I-RAVEN, noise 0.3": ("i-raven", 0.3),
}
HARDWARE_BATCH = 4  # problems that the cache of the golden machine has room for in int8
# Accuracy in per cent: FP32, FP16, INT8, mixed, INT4; memory in MB.
PAPER = {
    "RAVEN": (98.9, 98.9, 98.7, 98.0, 92.5),
    "I-RAVEN": (99.0, 98.9, 98.8, 98.1, 91.3),
    "PGM": (68.7, 68.6, 68.4, 67.4, 59.9),
    "memory": (32, 16, 8, 5.5, 4),
}


def trained(seed: int, panels: int, epochs: int, readers: Path | None) -> reader.Reader:
    """The reader of a seed, from the folder if it is there."""
    network = reader.Reader()
    path = readers / f"reader-{seed}-{panels}-{epochs}.pt" if readers else None
    if path is not None and path.exists():
        network.load_state_dict(torch.load(path))
    else:
        sizes = torch.tensor(list(problems.ATTRIBUTES.values()))
        generator = torch.Generator().manual_seed(seed)
        values = (torch.rand(panels, len(sizes), generator=generator) * sizes).long()
        reader.train(network, values, epochs, seed)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, "wb") as file:
                torch.save(network.state_dict(), file)
    return network.eval()


def taught(
    network: torch.nn.Module, samples: list[torch.Tensor], seed: int, panels: int, epochs: int, *, rounds: bool
) -> tuple[torch.nn.Module, LearnedSteps | None]:
    """A copy of the reader that learns on, with layers that round or as it is."""
    network = copy.deepcopy(network)
    steps = LearnedSteps(network, samples, ENDS) if rounds else None
    sizes = torch.tensor(list(problems.ATTRIBUTES.values()))
    values = (torch.rand(panels, len(sizes), generator=torch.Generator().manual_seed(seed + 500)) * sizes).long()
    reader.train(steps or network, values, epochs, seed + 500, rate=1e-3)
    return network.eval(), steps


def layers(network: torch.nn.Module, model: torch.nn.Module, names: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of layers of the reader, by their names in the whole model."""
    path = next(path for path, module in model.named_modules() if module is network)
    return {name if name == "*" else f"{path}.{name}": value for name, value in names.items()}


def pictures(puzzles: problems.Problems, noise: float, seed: int, batch: int) -> list[torch.Tensor]:
    """[batch, 16, 1, 80, 80] each; what does not fill a batch is left out."""
    whole = len(puzzles.right) // batch * batch
    return [
        problems.draw(part, seed + number, noise) for number, part in enumerate(puzzles.panels[:whole].split(batch))
    ]


def compare(
    quantised: Quantised, graph: OperatorGraph, given: list[torch.Tensor], puzzles: problems.Problems
) -> tuple[float, ...]:
    """Shares that the emulation and the program on the golden machine solve, of which both give the same answer, and of
    which the scores of all answers are the same in all bits. The graph is that of a batch the cache has room for."""
    machine = Machine(
        32, 16, 4, lanes=32, line=128, a=1 << 15, b=1 << 15, k=1024, c=1 << 15, x=1 << 22, program=1 << 20
    )
    quantised = replace(quantised, graph=graph)
    lowered = lower(quantised, machine)
    batch = graph[graph.inputs[0]].shape[0]
    given = [part for whole in given for part in whole.split(batch)]
    scores = [[evaluate(quantised, [part.numpy()])[0], simulate(lowered, [part.numpy()])[0][0]] for part in given]
    emulated, run = ([pair[side] for pair in scores] for side in (0, 1))
    one, other = np.concatenate(emulated), np.concatenate(run)
    same, equal = one.argmax(-1) == other.argmax(-1), (one == other).all(-1)
    return share(emulated, puzzles), share(run, puzzles), float(same.mean()), float(equal.mean())


def share(scores: list[np.ndarray], puzzles: problems.Problems) -> float:
    chosen = np.concatenate(scores).argmax(-1)
    return float((chosen == puzzles.right[: len(chosen)].numpy()).mean())


def print_table(solved: Mapping[str, Mapping[str, list[float]]], megabytes: Mapping[str, float], count: int) -> None:
    """Mean and standard deviation over the seeds that are done, so that a run that is ended early says what it has."""
    names = [*next(iter(solved.values()))]
    megabytes = dict.fromkeys(names, megabytes["FP32"]) | {**megabytes}
    seeds = len(next(iter(solved.values()))["FP32"])
    print(f"\nProblems solved, mean of {seeds} seeds with standard deviation, {count} problems each\n")
    print(f"| task | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for task, shares in solved.items():
        print(f"| {task} | {' | '.join(_percent(shares[name]) for name in names)} |")
    print(f"| constants, MB | {' | '.join(f'{megabytes[name]:.2f}' for name in names)} |\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--panels", type=int, default=12_000, help="panels to learn from")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--problems", type=int, default=400, help="problems of each kind")
    parser.add_argument("--length", type=int, default=256, help="of the four blocks of a code")
    parser.add_argument("--batch", type=int, default=8, help="problems at once")
    parser.add_argument("--readers", type=Path, default=None, help="folder of trained networks")
    parser.add_argument("--learn", type=int, default=0, help="epochs in which steps of INT4 are learned")
    parser.add_argument("--hardware", type=int, default=0, help="problems of each kind that the golden machine solves")
    options = parser.parse_args()

    solved: dict[str, dict[str, list[float]]] = {task: {} for task in TASKS}
    megabytes: dict[str, float] = {}
    for seed in range(options.seeds):
        began = time.perf_counter()
        model = abduction.nvsa(trained(seed, options.panels, options.epochs, options.readers), length=options.length)
        model.eval()
        learned = problems.generate(4 * options.batch, 1000 + seed)
        samples = [
            [part.numpy()] for noise in (0.05, 0.3) for part in pictures(learned, noise, 2000 + seed, options.batch)[:2]
        ]
        graph: OperatorGraph = prepare(trace(model, torch.from_numpy(samples[0][0])))
        small = prepare(trace(model, torch.from_numpy(samples[0][0][:HARDWARE_BATCH])))
        quantised = {
            name: calibrate(graph, samples, {"neural": neural, "symbolic": symbolic})
            for name, (neural, symbolic) in PRECISIONS.items()
        }
        networks = {"FP32": model}
        if options.learn:
            ends = resolve(parse_precision(layers(model.reader, model, ENDS)), graph)
            quantised[ENDS_NAME] = calibrate(graph, samples, ends)
            panels = [part.flatten(0, 1) for part in map(torch.from_numpy, (sample[0] for sample in samples))]
            for name, rounds in ((LEARNED_NAME, True), (TRAINED_NAME, False)):
                network, steps = taught(model.reader, panels, seed, options.panels, options.learn, rounds=rounds)
                whole = abduction.nvsa(network, length=options.length).eval()
                if steps is None:
                    networks[name] = whole
                    continue
                traced = prepare(trace(whole, torch.from_numpy(samples[0][0])))
                parameters = {key: value.detach() for key, value in whole.named_parameters()}
                found = steps_of(layers(network, whole, steps.scales()), traced, ends, parameters)
                quantised[name] = calibrate(traced, samples, ends, found)
        megabytes = {name: of.constant_bytes() / 1e6 for name, of in quantised.items()}
        megabytes["FP32"] = 4e-6 * sum(array.size for array in graph.constants.values())
        with progress(f"seed {seed}", len(TASKS) * (len(networks) + len(quantised))) as advance:
            for task, (kind, noise) in TASKS.items():
                puzzles = problems.generate(options.problems, seed + 1, kind)
                given = pictures(puzzles, noise, seed + 3, options.batch)
                for name, network in networks.items():
                    with torch.no_grad():
                        scores = [network(part)[0].numpy() for part in given]
                    solved[task].setdefault(name, []).append(share(scores, puzzles))
                    advance(note=f"{task}, {name}")
                for name, of in quantised.items():
                    scores = [evaluate(of, [part.numpy()])[0] for part in given]
                    solved[task].setdefault(name, []).append(share(scores, puzzles))
                    advance(note=f"{task}, {name}")
                    if options.hardware and not of.format(graph.operators[0]).is_float:
                        found = compare(of, small, given[: options.hardware // options.batch], puzzles)
                        emulated, run, same, equal = (f"{100 * part:.1f} %" for part in found)
                        print(f"  {task}, {name}: emulated {emulated}, on the machine {run}")
                        print(f"    answers alike {same}, all bits of the scores {equal}", flush=True)
        print(f"seed {seed}: {time.perf_counter() - began:.0f} s")
        print_table(solved, megabytes, options.problems)

    print("\nThe paper's (NVSA on the original tasks): FP32, FP16, INT8, mixed, INT4")
    for task, row in PAPER.items():
        print(f"  {task}: {', '.join(map(str, row))}")


def _percent(shares: list[float]) -> str:
    spread = f" ± {100 * statistics.stdev(shares):.1f}" if len(shares) > 1 else ""
    return f"{100 * statistics.mean(shares):.1f}{spread} %"


if __name__ == "__main__":
    main()
