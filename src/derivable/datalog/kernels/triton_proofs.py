"""Triton's kernel that multiplies sets of proofs and selects the best of each row; tags are as in `device_proofs`.

A lane has a row, and goes through its products once for each of the k proofs that stay: the best
proof that contains no better one, by a look at all. So no product is ever written, and what a row gets is what a
walk over its sorted proofs gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from textwrap import indent
from typing import Any

import torch

from derivable.datalog.kernels.proof_form import ABSENT_COST, ProofForm
from derivable.device.cuda.row_sets import TILE, kernel_of

# For how many proofs there are kernels, and for how many words of one, which a lane has in registers.
MOST, MOST_WORDS = 4, 32
_FLIPPED = (1 << 63) - 1

_FOLD = """
@triton.jit
def fold(costs, tied, lost, order, first, before, left, right, after, news, changed, count, total):
    lane = tl.arange(0, TILE)
    for tile in range(tl.program_id(0), tl.cdiv(count, TILE), tl.num_programs(0)):
        group = tl.cast(tile, tl.int64) * TILE + lane
        is_group = group < count
        begin = tl.load(first + group, mask=is_group, other=0)
        end = tl.load(first + group + 1, mask=group + 1 < count, other=total)
        end = tl.where(is_group, end, begin)
        scope = group * 0
        is_changed = group * 0
{old_scope}
{ranks}
{lost}
        tl.store(after + group * LANES, scope, mask=is_group)
        tl.store(news + group * LANES, scope, mask=is_group)
        tl.store(changed + group, is_changed.to(tl.uint8), mask=is_group)
"""

# One of the k best proofs; `chosen` are the words of those before.
_RANK = """
best_cost = group * 0 + ABSENT_COST
best_size = group * 0
{no_bits}
is_new = group * 0
{old}
at = begin
while tl.max((at < end).to(tl.int32), 0) > 0:
    is_row = at < end
    row = {row}
{candidates}
    at += 1
there = (best_cost < ABSENT_COST).to(tl.int64)
is_changed = is_changed | (is_new & there)
{store}
"""

_OLD = """
for p in range(0, {k}):
    from_before = before + group * LANES + 1 + p * WIDTH
    cost = tl.load(from_before, mask=is_group, other=ABSENT_COST)
    size = tl.load(from_before + 1, mask=is_group, other=0)
{bits}
{consider}
"""

_ONE_FACTOR = """
scope = tl.maximum(scope, tl.load(left + row * LANES, mask=is_row, other=0))
for p in range(0, {k}):
    from_left = left + row * LANES + 1 + p * WIDTH
    cost = tl.load(from_left, mask=is_row, other=ABSENT_COST)
    size = tl.load(from_left + 1, mask=is_row, other=0)
{bits}
{consider}
"""

_TWO_FACTORS = """
at_left = tl.load(left + row * LANES, mask=is_row, other=0)
at_right = tl.load(right + row * LANES, mask=is_row, other=0)
pair_scope = tl.maximum(at_left, at_right)
scope = tl.maximum(scope, pair_scope)
for pq in range(0, {pairs}):
    from_left = left + row * LANES + 1 + (pq // {k}) * WIDTH
    from_right = right + row * LANES + 1 + (pq % {k}) * WIDTH
    cost = tl.load(from_left, mask=is_row, other=ABSENT_COST) + tl.load(from_right, mask=is_row, other=0)
    size = tl.load(from_left + 1, mask=is_row, other=0) + tl.load(from_right + 1, mask=is_row, other=0)
    tied_number = group * 0
    choice_number = group * 0
{bits}
{conflict}
{consider}
"""

# The literals that two proofs have in common, one after the other.
_COMMON = """
x = tl.load(from_left + {lane}, mask=is_row, other=0)
y = tl.load(from_right + {lane}, mask=is_row, other=0)
bits{w} = x | y
common = x & y
{tied}
while tl.max((common != 0).to(tl.int32), 0) > 0:
    lowest = common & -common
    power = lowest.to(tl.uint64, bitcast=True).to(tl.float64).to(tl.int64, bitcast=True)
    number = {last} - ((power >> 52) - 1023)
    is_some = common != 0
    cost -= tl.load(costs + pair_scope * LITERALS + number, mask=is_some, other=0)
    size -= is_some.to(tl.int64)
{count_tied}
    common = common & (common - 1)
"""

_CHOICES = """
x = tl.load(from_left + {lane}, mask=is_row, other=0)
y = tl.load(from_right + {lane}, mask=is_row, other=0)
bits{w} = x | y
common = x & y
while tl.max((common != 0).to(tl.int32), 0) > 0:
    choice_number += (common != 0).to(tl.int64)
    common = common & (common - 1)
"""


# Whether two of the k proofs that a row had contain one that it has now.
_LOST = """
is_full = is_group
number_gone = group * 0
for p in range(0, {k}):
    from_before = before + group * LANES + 1 + p * WIDTH
    is_full = is_full & (tl.load(from_before, mask=is_group, other=ABSENT_COST) < ABSENT_COST)
{bits}
    is_gone = is_group & (lane < 0)
{contained}
    number_gone += is_gone.to(tl.int64)
if tl.max((is_full & (number_gone > 1)).to(tl.int32), 0) > 0:
    tl.store(lost, 1)
"""


def _lost(form: ProofForm, bits: str) -> str:
    lines = []
    for rank in range(form.k):
        missing = " | ".join(f"(chosen{rank}_{w} & ~bits{w})" for w in range(form.words))
        more = " | ".join(f"(chosen{rank}_{w} ^ bits{w})" for w in range(form.words))
        lines.append(f"    is_gone = is_gone | ((there{rank} != 0) & (({missing}) == 0) & (({more}) != 0))")
    return _LOST.format(k=form.k, bits=bits, contained="\n".join(lines))


def _consider(form: ProofForm, rank: int, new: int) -> str:
    """Lines that make a proof the best one so far if it is better, and contains none of those chosen before."""
    lines = ["is_better = cost < best_cost", "is_equal = cost == best_cost"]
    lines += ["is_better = is_better | (is_equal & (size < best_size))", "is_equal = is_equal & (size == best_size)"]
    for w in range(form.words):
        lines += [
            f"is_better = is_better | (is_equal & ((bits{w} ^ {_FLIPPED}) < (best{w} ^ {_FLIPPED})))",
            f"is_equal = is_equal & (bits{w} == best{w})",
        ]
    for earlier in range(rank):
        missing = " | ".join(f"(chosen{earlier}_{w} & ~bits{w})" for w in range(form.words))
        lines.append(f"is_better = is_better & ((there{earlier} == 0) | (({missing}) != 0))")
    lines += ["is_better = is_better & (cost < ABSENT_COST)", "best_cost = tl.where(is_better, cost, best_cost)"]
    lines.append("best_size = tl.where(is_better, size, best_size)")
    lines += [f"best{w} = tl.where(is_better, bits{w}, best{w})" for w in range(form.width - 2)]
    lines.append(f"is_new = tl.where(is_better, {new}, is_new)")
    return "\n".join(lines)


@lru_cache(64)
def kernel_text(form: ProofForm, has_before: bool, has_right: bool, has_order: bool) -> str:
    """The kernel for groups that had proofs before, of products, whose rows are in another order than the groups."""
    k, width = form.k, form.width
    ranks = []
    old_bits = "\n".join(
        f"    bits{w} = tl.load(from_before + {2 + w}, mask=is_group, other=0)" for w in range(width - 2)
    )
    for rank in range(k):
        consider = indent(_consider(form, rank, 1), "    ")
        if has_right:
            common = []
            for w in range(width - 2):
                if w >= form.words:
                    common.append(_CHOICES.format(lane=2 + w, w=w))
                    continue
                tied = f"of_choice = tl.load(tied + pair_scope * {form.words} + {w}, mask=is_row, other=0)"
                count_tied = "    tied_number += ((lowest & of_choice) != 0).to(tl.int64)"
                has_choices = form.choices > 0
                common.append(
                    _COMMON.format(
                        lane=2 + w,
                        w=w,
                        last=64 * w + 63,
                        tied=tied if has_choices else "",
                        count_tied=count_tied if has_choices else "",
                    )
                )
            conflict = "    cost = tl.where(choice_number > tied_number, ABSENT_COST, cost)" if form.choices else ""
            bits = indent("".join(common), "    ")
            candidates = _TWO_FACTORS.format(k=k, pairs=k * k, bits=bits, conflict=conflict, consider=consider)
        else:
            bits = "\n".join(
                f"    bits{w} = tl.load(from_left + {2 + w}, mask=is_row, other=0)" for w in range(width - 2)
            )
            candidates = _ONE_FACTOR.format(k=k, bits=bits, consider=consider)
        old = _OLD.format(k=k, bits=old_bits, consider=indent(_consider(form, rank, 0), "    "))
        store = []
        for name, cost in (("after", "best_cost"), ("news", "tl.where(is_new != 0, best_cost, ABSENT_COST)")):
            to = f"{name} + group * LANES + {1 + rank * width}"
            keep = "{}" if name == "after" else "tl.where(is_new != 0, {}, 0)"
            store.append(f"tl.store({to}, {cost}, mask=is_group)")
            store.append(f"tl.store({to} + 1, {keep.format('best_size')}, mask=is_group)")
            store += [f"tl.store({to} + {2 + w}, {keep.format(f'best{w}')}, mask=is_group)" for w in range(width - 2)]
        store += [f"chosen{rank}_{w} = best{w}" for w in range(form.words)] + [f"there{rank} = there"]
        ranks.append(
            _RANK.format(
                no_bits="\n".join(f"best{w} = group * 0" for w in range(width - 2)),
                old=old if has_before else "",
                row="tl.load(order + at, mask=is_row, other=0)" if has_order else "at",
                candidates=indent(candidates, "    "),
                store="\n".join(store),
            )
        )
    old_scope = "        scope = tl.load(before + group * LANES, mask=is_group, other=0)" if has_before else ""
    lost = indent(_lost(form, old_bits), " " * 8) if has_before and k > 1 else ""
    text = _FOLD.format(old_scope=old_scope, ranks=indent("\n".join(ranks), " " * 8), lost=lost)
    numbers = {"LANES": form.lanes, "WIDTH": width, "LITERALS": 64 * form.words, "ABSENT_COST": ABSENT_COST}
    for name, number in numbers.items():
        text = text.replace(name, str(number))
    return "\n".join(line for line in text.splitlines() if line.strip())


def fold(
    form: ProofForm,
    costs: Any,
    tied: Any,
    lost: Any,
    order: Any,
    first: Any,
    before: Any,
    factors: Sequence[Any],
    count: int,
) -> tuple[Any, Any, Any]:
    """The k best proofs of each group, those that it had not before, and whether there are such; operands as those of
    `device_proofs.improved`."""
    left, right = factors[0].contiguous(), factors[-1].contiguous()
    after, news = torch.empty(2, count, form.lanes, dtype=torch.int64, device=left.device)
    changed = torch.empty(count, dtype=torch.uint8, device=left.device)
    has_order = not isinstance(order, range)
    kernel = kernel_of(kernel_text(form, before is not None, len(factors) > 1, has_order), "fold", TILE)
    rows = order if has_order else first
    earlier = after if before is None else before.contiguous()
    noted = costs if lost is None else lost
    kernel(count, costs, tied, noted, rows, first, earlier, left, right, after, news, changed, count, len(left))
    return after, news, changed.view(torch.bool)
