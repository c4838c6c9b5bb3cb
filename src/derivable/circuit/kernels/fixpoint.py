"""Kernels of and-or graphs with cycles where plus takes the better of two values: the fixpoint, and its reverse.

A node's value is that of its best derivation. Values spread from nodes to their parents, oldest first, until none gets
better (Bellman-Ford; Knuth 1977 for conjunctions). A node takes another child only if that is strictly better, so the
chosen children form no cycle unless a cycle makes values better, and then there is no fixpoint.
"""

from __future__ import annotations

from derivable.core.and_or import AND, FALSE, LITERAL, OR
from derivable.device.cpu.built_kernels import kernel

MUL, ADD, MIN, MAX = range(4)
"""What times is."""
NOT_DERIVED = -1


@kernel
def _times(times, a, b):
    if times == MUL:
        return a * b
    if times == ADD:
        return a + b
    if a != a or b != b:
        return a + b
    return min(a, b) if times == MIN else max(a, b)


@kernel
def _is_better(sign, value, best):
    """A NaN is better than all numbers, so that it is seen."""
    return sign * value > sign * best or (value != value and best == best)


@kernel
def _conjunction(n, offsets, children, times, one, values, chosen):
    """(whether all children of an and-node have derivations, their product)"""
    product = one
    for e in range(offsets[n], offsets[n + 1]):
        c = children[e]
        if c < 0:
            product = _times(times, product, one - values[~c])
        elif chosen[c] == NOT_DERIVED:
            return False, one
        else:
            product = _times(times, product, values[c])
    return True, product


@kernel(
    "uint8[] int32[] int64[] int64[] int64[] int64[] int64[] int64[] int64 int64 float32 float32 "
    "float32[,] float32[,] int64[,] int64[] bool[]",
    "uint8[] int32[] int64[] int64[] int64[] int64[] int64[] int64[] int64 int64 float64 float64 "
    "float64[,] float64[,] int64[,] int64[] bool[]",
)
def best_values(
    kind,
    literal,
    offsets,
    children,
    owner,
    parts,
    up_offsets,
    up_edges,
    times,
    sign,
    zero,
    one,
    weights,
    values,
    chosen,
    queue,
    is_waiting,
):
    """Fills values and chosen [row, node]; returns the first row that has no fixpoint, -1 if all have one.

    The nodes of a component are side by side, the components of their children before them.

    owner     [edge] the parent
    parts     [component + 1] where the nodes of each component begin
    up_edges  the edges in which a node is a child within its component, from up_offsets [node + 1]
    times     MUL, ADD, MIN or MAX
    sign      1 if larger values are better, -1 if smaller ones are
    weights   [row, variable]; a negation is one less the value
    chosen    of an or-node the edge whose child's value it has, of others any number from 0 on; NOT_DERIVED for a node
              without derivation, whose value is zero
    queue, is_waiting  [node] scratch, the latter all False before and after
    """
    for row in range(len(weights)):
        weight, value, choice = weights[row], values[row], chosen[row]
        for part in range(len(parts) - 1):
            first, last = parts[part], parts[part + 1]
            room, head, count = last - first, 0, 0
            for n in range(first, last):
                value[n] = zero
                choice[n] = NOT_DERIVED
            for n in range(first, last):
                if kind[n] == LITERAL:
                    number = literal[n]
                    value[n] = weight[number - 1] if number > 0 else one - weight[-number - 1]
                    choice[n] = 0
                elif kind[n] == OR:
                    for e in range(offsets[n], offsets[n + 1]):
                        c = children[e]
                        if c < 0:
                            term = one - value[~c]
                        elif c < first and choice[c] != NOT_DERIVED:
                            term = value[c]
                        else:
                            continue
                        if choice[n] == NOT_DERIVED or _is_better(sign, term, value[n]):
                            value[n] = term
                            choice[n] = e
                    if room > 1 and choice[n] != NOT_DERIVED:
                        queue[first + count] = n
                        is_waiting[n] = True
                        count += 1
                elif kind[n] == AND:
                    if room == 1:
                        is_derived, term = _conjunction(n, offsets, children, times, one, value, choice)
                        if is_derived:
                            value[n] = term
                            choice[n] = 0
                elif kind[n] != FALSE:
                    value[n] = one
                    choice[n] = 0
            # The derivations that spread in a pass have one step more than those of the pass before. A NaN may follow
            # the numbers around.
            left, passes = count, 0
            while count > 0:
                if left == 0:
                    left = count
                    passes += 1
                    if passes > 2 * room:
                        is_waiting[first:last] = False
                        return row
                n = queue[first + head]
                head = head + 1 if head + 1 < room else 0
                count -= 1
                left -= 1
                is_waiting[n] = False
                for i in range(up_offsets[n], up_offsets[n + 1]):
                    e = up_edges[i]
                    p = owner[e]
                    if kind[p] == OR:
                        term = value[n]
                    else:
                        is_derived, term = _conjunction(p, offsets, children, times, one, value, choice)
                        if not is_derived:
                            continue
                    if choice[p] != NOT_DERIVED and not _is_better(sign, term, value[p]):
                        continue
                    value[p] = term
                    choice[p] = e
                    if not is_waiting[p]:
                        place = head + count
                        queue[first + (place if place < room else place - room)] = p
                        is_waiting[p] = True
                        count += 1
    return -1


@kernel(
    "uint8[] int32[] int64[] int64[] int64 float32 float32[,] int64[,] int64[] float32[,] float32[,] "
    "float32[] int64[,] int64[]",
    "uint8[] int32[] int64[] int64[] int64 float64 float64[,] int64[,] int64[] float64[,] float64[,] "
    "float64[] int64[,] int64[]",
)
def best_adjoints(
    kind, literal, offsets, children, times, one, values, chosen, roots, seeds, gradient, adjoints, order, cursors
):
    """Adds the adjoints of the weights to gradient [row, variable]: those of the chosen derivations of the roots.

    seeds     [row, root] adjoints of the roots; a zero one contributes nothing
    adjoints  [node] scratch, all zero before and after
    order, cursors  [2, node] and [node] scratch, the latter all -1 before and after
    """
    stack, finished = order[0], order[1]
    for row in range(len(values)):
        value, choice, slope = values[row], chosen[row], gradient[row]
        total = 0
        for r in range(len(roots)):
            root = roots[r]
            is_negated = root < 0
            if is_negated:
                root = ~root
            if seeds[row, r] == 0 or choice[root] == NOT_DERIVED:
                continue
            adjoints[root] += -seeds[row, r] if is_negated else seeds[row, r]
            if cursors[root] >= 0:
                continue
            # Children are finished before their parents.
            depth = 1
            stack[0] = root
            cursors[root] = choice[root] if kind[root] == OR else offsets[root]
            while depth > 0:
                n = stack[depth - 1]
                last = choice[n] + 1 if kind[n] == OR else offsets[n + 1]
                if cursors[n] < last:
                    c = children[cursors[n]]
                    cursors[n] += 1
                    if c < 0:
                        c = ~c
                    if cursors[c] < 0 and choice[c] != NOT_DERIVED:
                        cursors[c] = choice[c] if kind[c] == OR else offsets[c]
                        stack[depth] = c
                        depth += 1
                else:
                    depth -= 1
                    finished[total] = n
                    total += 1
        for place in range(total - 1, -1, -1):
            n = finished[place]
            adjoint = adjoints[n]
            adjoints[n] = 0
            cursors[n] = -1
            if adjoint == 0:
                continue
            if kind[n] == LITERAL:
                number = literal[n]
                if number > 0:
                    slope[number - 1] += adjoint
                else:
                    slope[-number - 1] -= adjoint
            elif kind[n] == OR:
                c = children[choice[n]]
                adjoints[max(c, ~c)] += adjoint if c >= 0 else -adjoint
            elif kind[n] == AND:
                has_chosen = False
                for e in range(offsets[n], offsets[n + 1]):
                    c = children[e]
                    factor = adjoint
                    if times == MUL:
                        for other in range(offsets[n], offsets[n + 1]):
                            if other != e:
                                d = children[other]
                                factor *= value[d] if d >= 0 else one - value[~d]
                    elif times != ADD:
                        # The first factor that the product is equal to.
                        term = value[c] if c >= 0 else one - value[~c]
                        if has_chosen or (term != value[n] and value[n] == value[n]):
                            continue
                        has_chosen = True
                    adjoints[max(c, ~c)] += factor if c >= 0 else -factor
