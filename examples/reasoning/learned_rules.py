"""After Learn-VRF (Hersche et al., 2024): the rules are learned, as products and quotients of what stands around."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import derivable as dv
from derivable.core.progress import progress

from .abduction import LEAST, Reasoner
from .problems import ATTRIBUTES, NUM_PANELS, Problems
from .reader import Reader

NUM_TERMS = 3  # bound, and as many unbound


class RuleFormulas(nn.Module):
    """What all attributes share: a rule is a choice, for each of six terms, among five operands.

    The third panel of a row is x1 + x2 + x3 - x4 - x5 - x6, where each x is the first or the second panel of its row,
    or of the row above (of the first row: the last), or zero. In vectors: three are bound, three unbound.
    """

    def __init__(self, num_rules: int = 10, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.choices = nn.Parameter(torch.randn(num_rules, 2 * NUM_TERMS, 5, generator=generator))
        self.prior = nn.Parameter(torch.zeros(num_rules))


class LearnedAbduction(nn.Module):
    """One attribute: masses [batch, 16, value] -> log scores [batch, 8], P(rule) [batch, rule]."""

    def __init__(self, formulas: RuleFormulas, size: int, blocks: int = 4, length: int = 256, seed: int = 0):
        super().__init__()
        self.formulas, self.blocks, self.length = formulas, blocks, length
        self.register_buffer("codes", dv.vsa.codebook(size, blocks, length, kind="cyclic", generator=seed))
        self.register_buffer("zero", dv.vsa.identity(blocks, length))

    def predictions(self, panels: Tensor) -> Tensor:
        """panels [batch, 8, block, length] -> the third panels of all rows, by each rule [batch, 3, rule, *vector]."""
        a, b = panels[:, 0::3], panels[:, 1::3]
        zero = torch.zeros_like(a) + self.zero
        operands = torch.stack((a, b, a.roll(1, 1), b.roll(1, 1), zero), 2).flatten(-2)
        chosen = torch.softmax(self.formulas.choices, -1).flatten(0, 1)
        terms = torch.matmul(chosen, operands).unflatten(-1, (self.blocks, self.length))
        terms = terms.unflatten(2, (-1, 2 * NUM_TERMS))
        bound, unbound = terms[:, :, :, 0], terms[:, :, :, NUM_TERMS]
        for term in range(1, NUM_TERMS):
            bound = dv.vsa.bind(bound, terms[:, :, :, term])
            unbound = dv.vsa.bind(unbound, terms[:, :, :, NUM_TERMS + term])
        return dv.vsa.unbind(bound, unbound)

    def forward(self, mass: Tensor) -> tuple[Tensor, Tensor]:
        panels = dv.vsa.mass_to_vector(mass, self.codes)
        predicted = self.predictions(panels[:, :NUM_PANELS])
        known = panels[:, 2:NUM_PANELS:3].unsqueeze(2)
        evidence = dv.vsa.match_probability(predicted[:, :2], known).clamp(LEAST, 1).log().sum(1)
        weights = torch.softmax(evidence + torch.log_softmax(self.formulas.prior, -1), -1)
        missing = dv.vsa.bundle(predicted[:, 2], weights=weights)
        answers = dv.vsa.match_probability(missing.unsqueeze(1), panels[:, NUM_PANELS:])
        return answers.clamp(1e-6, 1).log(), weights


def lvrf(reader: nn.Module | None = None, formulas: RuleFormulas | None = None, blocks: int = 4, length: int = 256):
    """After Learn-VRF: a reasoner whose rules `learn` has found."""
    formulas = formulas or RuleFormulas()
    return Reasoner(
        reader or Reader(),
        [LearnedAbduction(formulas, size, blocks, length, seed=k) for k, size in enumerate(ATTRIBUTES.values())],
    )


def learn(problems: Problems, num_rules: int = 10, steps: int = 400, batch: int = 64, seed: int = 0) -> RuleFormulas:
    """Rules that make the third panels of all rows most probable, from attributes alone: no rule is named.

    The likelihood is that of a mixture: one rule for an attribute of a problem, good for all of its three rows.
    """
    torch.manual_seed(seed)
    formulas = RuleFormulas(num_rules, seed)
    # Short codes learn the same formulas as long ones, sooner.
    abductions = [LearnedAbduction(formulas, size, 1, 32, seed=k) for k, size in enumerate(ATTRIBUTES.values())]
    optimiser = torch.optim.Adam(formulas.parameters(), lr=0.1)
    with progress("learning rules", steps) as advance:
        for _ in range(steps):
            rows = torch.randint(len(problems.right), (batch,))
            loss = torch.zeros(())
            for k, (abduction, size) in enumerate(zip(abductions, ATTRIBUTES.values())):
                values = problems.values[rows, :, k]
                panels = dv.vsa.mass_to_vector(nn.functional.one_hot(values, size).float(), abduction.codes)  # type: ignore[arg-type]
                predicted = abduction.predictions(panels[:, :NUM_PANELS])
                matched = dv.vsa.match_probability(predicted, panels[:, 2::3].unsqueeze(2)).clamp(1e-4, 1)
                likelihood = matched.log().sum(1) + torch.log_softmax(formulas.prior, -1)
                loss = loss - torch.logsumexp(likelihood, -1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            advance(note=f"loss {loss.item():.3f}")
    return formulas
