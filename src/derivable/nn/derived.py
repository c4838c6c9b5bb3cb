"""Probabilities of random facts from those of derived tuples, with gradients; see `tags.choice_facts`."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from derivable.datalog.tags.choice_facts import Derived


class DerivedFacts(torch.nn.Module):
    """p [*batch, row] -> the probabilities [*batch, fact] of the facts of one aggregate, or both in logarithms.

    Which rows are the top ones has no derivative: gradients go through the tuples that are chosen.
    """

    def __init__(self, facts: Derived):
        super().__init__()
        self.kind, self.k = facts.kind, facts.k
        sizes = np.diff(facts.offsets)
        self.widest = int(sizes.max(initial=0))
        inside = np.arange(self.widest) < sizes[:, None]
        # [group, place in the group]; what is outside reads one more row, which counts nothing.
        rows = np.where(inside, facts.offsets[:-1, None] + np.arange(self.widest), facts.offsets[-1])
        self.register_buffer("rows", torch.as_tensor(rows), persistent=False)
        there = inside if not self.kind.startswith("rank") else inside[:, :, None] & inside[:, None, :]
        self.register_buffer("there", torch.as_tensor(np.flatnonzero(there)), persistent=False)
        self.register_buffer("variables", torch.as_tensor(facts.variables), persistent=False)

    def forward(self, values: torch.Tensor, in_logs: bool) -> torch.Tensor:
        rows, there = cast(torch.Tensor, self.rows), cast(torch.Tensor, self.there)
        outside = torch.inf if self.kind == "rank_up" else -torch.inf
        if self.kind == "normalize" and not in_logs:
            outside = 0.0
        if self.kind == "softmax" and in_logs:
            values = values.exp()
        p = torch.cat([values, torch.full_like(values[..., :1], outside)], -1)[..., rows]
        if self.kind == "softmax":
            found = torch.log_softmax(p, -1) if in_logs else torch.softmax(p, -1)
        elif self.kind == "normalize":
            if in_logs:
                total = torch.logsumexp(p, -1, keepdim=True)
                found = torch.where(torch.isinf(total), -torch.inf, p - torch.where(torch.isinf(total), 0.0, total))
            else:
                total = p.sum(-1, keepdim=True)
                found = p / torch.where(total > 0, total, 1.0)
        else:
            order = torch.argsort(p.detach(), dim=-1, descending=self.kind != "rank_up", stable=True)
            place = torch.argsort(order, dim=-1, stable=True)
            if self.kind == "top":
                found = (place < self.k).to(p)
            else:
                places = torch.arange(self.widest, device=p.device)
                found = (place[..., None] == places).to(p).flatten(-2)
            found = found.log() if in_logs else found
        return found.flatten(-2).index_select(-1, there)
