"""RNA secondary structure: a network sees which bases may pair, and a grammar finds the most probable structure.

    python examples/tasks/rna_folding.py --data FOLDER [--train 800 --epochs 3]

A small network gives each base a distribution over its partners, and none. The program parses the sequences of a
batch: its best parse under `max_product` is the proof that top-1 proofs keep, because no parse uses a fact twice, and
the gradient says which pairs it has. Sequences are those
of ArchiveII of at most 175 bases (`rna/archiveII.csv.gz`), of which 475 are held out, as many as the paper has; without
data, hairpins that are drawn at random. The paper has a transformer that was trained elsewhere, a grammar of 28 rules
and no accuracy. The baseline takes the pairs of which each base is the other's best partner. Test sequences are drawn
from the families of the training sequences, which is easier than a new family.

Reached after learning 600 sequences: F1 82.5% on 100 held-out sequences (79.7% by a network alone). The
symbolic part has 59% of the time of folding them, as our network is small.
"""

from __future__ import annotations

import ast
import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from experiment import INK, RIGHT, Clock, draw_losses, figure, options, report, report_time, save, train

# isort: split

import numpy as np
import torch
from torch import Tensor, nn

import derivable as dv

PROGRAM = """
    type paired(i: i32, j: i32), unpaired(i: i32), position(i: i32), length(n: i32)

    // fold(i, j): positions i to j - 1 have a structure, whose last position is free or closes a stem.
    rel fold(i, i) = position(i)
    rel fold(i, j + 1) = fold(i, j), unpaired(j)
    rel fold(i, j + 1) = fold(i, k), stem(k, j)
    rel stem(i, j) = paired(i, j), fold(i + 1, j)
    rel structure() = length(n), fold(0, n)
"""
PUBLISHED = "no F1 in Lobster's paper, which gives times on 475 sequences of ArchiveII"
DIFFERS = (
    "a grammar of five rules instead of 28, and a convolutional network that is trained here instead of a transformer "
    "that was trained elsewhere; "
)
REAL, DRAWN = "sequences are of ArchiveII, split at random, so that families are shared", "hairpins are drawn here"
ARCHIVE = "rna/archiveII.csv.gz"
BASES = {"A": 0, "C": 1, "G": 2, "U": 3, "T": 3}
CANONICAL = torch.zeros(5, 5, dtype=torch.bool)
for first, second in ("AU", "CG", "GU"):
    CANONICAL[BASES[first], BASES[second]] = CANONICAL[BASES[second], BASES[first]] = True
LOOP = 3  # bases inside the smallest hairpin
NONE = -1e4  # the score of what is impossible
Pairs = set[tuple[int, int]]


class Sequence(NamedTuple):
    bases: np.ndarray
    pairs: Pairs


def read_archive(path: Path, longest: int) -> list[Sequence]:
    with gzip.open(path, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["len"]) <= longest]
    return [
        Sequence(
            np.array([BASES.get(base, 4) for base in row["sequence"].upper()]),
            {(i - 1, j - 1) for i, j in ast.literal_eval(row["base_pairs"])},
        )
        for row in rows
    ]


def drawn(count: int, rng: np.random.Generator) -> list[Sequence]:
    """Chains of hairpins with stems of four to six pairs."""
    made = []
    for _ in range(count):
        bases: list[int] = []
        pairs: Pairs = set()
        for _ in range(rng.integers(1, 4)):
            bases += rng.integers(0, 4, rng.integers(0, 4)).tolist()
            stem = [(1, 2), (2, 1), (0, 3), (3, 0)]
            chosen = [stem[k] for k in rng.integers(0, 4, rng.integers(4, 7))]
            start, loop = len(bases), int(rng.integers(LOOP, 7))
            bases += [left for left, _ in chosen] + rng.integers(0, 4, loop).tolist()
            bases += [right for _, right in chosen[::-1]]
            pairs |= {(start + k, len(bases) - 1 - k) for k in range(len(chosen))}
        made.append(Sequence(np.array(bases), pairs))
    return made


class PairReader(nn.Module):
    """bases [sequence, position] -> logits [sequence, position, partner + 1], the last one for none."""

    def __init__(self, width: int = 48, channels: int = 16):
        super().__init__()
        self.embedding = nn.Embedding(6, width)
        self.context = nn.ModuleList(nn.Conv1d(width, width, 9, padding=4 * d, dilation=d) for d in (1, 2, 4))
        self.left, self.right = nn.Linear(width, channels), nn.Linear(width, channels)
        self.near = nn.ModuleList(nn.Conv2d(channels + 1, channels, 3, padding=1) for _ in range(3))
        self.top, self.free = nn.Linear(channels, 1), nn.Linear(width, 1)

    def forward(self, bases: Tensor) -> Tensor:
        x = self.embedding(bases).mT
        for layer in self.context:
            x = x + torch.relu(layer(x))
        x = x.mT
        left, right = self.left(x), self.right(x)
        products = left[:, :, None] * right[:, None]
        pairs = (products + products.transpose(1, 2)).movedim(-1, 1)
        size = bases.shape[1]
        far = (torch.arange(size)[:, None] - torch.arange(size)).abs() > LOOP
        possible = CANONICAL[bases.clamp(max=4)[:, :, None], bases.clamp(max=4)[:, None]] & far
        for layer in self.near:
            pairs = pairs + torch.relu(layer(torch.cat([pairs, possible[:, None].to(pairs)], 1)))
        scores = self.top(pairs.movedim(1, -1)).squeeze(-1)
        scores = torch.where(possible, (scores + scores.mT) / 2, NONE)
        return torch.cat([scores, self.free(x)], -1)


def padded(sequences: list[Sequence]) -> tuple[Tensor, Tensor]:
    """(bases [sequence, position], partner of each position), where 5 and -1 stand for what is beyond the end."""
    longest = max(len(sequence.bases) for sequence in sequences)
    bases, partners = torch.full((len(sequences), longest), 5), torch.full((len(sequences), longest), -1)
    for row, (own, pairs) in enumerate(sequences):
        bases[row, : len(own)] = torch.from_numpy(own)
        partners[row, : len(own)] = longest
        for i, j in pairs:
            partners[row, i], partners[row, j] = j, i
    return bases, partners


def batches(sequences: list[Sequence], size: int, epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Sequences of nearly one length together, in random order."""
    ordered = sorted(sequences, key=lambda sequence: len(sequence.bases))
    for _ in range(epochs):
        for start in (torch.randperm(-(-len(ordered) // size)) * size).tolist():
            yield padded(ordered[start : start + size])


def reading_loss(logits: Tensor, partners: Tensor) -> Tensor:
    """The mean negative log probability of each base's partner, in nats."""
    # A pair that the network excludes, as of two bases that never bind, would cost without end.
    possible = logits.gather(-1, partners.clamp(min=0)[..., None]).squeeze(-1) > NONE / 2
    wanted = torch.where(possible, partners, -1)
    return nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-1)


class Grammar:
    """Finds the most probable structures of sequences; a batch is one run."""

    def __init__(self):
        self.layer = dv.nn.Logic(
            PROGRAM,
            inputs={"paired": dv.varying(), "unpaired": dv.varying()},
            outputs={"structure": ()},
            provenance="max_product",
        )

    def __call__(self, distributions: list[Tensor], least: float = 1e-2) -> tuple[Tensor, list[Pairs]]:
        """(the probability [sequence] of the best structure, its pairs), from p [position, partner + 1] of each.

        least  the probability from which on a choice counts
        """
        paired, unpaired = [], []
        for p in distributions:
            size = len(p)
            both = torch.triu(p[:, :size] * p[:, :size].mT, LOOP + 1)  # a pair is chosen by both
            places = (both > least**2).nonzero()
            paired.append(([*map(tuple, places.tolist())], both[tuple(places.T)].double().requires_grad_()))
            unpaired.append(([(k,) for k in range(size)], p[:, size].clamp(min=least).double()))
        certain = {
            "position": [[(k,) for k in range(len(p) + 1)] for p in distributions],
            "length": [[(len(p),)] for p in distributions],
        }
        best = self.layer(paired=paired, unpaired=unpaired, certain=certain)
        # A product has a derivative where its factors are: the pairs of the best parse.
        gradients = torch.autograd.grad(best.log().sum(), [q for _, q in paired])
        chosen = [
            {places[k] for k in part.nonzero().flatten().tolist()} for (places, _), part in zip(paired, gradients)
        ]
        return best.detach(), chosen


def f1(found: Pairs, wanted: Pairs) -> float:
    return 2 * len(found & wanted) / (len(found) + len(wanted)) if found or wanted else 1.0


def mutual(p: Tensor) -> Pairs:
    """The pairs of which each base is the other's best partner."""
    best = p.argmax(-1).tolist()
    return {(i, j) for i, j in enumerate(best) if i < j < len(best) and best[j] == i}


def main(arguments: list[str] | None = None) -> None:
    sizes = {"train": 800, "test": 475, "epochs": 3, "longest": 175, "rate": 2e-3}
    wanted = options(__doc__ or "", arguments, "rna", files=[ARCHIVE], **sizes)
    torch.manual_seed(wanted.seed)
    rng = np.random.default_rng(wanted.seed)
    data = wanted.data
    sequences = read_archive(data / ARCHIVE, wanted.longest) if data else drawn(wanted.train + wanted.test, rng)
    order = rng.permutation(len(sequences))[: wanted.train + wanted.test]
    test = [sequences[k] for k in order[: wanted.test]]
    learnt = [sequences[k] for k in order[wanted.test :]]

    network = PairReader()
    training = train(network, reading_loss, batches(learnt, 8, wanted.epochs), wanted.rate)
    print(f"{len(learnt):,} sequences learnt in {training.seconds:.0f} s")

    grammar, clock = Grammar(), Clock()
    distributions: list[Tensor] = []
    folded: list[Pairs] = []
    test.sort(key=lambda sequence: len(sequence.bases))

    def read(part: list[Sequence]) -> list[Tensor]:
        with torch.no_grad():
            p = network(padded(part)[0]).softmax(-1)
        sizes = [len(sequence.bases) for sequence in part]
        return [torch.cat([row[:n, :n], row[:n, -1:]], 1) for row, n in zip(p, sizes)]

    grammar(read(test[:16]))  # kernels are loaded now
    with clock.all():
        for start in range(0, len(test), 16):
            distributions += read(test[start : start + 16])
            with clock.symbolic():
                folded += grammar(distributions[start:])[1]
    parsed = [f1(pairs, sequence.pairs) for sequence, pairs in zip(test, folded)]
    alone = [f1(mutual(p), sequence.pairs) for sequence, p in zip(test, distributions)]
    differs = DIFFERS + (REAL if data else DRAWN)
    report(float(np.mean(parsed)), float(np.mean(alone)), PUBLISHED, differs, "F1 of base pairs")
    lengths = [len(sequence.bases) for sequence in test]
    report_time(f"{len(test)} sequences of {min(lengths)} to {max(lengths)} bases", clock)

    made, (losses, axes) = figure(2)
    draw_losses(losses, training.losses)
    sequence, pairs = test[-1], folded[-1]
    for which, colour, order in ((sequence.pairs, INK, 1), (pairs, RIGHT, -1)):
        axes.scatter(*np.array([*which]).reshape(-1, 2)[:, ::order].T, s=6, color=colour)
    axes.set_aspect("equal")
    axes.set_xlabel("pairs of the longest sequence: black known, green found")
    save(made, wanted.picture)


if __name__ == "__main__":
    main()
