"""A network learns to see, and three reasoners solve Raven-like problems: which of eight panels completes three rows?

    pip install "derivable[demo]" && python examples/raven.py

One small CNN reads the attributes of a panel. After NVSA, rules are found and carried out on block codes; after PrAE,
on probabilities; after Learn-VRF, the rules themselves are learned. `--inputs 2` also trains a reader that sees two
panels at once, after MIMONet. About a quarter of an hour on two cores; `--panels 2000 --epochs 6` takes two minutes.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor

from derivable.core.lazy import optional_module
from reasoning import abduction, learned_rules, problems, reader, superposition
from reasoning.picture import draw_result

NOISE = (0.05, 0.15, 0.3)  # standard deviations: easy, noisy, hard


def read(network: torch.nn.Module, puzzles: problems.Problems, noise: float, seed: int) -> Tensor:
    """The logits [problem, 16, 30] of all panels, in pieces that fit into caches."""
    with torch.no_grad():
        pieces = [
            network(problems.draw(part, seed + number, noise).flatten(0, 1)).unflatten(0, (-1, 16))
            for number, part in enumerate(puzzles.panels.split(16))
        ]
    return torch.cat(pieces)


def solved(reasoner: abduction.Reasoner, found: list[Tensor], puzzles: problems.Problems) -> float:
    with torch.no_grad():
        scores, _ = reasoner.reason(found)
    return (scores.argmax(-1) == puzzles.right).float().mean().item()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--panels", type=int, default=20_000, help="panels to learn from")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--problems", type=int, default=500, help="problems to solve, of each kind")
    parser.add_argument("--steps", type=int, default=300, help="steps to learn rules in")
    parser.add_argument("--length", type=int, default=256, help="of the four blocks of a code")
    parser.add_argument("--inputs", type=int, default=0, help="also train a reader of this number of panels at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", default="raven.png")
    options = parser.parse_args(arguments)
    optional_module("matplotlib.figure", "matplotlib", "demo")  # before the work, not after it

    seed = options.seed
    sizes = torch.tensor(list(problems.ATTRIBUTES.values()))
    generator = torch.Generator().manual_seed(seed)
    values = (torch.rand(options.panels, len(sizes), generator=generator) * sizes).long()
    puzzles = {kind: problems.generate(options.problems, seed + 1, kind) for kind in ("raven", "i-raven")}

    began = time.perf_counter()
    formulas = learned_rules.learn(problems.generate(1000, seed + 2), steps=options.steps, seed=seed)
    print(f"rules learned in {time.perf_counter() - began:.0f} s, from attributes alone")
    network = reader.Reader()
    reasoners = {
        "NVSA": abduction.nvsa(network, length=options.length),
        "PrAE": abduction.prae(network),
        "LVRF": learned_rules.lvrf(network, formulas, length=options.length),
    }
    exact = [
        torch.nn.functional.one_hot(puzzles["i-raven"].panels[..., k], size).float() for k, size in enumerate(sizes)
    ]
    rows = "  ".join(f"{name} {solved(model, exact, puzzles['i-raven']):6.1%}" for name, model in reasoners.items())
    print(f"{'attributes given':28}{rows}")

    began = time.perf_counter()
    losses = reader.train(network, values, options.epochs, seed)
    print(f"reader trained in {time.perf_counter() - began:.0f} s on {options.panels:,} panels")
    accuracy: dict[str, dict[str, float]] = {}
    for kind, of_kind in puzzles.items():
        for noise in NOISE:
            found = reader.masses(read(network, of_kind, noise, seed + 3))
            correct = [part.argmax(-1) == of_kind.panels[..., k] for k, part in enumerate(found)]
            all_read = torch.stack(correct, -1).all(-1).float().mean().item()
            results = {name: solved(model, found, of_kind) for name, model in reasoners.items()}
            row = "  ".join(f"{name} {share:6.1%}" for name, share in results.items())
            print(f"{kind + f', noise {noise:g}':28}{row}  panels read whole {all_read:6.1%}")
            accuracy[f"{kind}\nnoise {noise:g}"] = results

    if options.inputs:
        began = time.perf_counter()
        together = superposition.mimonet(options.inputs, seed=seed)
        superposition.train_superposed(together, values, options.epochs, seed)
        held_out = puzzles["raven"].panels.flatten(0, 1)
        held_out = held_out[: len(held_out) // options.inputs * options.inputs]
        pictures = problems.draw(held_out, seed + 4).unflatten(0, (-1, options.inputs))
        with torch.no_grad():
            logits = torch.cat([together(part) for part in pictures.split(64)]).flatten(0, 1)
        correct = [part.argmax(-1) == held_out[:, k] for k, part in enumerate(reader.parts(logits))]
        right = [each.float().mean().item() for each in correct]
        each = ", ".join(f"{name} {share:.1%}" for name, share in zip(problems.ATTRIBUTES, right))
        print(f"{options.inputs} panels at once, trained in {time.perf_counter() - began:.0f} s: {each} read right")

    draw_result(options.picture, reasoners["NVSA"], puzzles["i-raven"], losses, accuracy, seed + 3)
    print(f"picture: {options.picture}")


if __name__ == "__main__":
    main()
