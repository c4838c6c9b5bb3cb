"""Kernels that prove decomposability and determinism of NNF DAGs over independent and categorical choices.

A choice (group) takes exactly one of its values; a literal says which. What is kept per node:

support   the choices it depends on, as the id of an interned set
implied   choices whose value it restricts: (group, mask of possible values). A group of more than 64 values
          has no mask; for it only a single possible value is kept, as its number.

Both are about what a node says, never about how it is proved, so a wrong answer can only be "not proven".
"""

from __future__ import annotations

import numpy as np

from derivable.circuit.kernels.hashcons import mix
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.device.cpu.built_kernels import kernel

IMPLIED_LIMIT = 48  # implied choices kept per node
DEPTH_LIMIT = 200  # of the pairwise search
MEMO_SIZE = 1 << 18  # the most of its remembered answers: 4 MiB
UNKNOWN_SUPPORT = -1


@kernel
def _disjoint(first, second, imp_offsets, imp_groups, imp_masks, group_size):
    """Whether two nodes imply disjoint values of some choice. Implied lists are sorted by group."""
    i, i_end = imp_offsets[first], imp_offsets[first + 1]
    j, j_end = imp_offsets[second], imp_offsets[second + 1]
    while i < i_end and j < j_end:
        g, h = imp_groups[i], imp_groups[j]
        if g < h:
            i += 1
        elif h < g:
            j += 1
        else:
            if group_size[g] > 64:
                if imp_masks[i] != imp_masks[j]:
                    return True
            elif imp_masks[i] & imp_masks[j] == 0:
                return True
            i += 1
            j += 1
    return False


@kernel
def _exclusive(
    first, second, kind, offsets, children, imp_offsets, imp_groups, imp_masks, group_size, is_false, memo, budget,
    frames,
):  # fmt: skip
    """Whether no world makes both nodes true, as far as a bounded search finds out.

    An or-node excludes another node if each of its children does; two and-nodes exclude each other if a child of one
    excludes a child of the other. The search keeps its own stack, frames [depth, 3]: a pair of nodes, and the next
    pair of children. (Numba crashes on cached functions that call themselves.)
    """
    depth = 0
    frames[0, 0], frames[0, 1], frames[0, 2] = first, second, -1
    answer = False
    while depth >= 0:
        a, b, i = frames[depth, 0], frames[depth, 1], frames[depth, 2]
        # The or-node (the higher of two) comes first, else the and-node.
        if (kind[b] == OR and (kind[a] != OR or b > a)) or (kind[a] == LITERAL and kind[b] == AND):
            a, b = b, a
        low, high = min(a, b), max(a, b)
        slot = (low * 0x9E3779B1 + high * 0x85EBCA77) & (len(memo) - 1)
        if i < 0:
            i = 0
            decided = True
            if is_false[a] or is_false[b]:
                answer = True
            elif a == b or kind[a] == TRUE or kind[b] == TRUE:
                answer = False
            else:
                budget[0] -= 1
                if budget[0] < 0 or depth >= DEPTH_LIMIT:
                    answer = False
                elif _disjoint(a, b, imp_offsets, imp_groups, imp_masks, group_size):
                    answer = True
                elif kind[a] == LITERAL and kind[b] == LITERAL:
                    answer = False
                # One remembered answer per slot, the last one: forgetting costs time only.
                elif memo[slot, 0] == low and memo[slot, 1] >> 1 == high:
                    answer = memo[slot, 1] & 1 == 1
                else:
                    decided = False
            if decided:
                depth -= 1
                continue
        every = kind[a] == OR
        whole = every or kind[b] == LITERAL
        width = 1 if whole else offsets[b + 1] - offsets[b]
        over = i > 0 and answer != every
        if over or i == (offsets[a + 1] - offsets[a]) * width:
            answer = answer if over else every
            if budget[0] >= 0:
                memo[slot, 0] = low
                memo[slot, 1] = 2 * high + (1 if answer else 0)
            depth -= 1
            continue
        frames[depth, 2] = i + 1
        depth += 1
        frames[depth, 0] = children[offsets[a] + i // width]
        frames[depth, 1] = b if whole else children[offsets[b] + i % width]
        frames[depth, 2] = -1
    return answer


@kernel
def _implied_mask(node, group, imp_offsets, imp_groups, imp_masks):
    for i in range(imp_offsets[node], imp_offsets[node + 1]):
        if imp_groups[i] == group:
            return imp_masks[i]
    return np.uint64(0)


@kernel
def _root_of(parent, value):
    while parent[value] != value:
        value = parent[value]
    return value


@kernel
def _labels(items, low, high, group, big, imp_offsets, imp_groups, imp_masks, labels, parent):
    """Label items low..high so that different labels imply disjoint values of `group`; returns whether two differ."""
    if not big:
        for value in range(64):
            parent[value] = value
        for i in range(low, high):
            mask = _implied_mask(items[i], group, imp_offsets, imp_groups, imp_masks)
            first = -1
            for value in range(64):
                if (mask >> np.uint64(value)) & np.uint64(1):
                    here = _root_of(parent, value)
                    if first < 0:
                        first = here
                    else:
                        parent[here] = first
    several = False
    for i in range(low, high):
        mask = _implied_mask(items[i], group, imp_offsets, imp_groups, imp_masks)
        if big:
            labels[i] = np.int64(mask)
        else:
            value = 0
            while not (mask >> np.uint64(value)) & np.uint64(1):
                value += 1
            labels[i] = _root_of(parent, value)
        if labels[i] != labels[low]:
            several = True
    return several


@kernel
def _sort_by_label(labels, items, low, high):
    """Shell sort of both arrays on [low, high) by label (Knuth's gaps): compiles at once, unlike argsort."""
    gap = 1
    while gap < (high - low) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(low + gap, high):
            label, item = labels[i], items[i]
            j = i
            while j >= low + gap and labels[j - gap] > label:
                labels[j] = labels[j - gap]
                items[j] = items[j - gap]
                j -= gap
            labels[j] = label
            items[j] = item
        gap //= 3


@kernel
def _all_exclusive(
    items, count, kind, offsets, children, imp_offsets, imp_groups, imp_masks, group_size, is_false, memo, budget,
    seen, differs, first_mask, stamp, ranges, labels, parent, frames,
):  # fmt: skip
    """Whether the nodes items[:count] exclude each other pairwise.

    They are split by a choice of which each implies values, like a decision tree, so that a sum over
    a thousand products costs a few passes; what no choice splits is searched pair by pair.
    """
    top = 0
    ranges[0], ranges[1] = 0, count
    top = 1
    while top > 0:
        top -= 1
        low, high = ranges[2 * top], ranges[2 * top + 1]
        n = high - low
        if n < 2:
            continue
        stamp[0] += 1
        now = stamp[0]
        for i in range(low, high):
            for e in range(imp_offsets[items[i]], imp_offsets[items[i] + 1]):
                g = imp_groups[e]
                if seen[0, g] != now:
                    seen[0, g] = now
                    seen[1, g] = 0
                    differs[g] = False
                    first_mask[g] = imp_masks[e]
                seen[1, g] += 1
                if imp_masks[e] != first_mask[g]:
                    differs[g] = True
        split = False
        for e in range(imp_offsets[items[low]], imp_offsets[items[low] + 1]):
            g = imp_groups[e]
            if seen[1, g] != n or not differs[g]:
                continue
            if _labels(
                items, low, high, g, group_size[g] > 64, imp_offsets, imp_groups, imp_masks, labels, parent
            ):  # fmt: skip
                split = True
                break
        if split:
            _sort_by_label(labels, items, low, high)
            start = 0
            for i in range(1, n + 1):
                if i == n or labels[low + i] != labels[low + start]:
                    if i - start > 1:
                        ranges[2 * top], ranges[2 * top + 1] = low + start, low + i
                        top += 1
                    start = i
            continue
        for i in range(low, high):
            for j in range(i + 1, high):
                if not _exclusive(
                    items[i], items[j], kind, offsets, children, imp_offsets, imp_groups, imp_masks, group_size,
                    is_false, memo, budget, frames,
                ):  # fmt: skip
                    return False
                if budget[0] < 0:
                    return False
    return True


@kernel
def _implied_by_some(
    children, is_false, imp_offsets, imp_groups, imp_masks, group_size, groups, masks, positions, stamp_group, stamp
):
    """What an and-node implies, [0:n] of `groups` and `masks`; returns n, or -1 if it is false."""
    stamp[0] += 1
    count = 0
    for child in children:
        if is_false[child]:
            return -1
        for i in range(imp_offsets[child], imp_offsets[child + 1]):
            g = imp_groups[i]
            if stamp_group[g] != stamp[0]:
                stamp_group[g] = stamp[0]
                positions[g] = count
                groups[count] = g
                masks[count] = imp_masks[i]
                count += 1
            elif group_size[g] > 64:
                if masks[positions[g]] != imp_masks[i]:
                    return -1
            else:
                masks[positions[g]] &= imp_masks[i]
                if masks[positions[g]] == 0:
                    return -1
    return count


@kernel
def _implied_by_all(
    children, is_false, imp_offsets, imp_groups, imp_masks, group_size, items,
    groups, masks, counts, positions, stamp_group, stamp,
):  # fmt: skip
    """What an or-node implies, [0:n] of `groups` and `masks`: returns (children that are not false, in `items`; n)."""
    stamp[0] += 1
    alive = count = 0
    for child in children:
        if is_false[child]:
            continue
        items[alive] = child
        for i in range(imp_offsets[child], imp_offsets[child + 1]):
            g = imp_groups[i]
            if alive == 0:
                stamp_group[g] = stamp[0]
                positions[g] = count
                groups[count] = g
                masks[count] = imp_masks[i]
                counts[count] = 1
                count += 1
            elif stamp_group[g] == stamp[0] and counts[positions[g]] == alive:
                if group_size[g] > 64:
                    if masks[positions[g]] == imp_masks[i]:
                        counts[positions[g]] += 1
                else:
                    masks[positions[g]] |= imp_masks[i]
                    counts[positions[g]] += 1
        alive += 1
    remaining = 0
    for i in range(count):
        size = group_size[groups[i]]
        full = size <= 64 and masks[i] == (
            ~np.uint64(0) if size == 64 else (np.uint64(1) << np.uint64(size)) - np.uint64(1)
        )
        if counts[i] == alive and not full:
            groups[remaining] = groups[i]
            masks[remaining] = masks[i]
            remaining += 1
    return alive, remaining


@kernel
def _sort_by_group(groups, masks, count):
    for i in range(1, count):
        g, mask = groups[i], masks[i]
        j = i
        while j > 0 and groups[j - 1] > g:
            groups[j] = groups[j - 1]
            masks[j] = masks[j - 1]
            j -= 1
        groups[j] = g
        masks[j] = mask


@kernel
def _union_of_supports(
    start, stop, children, is_or, is_false, keep, support, set_offsets, set_elements, elements, stamp_group, stamp
):
    """The choices that the children of edges start:stop depend on, in `elements`; returns (their number, whether two
    children share one, whether the support of one is not known)."""
    stamp[0] += 1
    size = 0
    overlap = False
    unknown = False
    last = np.int64(-2)
    for e in range(start, stop):
        child = children[e]
        if is_false[child] or not keep[e]:
            continue
        here = support[child]
        if here == UNKNOWN_SUPPORT:
            unknown = True
            continue
        if here == last and is_or:
            continue
        last = here
        for i in range(set_offsets[here], set_offsets[here + 1]):
            g = set_elements[i]
            if stamp_group[g] != stamp[0]:
                stamp_group[g] = stamp[0]
                elements[size] = g
                size += 1
            else:
                overlap = True
    return size, overlap, unknown


@kernel
def _set_of(elements, size, set_offsets, set_elements, set_hash, table, stamp_group, mark):
    """(the number of the set of these elements, which `mark` marks, or -1; its slot in the table; its hash)"""
    code_sum = np.uint64(0)
    for i in range(size):
        code_sum += mix(np.uint64(elements[i]) + np.uint64(1))
    mask = np.uint64(len(table) - 1)
    slot = mix(code_sum) & mask
    while table[slot] >= 0:
        candidate = table[slot]
        low, high = set_offsets[candidate], set_offsets[candidate + 1]
        if set_hash[candidate] == code_sum and high - low == size:
            same = True
            for i in range(low, high):
                if stamp_group[set_elements[i]] != mark:
                    same = False
                    break
            if same:
                return candidate, slot, code_sum
        slot = (slot + np.uint64(1)) & mask
    return np.int64(-1), slot, code_sum


@kernel("uint8[] int32[] int64[] int32[] int64[] int64[] int64[] bool[] int64 int64")
def analyse(kind, literal, offsets, children, group_of, value_of, group_size, is_decision, pair_budget, support_limit):
    """Prove what can be proven, one pass over nodes in topological order.

    kind, literal, offsets, children  as in `Circuit`
    group_of, value_of                [literal code]: code 2 v for variable v, 2 v + 1 for its negation
    group_size                        [group] number of values
    is_decision                       [node] whether an or-node is known to be deterministic
    pair_budget                       steps of the pairwise search, all nodes together
    support_limit                     elements of all distinct support sets together

    returns  is_false [node]: true in no world, as far as seen
             proven [node]: an and-node whose kept children depend on disjoint choices, an or-node whose
             children exclude each other (both leave false children out); leaves always
             keep [edge]: False where a literal is implied by another child of its and-node
             support [node], set_offsets, set_elements: the choices node n depends on are
             set_elements[set_offsets[s]:set_offsets[s + 1]] with s = support[n] (-1: not known)
    """
    nodes = len(kind)
    groups = len(group_size)
    is_false = np.zeros(nodes, np.bool_)
    proven = np.ones(nodes, np.bool_)
    keep = np.ones(len(children), np.bool_)
    support = np.zeros(nodes, np.int64)

    set_offsets = np.zeros(nodes + groups + 2, np.int64)
    set_hash = np.zeros(nodes + groups + 2, np.uint64)
    set_elements = np.empty(max(groups, 1024), np.int32)
    table_size = 1024
    while table_size < 2 * (nodes + groups + 2):
        table_size *= 2
    table = np.full(table_size, -1, np.int64)
    sets = 1  # set 0 is empty
    table[mix(np.uint64(0)) & np.uint64(table_size - 1)] = 0

    imp_offsets = np.zeros(nodes + 1, np.int64)
    imp_groups = np.empty(4 * nodes + 1024, np.int32)
    imp_masks = np.empty(4 * nodes + 1024, np.uint64)

    stamp_group = np.full(groups, -1, np.int64)
    positions = np.zeros(groups, np.int64)
    local_groups = np.empty(groups, np.int32)
    local_masks = np.empty(groups, np.uint64)
    local_counts = np.empty(groups, np.int64)
    elements = np.empty(groups, np.int32)
    stamp = np.zeros(1, np.int64)

    widest = 1
    for node in range(nodes):
        widest = max(widest, offsets[node + 1] - offsets[node])
    items = np.empty(widest, np.int64)
    labels = np.empty(widest, np.int64)
    ranges = np.empty(2 * widest + 4, np.int64)
    parent = np.zeros(64, np.int64)
    frames = np.zeros((DEPTH_LIMIT + 2, 3), np.int64)
    seen = np.full((2, groups), -1, np.int64)
    differs = np.zeros(groups, np.bool_)
    first_mask = np.zeros(groups, np.uint64)
    part_stamp = np.zeros(1, np.int64)
    memo_size = 1024
    while memo_size < min(MEMO_SIZE, 4 * len(children)):
        memo_size *= 2
    memo = np.full((memo_size, 2), -1, np.int64)
    budget = np.full(1, pair_budget, np.int64)

    for node in range(nodes):
        start, stop = offsets[node], offsets[node + 1]
        local = 0  # implied choices found
        what = kind[node]
        if what == FALSE:
            is_false[node] = True
        elif what == LITERAL:
            code = 2 * abs(literal[node]) + (1 if literal[node] < 0 else 0)
            g = group_of[code]
            local_groups[0] = g
            if group_size[g] > 64:
                local_masks[0] = np.uint64(value_of[code])
            else:
                local_masks[0] = np.uint64(1) << np.uint64(value_of[code])
            local = 1 if group_size[g] > 1 else 0
        elif what == AND:
            local = _implied_by_some(
                children[start:stop], is_false, imp_offsets, imp_groups, imp_masks, group_size,
                local_groups, local_masks, positions, stamp_group, stamp,
            )  # fmt: skip
            is_false[node] = local < 0
        elif what == OR:
            alive, local = _implied_by_all(
                children[start:stop], is_false, imp_offsets, imp_groups, imp_masks, group_size, items,
                local_groups, local_masks, local_counts, positions, stamp_group, stamp,
            )  # fmt: skip
            if alive == 0:
                is_false[node] = True
            if alive > 1 and not is_decision[node]:
                proven[node] = _all_exclusive(
                    items, alive, kind, offsets, children, imp_offsets, imp_groups, imp_masks, group_size, is_false,
                    memo, budget, seen, differs, first_mask, part_stamp, ranges, labels, parent,
                    frames,
                )  # fmt: skip
        if is_false[node]:
            local = 0
            proven[node] = True

        # The implied list, sorted by group.
        local = min(local, IMPLIED_LIMIT) if what != LITERAL else local
        _sort_by_group(local_groups, local_masks, local)
        at = imp_offsets[node]
        if at + local > len(imp_groups):
            bigger_groups = np.empty(2 * len(imp_groups) + local, np.int32)
            bigger_masks = np.empty(len(bigger_groups), np.uint64)
            for i in range(at):
                bigger_groups[i], bigger_masks[i] = imp_groups[i], imp_masks[i]
            imp_groups, imp_masks = bigger_groups, bigger_masks
        for i in range(local):
            imp_groups[at + i], imp_masks[at + i] = local_groups[i], local_masks[i]
        imp_offsets[node + 1] = at + local

        # The support, and for and-nodes whether the children's are disjoint.
        unknown = False
        size = 0
        if what == LITERAL:
            elements[0] = group_of[2 * abs(literal[node]) + (1 if literal[node] < 0 else 0)]
            size = 1
            stamp[0] += 1
            stamp_group[elements[0]] = stamp[0]
        elif what >= AND and not is_false[node]:
            for attempt in range(2):
                size, overlap, unknown = _union_of_supports(
                    start, stop, children, what == OR, is_false, keep, support, set_offsets, set_elements,
                    elements, stamp_group, stamp,
                )  # fmt: skip
                if what == OR or not overlap:
                    break
                if attempt == 1:
                    proven[node] = False
                elif not _drop_implied(
                    start, stop, kind, literal, children, group_size, imp_offsets, imp_groups, imp_masks, keep
                ):
                    proven[node] = False
                    break
        if unknown:
            if what == AND:
                proven[node] = False
            support[node] = UNKNOWN_SUPPORT
            continue
        known, slot, code_sum = _set_of(
            elements, size, set_offsets, set_elements, set_hash, table, stamp_group, stamp[0]
        )
        if known < 0:
            at = set_offsets[sets]
            if at + size > support_limit:
                support[node] = UNKNOWN_SUPPORT
                continue
            if at + size > len(set_elements):
                bigger = np.empty(2 * len(set_elements) + size, np.int32)
                for i in range(at):
                    bigger[i] = set_elements[i]
                set_elements = bigger
            for i in range(size):
                set_elements[at + i] = elements[i]
            set_offsets[sets + 1] = at + size
            set_hash[sets] = code_sum
            table[slot] = sets
            known = sets
            sets += 1
        support[node] = known
    return is_false, proven, keep, support, set_offsets[: sets + 1], set_elements


@kernel
def _drop_implied(start, stop, kind, literal, children, group_size, imp_offsets, imp_groups, imp_masks, keep):
    """Literals of an and-node that another child says already: x and (x and y) is x and y. Returns whether one went."""
    dropped = False
    for e in range(start, stop):
        child = children[e]
        if kind[child] != LITERAL or imp_offsets[child] == imp_offsets[child + 1]:
            continue
        g = imp_groups[imp_offsets[child]]
        mask = imp_masks[imp_offsets[child]]
        for f in range(start, stop):
            other = children[f]
            if other != child and kind[other] != LITERAL:
                said = _implied_mask(other, g, imp_offsets, imp_groups, imp_masks)
                present = False
                if group_size[g] > 64:
                    for i in range(imp_offsets[other], imp_offsets[other + 1]):
                        present = present or imp_groups[i] == g
                if (said == mask) and (group_size[g] <= 64 or present):
                    keep[e] = False
                    dropped = True
                    break
    return dropped


@kernel("uint8[] int64[] int32[] int64[] bool[] bool[] bool[]")
def needed_nodes(kind, offsets, children, roots, is_false, proven, keep):
    """Walk down from the roots through proven nodes.

    returns [node] uint8: 0 not needed, 1 kept as it stands, 2 needed and not proven
    """
    need = np.zeros(len(kind), np.uint8)
    for root in roots:
        need[root] = 1
    for node in range(len(kind) - 1, -1, -1):
        if need[node] == 0 or is_false[node]:
            continue
        if not proven[node]:
            need[node] = 2
            continue
        for e in range(offsets[node], offsets[node + 1]):
            if keep[e]:
                need[children[e]] = 1
    return need
