"""Run by test_device_proofs.py in a process of its own, with Triton's interpreter: sets of proofs by kernels."""

import random
from types import SimpleNamespace

import numpy as np
import torch

import derivable as dv
from datalog.test_proof_rounds import DETOUR
from derivable.bridge import torch_rows
from derivable.bridge.torch_columns import Torch
from derivable.datalog.apm import run as machine_run
from derivable.datalog.kernels import device_proofs
from derivable.datalog.kernels.proof_form import ABSENT_COST, ProofForm
from derivable.device.cuda import row_sets

SCOPES = 3


def bit(number):
    return np.uint64(1 << 63 - number % 64).astype(np.int64)


def drawn(rng, form, literals, costs, choice, scope, chance):
    """A tag [lane] of random proofs, some of which are not there."""
    tag = np.zeros(form.lanes, np.int64)
    tag[0] = scope
    for at in range(1, form.lanes, form.width):
        chosen = rng.choice(literals, rng.integers(0, 5), replace=False)
        choices = [choice[x] for x in chosen if choice[x] >= 0]
        if rng.random() < chance or len(set(choices)) < len(choices):
            tag[at] = ABSENT_COST
            continue
        tag[at : at + 2] = costs[scope, chosen].sum(), len(chosen)
        for x in chosen:
            tag[at + 2 + x // 64] |= bit(x)
            if choice[x] >= 0:
                tag[at + 2 + form.words] |= bit(choice[x])
    return tag


def test_folds():
    rng = np.random.default_rng(0)
    with_kernels, without = (SimpleNamespace(has_kernels=is_so, device=torch.device("cpu")) for is_so in (True, False))
    for k, words, choices, groups in ((1, 2, 0, 20), (2, 1, 1, 8)):
        form = ProofForm(k, words, choices)
        literals = rng.choice(64 * words, 7, replace=False)
        costs = np.zeros((SCOPES, 64 * words), np.int64)
        costs[:, literals] = rng.integers(0, 4, (SCOPES, 7))
        choice = np.full(64 * words, -1)
        choice[literals[:5]] = rng.integers(0, 2, 5) if choices else -1
        tied = np.zeros((SCOPES, words), np.int64)
        for x in np.flatnonzero(choice >= 0):
            tied[:, x // 64] |= bit(x)
        which = np.concatenate([np.arange(groups), rng.integers(0, groups, groups)])
        rng.shuffle(which)
        scope = rng.integers(0, SCOPES, groups)[which]
        left, right, known_before = (
            torch.from_numpy(np.array([drawn(rng, form, literals, costs, choice, x, chance) for x in scope]))
            for chance in (0.2, 0.2, 0.8)
        )
        ordered = np.sort(which)
        order, first, group = map(
            torch.from_numpy,
            (np.argsort(which, kind="stable"), np.searchsorted(ordered, np.arange(groups)), ordered),
        )
        lost = torch.zeros(1, dtype=torch.int64)
        # The lower half of the literals is denied by the upper one.
        denying = torch.arange(64 * words).roll(32 * words).expand(SCOPES, -1)
        known = torch.from_numpy(costs), torch.from_numpy(tied), denying, lost
        if choices:
            mine, other = (
                device_proofs.negated(form, of, (*known, left), len(left))[0] for of in (with_kernels, without)
            )
            assert mine.equal(other)
            assert len(mine.unique(dim=0)) > groups
        known = *known, order, first, group
        (before,) = device_proofs.sums(form, without, (*known, known_before), groups)
        assert device_proofs.sums(form, with_kernels, (*known, known_before), groups)[0].equal(before)
        given = *known, before, left, right
        news, losses = [], []
        for arrays in (with_kernels, without):
            news.append(device_proofs.improved(form, arrays, given, groups))
            losses.append(bool(lost))
            lost.zero_()
        assert losses[0] == losses[1]
        for mine, other in zip(*news):
            assert mine.equal(other)
        assert 0 < int(news[0][2].sum()) < groups


def test_programs():
    rng = random.Random(1)
    edges = [(rng.choice([0.5, 0.25]), (rng.randrange(4), rng.randrange(4))) for _ in range(5)]
    closure = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))"
    negation = "rel o(x, y) = e(x, y), not e(y, x)\nrel p(x, y) = o(x, y) or (p(x, z) and o(z, y))"
    given = {"e": edges}
    for text, facts, name in (
        (closure, given, "p"),
        (f"type e(i32, i32)\n{negation}", given, "p"),
        (DETOUR, {}, "way"),
    ):
        program = dv.Program(text)
        on_host, on_device = (program.run(facts, "topkproofsdebug", k=2, device=of) for of in (None, "torch:cpu"))
        assert dict(on_device[name].items()) == dict(on_host[name].items())
        assert ("on the host" in on_device.explain()) == (text == DETOUR)


def kernels():
    arrays = Torch("cpu")
    arrays.has_kernels = True
    return arrays


if __name__ == "__main__":
    torch_rows.FEW, torch_rows.MANY, row_sets.PROGRAMS, row_sets.TILE = 16, 32, 2, 16
    device_proofs.triton_proofs.TILE = 16
    machine_run.arrays_on = lambda device: kernels()
    for test in (test_folds, test_programs):
        test()
        print(test.__name__)
