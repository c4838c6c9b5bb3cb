"""Sets of at most k proofs as rows of words, for devices: operations of torch on tensors [row, lane] of int64.

The lanes of a tag are its scope, and for each of k proofs, best first: the cost, the number of literals, words of
literals, words of choices. Literals and choices have numbers within their scope: scope s + 1 has those of sample s and
those of all samples, scope 0 these alone. The first literals are the highest bits, so that words compare as the
proofs do. A proof that is not there costs `ABSENT_COST`, and has no bits.

Costs are those of `kernels.proofs`, and so is the order of proofs. A fact of no choice and its denial are the values of
one, so two proofs contradict each other if they have a choice in common, and not the value. No literal denies a value
of another choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from derivable.datalog.kernels import triton_proofs
from derivable.datalog.kernels.proof_form import ABSENT_COST, CHOICE, ProofForm

Column = torch.Tensor
# Literals that are looked at together, where there are no kernels.
PIECE = 1 << 26
# Products of which one lane goes through at most, where there are many.
LONG, LOOKED_AT = 1 << 10, 1 << 16
# Of a literal that denies another one: its number, and where that of its choice begins.
_LITERAL, _CHOICE = (1 << CHOICE) - 1, CHOICE
# What makes words compare as numbers with a sign: the proof that has the first literal comes first.
_FLIPPED = (1 << 63) - 1


# Functions of nodes: (form, library, columns, number of rows) -> columns. What reads columns reads `known` first: the
# costs [scope, literal], the bits of literals in choices [scope, word], the literals that deny [scope, literal], see
# `ProofLanes.known`, and `lost` [1], which `improved` sets.


def one(form: ProofForm, arrays: Any, columns: Sequence[Column], count: int) -> tuple[Column]:
    """The set of the proof that needs nothing."""
    return (_one(form, arrays.device).expand(count, form.lanes),)


def nothing(form: ProofForm, arrays: Any, columns: Sequence[Column], count: int) -> tuple[Column]:
    """The set without a proof."""
    return (_nothing(form, arrays.device).expand(count, form.lanes),)


def times(form: ProofForm, arrays: Any, columns: Sequence[Column], count: int) -> tuple[Column]:
    """The k best proofs of products; reads (*known, left, right)."""
    costs, tied, _, _, left, right = columns
    rows = torch.arange(count, device=left.device)
    return (_added(form, arrays, costs, tied, rows, rows, rows, None, (left, right), count)[0],)


def possible(form: ProofForm, arrays: Any, columns: Sequence[Column], count: int) -> tuple[Column]:
    """Whether products, or sets, have a proof; reads (*known, left, right) or (*known, set)."""
    costs, tied, _, _, *factors = columns
    return ((_candidates(form, factors, costs, tied)[1] < ABSENT_COST).any(1),)


def sums(form: ProofForm, arrays: Any, columns: Sequence[Column], count: int) -> tuple[Column]:
    """The k best proofs of the products of each group; reads (*known, order, first, group, left, right)."""
    costs, tied, _, _, order, first, group, *factors = columns
    return (_added(form, arrays, costs, tied, order, first, group, None, factors, count)[0],)


def improved(form: ProofForm, arrays: Any, columns: Sequence[Column], count: int) -> tuple[Column, ...]:
    """What groups have with products added to what they had: the k best proofs, those of them that are new, and
    whether there are such; reads (*known, order, first, group, before, left, right).

    Sets `lost` where two proofs of a group that had k leave for one that both contain: what it had no room for in an
    earlier round may be among the best again.
    """
    costs, tied, _, lost, order, first, group, before, *factors = columns
    return _added(form, arrays, costs, tied, order, first, group, before, factors, count, lost)


def negated(form: ProofForm, arrays: Any, columns: Sequence[Column], count: int) -> tuple[Column]:
    """The k best proofs that none of the proofs of a set holds; reads (*known, set).

    The sets are multiplied by each proof in turn, the best first, as the sum of the literals that deny its literals;
    the k best products stay.
    """
    costs, tied, opposite, _, of = columns
    proofs = of[:, 1:].view(count, form.k, form.width)
    sets = _one(form, of.device).repeat(count, 1)
    sets[:, 0] = of[:, 0]
    for rank in range(form.k):
        proof = proofs[:, rank]
        words = proof[:, 2 : 2 + form.words].split(_piece(form))
        parts = [_unpacked(part).nonzero() for part in words]
        number = torch.cat([part[:, 1] for part in parts])
        rows = torch.cat([part[:, 0] + k * _piece(form) for k, part in enumerate(parts)])
        denied = _denials(form, costs, opposite, of.index_select(0, rows)[:, 0], number)
        counts = torch.bincount(rows, minlength=count)
        known, first = sets.index_select(0, rows), counts.cumsum(0) - counts
        after = _added(form, arrays, costs, tied, range(len(rows)), first, rows, None, (known, denied), count)[0]
        sets = torch.where((proof[:, 0] < ABSENT_COST)[:, None], after, sets)
    return (sets,)


def _denials(form: ProofForm, costs: Column, opposite: Column, scope: Column, number: Column) -> Column:
    """The sets of the proofs that are one literal, that which denies the literal of a number in a scope [row]."""
    sets = _nothing(form, costs.device).repeat(len(scope), 1)
    packed, rows = opposite[scope, number], torch.arange(len(scope), device=costs.device)
    other, choice = packed & _LITERAL, packed >> _CHOICE
    sets[:, 0], sets[:, 1], sets[:, 2] = scope, costs[scope, other], 1
    for bit, start in ((other, 3), (choice, 3 + form.words)):
        sets[rows, start + bit // 64] = 1 << (63 - bit % 64)
    return sets


def _added(
    form: ProofForm,
    arrays: Any,
    costs: Column,
    tied: Column,
    order: Column | range,
    first: Column,
    group: Column,
    before: Column | None,
    factors: Sequence[Column],
    count: int,
    lost: Column | None = None,
) -> tuple[Column, Column, Column]:
    """order [position] the rows of the products, group by group; first [group] the position where each begins, group
    [position] its number; before [group] or None; factors, one or two [row]"""
    factors = [factor.reshape(-1, form.lanes) for factor in factors]
    has_kernel = arrays.has_kernels and form.k <= triton_proofs.MOST and form.width - 2 <= triton_proofs.MOST_WORDS
    if has_kernel and count and not _has_long(first, len(factors[0])):
        folded = triton_proofs.fold(form, costs, tied, lost, order, first, before, factors, count)
        return folded[0], folded[1], folded[2]
    if not isinstance(order, range):
        factors = [factor.index_select(0, order) for factor in factors]
    scope, *parts = _candidates(form, factors, costs, tied)
    number = parts[0].shape[1]
    groups = group.repeat_interleave(number)
    cost, size, bits = (part.reshape(-1, *part.shape[2:]) for part in parts)
    scopes = torch.zeros(count, dtype=torch.int64, device=costs.device)
    scopes = scopes.scatter_reduce(0, group, scope, "amax")
    old = 0
    if before is not None:
        earlier, old = before[:, 1:].view(count, form.k, form.width), count * form.k
        groups = torch.cat([torch.arange(count, device=costs.device).repeat_interleave(form.k), groups])
        cost = torch.cat([earlier[..., 0].reshape(-1), cost])
        size = torch.cat([earlier[..., 1].reshape(-1), size])
        bits = torch.cat([earlier[..., 2:].reshape(old, form.width - 2), bits])
        scopes = torch.maximum(scopes, before[:, 0])
    folded = _best(form, scopes, groups, cost, size, bits, old, count)
    if before is not None and lost is not None and form.k > 1:
        lost += _has_lost(form, before, folded[0])
    return folded


def _has_lost(form: ProofForm, before: Column, after: Column) -> Column:
    old, new = (x[:, 1:].view(len(x), form.k, form.width) for x in (before, after))
    old_words, new_words = (x[..., 2 : 2 + form.words] for x in (old[:, :, None], new[:, None]))
    contains = ((new_words & ~old_words) == 0).all(3) & (new_words != old_words).any(3)
    contains &= new[:, None, :, 0] < ABSENT_COST
    is_full = (old[..., 0] < ABSENT_COST).all(1)
    return (is_full & (contains.any(2).sum(1) > 1)).any()


def _has_long(first: Column, total: int) -> bool:
    """Whether a group has more products than one lane is to go through; the host waits where all are many."""
    if total <= LOOKED_AT:
        return False
    ends = torch.cat([first[1:], first.new_full((1,), total)])
    return int((ends - first).max()) > LONG


def _candidates(form: ProofForm, factors: Sequence[Column], costs: Column, tied: Column) -> tuple[Column, ...]:
    """(scope [row], cost [row, proof], number of literals [row, proof], bits [row, proof, word]) of products, or of
    one factor."""
    first, *others = factors
    x = first[:, 1:].view(-1, form.k, form.width)
    if not others:
        return first[:, 0], x[..., 0], x[..., 1], x[..., 2:]
    scope = torch.maximum(first[:, 0], others[0][:, 0])
    y = others[0][:, 1:].view(-1, form.k, form.width)
    x, y = x[:, :, None], y[:, None]
    shape = len(first), form.k * form.k
    both = (x[..., 2:] & y[..., 2:]).reshape(-1, form.width - 2)
    cost, size = (x[..., 0] + y[..., 0]).reshape(-1), (x[..., 1] + y[..., 1]).reshape(-1)
    for part in both.any(1).nonzero().squeeze(1).split(_piece(form)):
        at, common = scope[part // shape[1]], both[part]
        literals = _unpacked(common[:, : form.words])
        cost[part] -= (literals * costs[at]).sum(1)
        size[part] -= literals.sum(1)
        if form.choices:
            same = _unpacked(common[:, : form.words] & tied[at]).sum(1)
            cost[part[_unpacked(common[:, form.words :]).sum(1) > same]] = ABSENT_COST
    return scope, cost.view(shape), size.view(shape), (x[..., 2:] | y[..., 2:]).view(*shape, form.width - 2)


def _best(
    form: ProofForm, scopes: Column, groups: Column, cost: Column, size: Column, bits: Column, old: int, count: int
) -> tuple[Column, Column, Column]:
    """The k best of the proofs of each group, none of which contains another one. The first `old` proofs are those
    that groups had."""
    number, device = len(cost), cost.device
    after, news = (_nothing(form, device).expand(count, form.lanes).clone() for _ in range(2))
    after[:, 0] = news[:, 0] = scopes
    changed = torch.zeros(count, dtype=torch.bool, device=device)
    if not number:
        return after, news, changed
    words, numbers = bits[:, : form.words], torch.arange(number, device=device)
    keys = [cost, size, *(words ^ _FLIPPED).unbind(1)]
    is_open = cost < ABSENT_COST
    for rank in range(form.k):
        is_best = is_open
        for key in keys:
            is_best = is_best & (_least(key, is_best, groups, count, _FLIPPED).index_select(0, groups) == key)
        chosen = _least(numbers, is_best, groups, count, number)
        there, chosen = chosen < number, chosen.clamp(max=number - 1)
        lanes = torch.cat([part.index_select(0, chosen) for part in (cost[:, None], size[:, None], bits)], 1)
        is_new = there & (chosen >= old)
        at = slice(1 + rank * form.width, 1 + (rank + 1) * form.width)
        after[:, at] = torch.where(there[:, None], lanes, after[:, at])
        news[:, at] = torch.where(is_new[:, None], lanes, news[:, at])
        changed |= is_new
        if rank + 1 < form.k:
            chosen_words = lanes[:, 2 : 2 + form.words].index_select(0, groups)
            is_within = ((chosen_words & ~words) == 0).all(1) & there.index_select(0, groups)
            is_open = is_open & ~is_within
    return after, news, changed


def _least(key: Column, mask: Column, groups: Column, count: int, most: int) -> Column:
    """The least key of each group where a mask holds."""
    least = torch.full((count,), most, dtype=torch.int64, device=key.device)
    return least.scatter_reduce(0, groups, torch.where(mask, key, most), "amin")


def _piece(form: ProofForm) -> int:
    """Proofs whose literals are looked at together."""
    return max(1, PIECE // (64 * max(form.words, form.choices)))


def _unpacked(words: Column) -> Column:
    """[row, word] -> [row, bit], the highest bit of a word first."""
    shifts = torch.arange(63, -1, -1, device=words.device)
    return ((words[:, :, None] >> shifts) & 1).reshape(len(words), 64 * words.shape[1])


@lru_cache(64)
def _nothing(form: ProofForm, device: Any) -> Column:
    """The set without a proof."""
    return torch.tensor([0, *[ABSENT_COST, *[0] * (form.width - 1)] * form.k], device=device)


@lru_cache(64)
def _one(form: ProofForm, device: Any) -> Column:
    one = _nothing(form, device).clone()
    one[1] = 0
    return one
