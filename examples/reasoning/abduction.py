"""Finding the rules of a problem and carrying them out: on block codes as NVSA does, on probabilities as PrAE does.

What differs is the algebra of uncertain numbers: how they are held, added, subtracted, compared and mixed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import derivable as dv

from .problems import ATTRIBUTES, NUM_PANELS, STEPS
from .reader import Reader, masses

LEAST = 1e-4  # of a probability: a rule that does not fit stays a little probable


class BlockCodes(nn.Module):
    """Numbers as cyclic block codes [*batch, block, length]: binding adds, unbinding subtracts."""

    def __init__(self, size: int, blocks: int, length: int, seed: int):
        super().__init__()
        self.register_buffer("codes", dv.vsa.codebook(size, blocks, length, kind="cyclic", generator=seed))

    def held(self, mass: Tensor) -> Tensor:
        return dv.vsa.mass_to_vector(mass, self.codes)

    def plus(self, a: Tensor, b: Tensor) -> Tensor:
        return dv.vsa.bind(a, b)

    def minus(self, a: Tensor, b: Tensor) -> Tensor:
        return dv.vsa.unbind(a, b)

    def moved(self, a: Tensor, step: int) -> Tensor:
        code = self.codes[abs(step)]  # type: ignore[index]
        return dv.vsa.bind(a, code) if step > 0 else dv.vsa.unbind(a, code)

    def equal(self, a: Tensor, b: Tensor) -> Tensor:
        return dv.vsa.match_probability(a, b)

    def mixed(self, numbers: Tensor, weights: Tensor) -> Tensor:
        return dv.vsa.bundle(numbers, weights=weights)


class Probabilities(nn.Module):
    """Numbers as probability masses [*batch, value]; what is added beyond the values is lost."""

    def __init__(self, size: int):
        super().__init__()
        i, j, k = torch.meshgrid(*[torch.arange(size)] * 3, indexing="ij")
        self.register_buffer("sums", (i + j == k).float().reshape(size * size, size))
        self.register_buffer("differences", (i - j == k).float().reshape(size * size, size))
        row, column = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        self.register_buffer("moves", torch.stack([(column - row == step).float() for step in STEPS]))

    def held(self, mass: Tensor) -> Tensor:
        return mass

    def plus(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul((a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2), self.sums)  # type: ignore[arg-type]

    def minus(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul((a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2), self.differences)  # type: ignore[arg-type]

    def moved(self, a: Tensor, step: int) -> Tensor:
        return torch.matmul(a, self.moves[STEPS.index(step)])  # type: ignore[index]

    def equal(self, a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(-1)

    def mixed(self, numbers: Tensor, weights: Tensor) -> Tensor:
        return torch.matmul(weights.unsqueeze(-2), numbers).squeeze(-2)


class Abduction(nn.Module):
    """One attribute: masses [batch, 16, value] -> log scores of the answers [batch, 8], P(rule) [batch, rule].

    Each rule is as probable as what is given fits it, each predicts the missing panel, and the predictions are mixed.
    """

    def __init__(self, algebra: BlockCodes | Probabilities):
        super().__init__()
        self.algebra = algebra

    def forward(self, mass: Tensor) -> tuple[Tensor, Tensor]:
        of = self.algebra
        panels = of.held(mass)
        a, b, c = panels[:, 0:NUM_PANELS:3], panels[:, 1:NUM_PANELS:3], panels[:, 2:NUM_PANELS:3]
        upper_a, upper_b, last_a, last_b = a[:, :2], b[:, :2], a[:, 2], b[:, 2]

        def fit(*probabilities: Tensor) -> Tensor:
            return torch.cat(probabilities, -1).clamp(LEAST, 1).log().sum(-1)

        evidence = [fit(of.equal(a, b), of.equal(upper_b, c))]
        predicted = [last_b]
        for step in STEPS:
            next_to_b = of.moved(b, step)
            evidence.append(fit(of.equal(of.moved(a, step), b), of.equal(next_to_b[:, :2], c)))
            predicted.append(next_to_b[:, 2])
        evidence += [fit(of.equal(operation(upper_a, upper_b), c)) for operation in (of.plus, of.minus)]
        predicted += [of.plus(last_a, last_b), of.minus(last_a, last_b)]
        lower_a, lower_b, turned = a[:, 1:], b[:, 1:], c[:, 1:]
        evidence.append(fit(of.equal(lower_a, upper_b), of.equal(lower_b, c), of.equal(turned, a[:, :1])))
        evidence.append(fit(of.equal(lower_a, c), of.equal(lower_b, upper_a), of.equal(turned, b[:, :1])))
        predicted += [a[:, 1], b[:, 1]]

        # Logarithms, because products of many small numbers would be nothing in a few bits.
        weights = torch.softmax(torch.stack(evidence, -1), -1)
        missing = of.mixed(torch.stack(predicted, 1), weights)
        return of.equal(missing.unsqueeze(1), panels[:, NUM_PANELS:]).clamp(1e-6, 1).log(), weights


class Reasoner(nn.Module):
    """A reader, and for each attribute an abduction: panels [batch, 16, 1, 80, 80] -> log scores [batch, 8], and
    P(rule) [batch, attribute, rule]."""

    def __init__(self, reader: nn.Module, abductions: list[nn.Module]):
        super().__init__()
        self.reader = reader
        self.abductions = nn.ModuleList(abductions)

    def forward(self, panels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.reader(panels.flatten(0, 1)).unflatten(0, (-1, 2 * NUM_PANELS))
        return self.reason(masses(logits))

    def reason(self, found: list[Tensor]) -> tuple[Tensor, Tensor]:
        """From masses [batch, 16, value] of each attribute."""
        results = [abduction(mass) for abduction, mass in zip(self.abductions, found)]
        scores = torch.stack([result[0] for result in results], 0).sum(0)
        return scores, torch.stack([result[1] for result in results], 1)


def nvsa(reader: nn.Module | None = None, blocks: int = 4, length: int = 256, seed: int = 0) -> Reasoner:
    """After NVSA (Hersche et al., 2023): abduction and execution of rules on block codes."""
    algebras = [BlockCodes(size, blocks, length, seed + k) for k, size in enumerate(ATTRIBUTES.values())]
    return Reasoner(reader or Reader(), [Abduction(algebra) for algebra in algebras])


def prae(reader: nn.Module | None = None) -> Reasoner:
    """After PrAE (Zhang et al., 2021): abduction and execution of rules on probabilities."""
    return Reasoner(reader or Reader(), [Abduction(Probabilities(size)) for size in ATTRIBUTES.values()])
