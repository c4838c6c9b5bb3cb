"""Recursions of many shapes, which `datalog.py` measures with `datalog_cases.py`: arithmetic, mutual relations, many
rules and strata, negation, texts, wide rows.

The seconds of Soufflé are those of its compiled program without loading, on one thread, where a program of the same
rules and the same size was measured (`many_rules`: 16,000 rows of 300 rules).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from datalog_cases import Case, Fingerprint, chain, fingerprint

Facts = Mapping[str, np.ndarray]
Route = Callable[[Facts], Fingerprint]


def in_turn(relations: int, limit: int) -> Case:
    """Counting to a limit by relations that follow one another, a row a round."""
    names = [f"n{k}" for k in range(relations)]
    rules = [f"rel {b}(x + 1) = {a}(x), x < {limit}" for a, b in zip(names, names[1:] + names[:1])]
    text = "\n".join(["type n0(x: i64)", "rel n0 = {0}", *rules, "query n0"])
    expected = np.arange(0, limit + 1, relations)
    return Case(text, {}, "n0", routes={"NumPy": lambda facts: fingerprint([expected])}, souffle=0.02)


def collatz(count: int) -> Case:
    """The numbers that the first `count` ones lead to."""
    text = f"""
    rel n(x) = x in 1..{count + 1}
    rel n(x / 2) = n(x), x % 2 == 0
    rel n(3 * x + 1) = n(x), x % 2 == 1
    type n(x: i64)
    query n
    """

    def by_steps(facts: Facts) -> Fingerprint:
        found = set(range(1, count + 1))
        for x in range(1, count + 1):
            x = 3 * x + 1 if x % 2 else x // 2
            while x not in found:
                found.add(x)
                x = 3 * x + 1 if x % 2 else x // 2
        return [float(len(found)), float(sum(found))]

    return Case(text, {}, "n", routes={"Python": by_steps}, souffle=1.54)


def blocked_chain(count: int) -> Case:
    """Steps along a chain, over single blocked nodes, which two rules with negation of a lower stratum find."""
    text = """
    type edge(u32, u32), blocked(u32)
    rel reached = {0}
    rel reached(y) = reached(x), edge(x, y), not blocked(y)
    rel reached(z) = reached(x), edge(x, y), blocked(y), edge(y, z), not blocked(z)
    query reached
    """
    blocked = np.arange(5, count, 7, dtype=np.uint32)
    expected = np.setdiff1d(np.arange(count + 1), blocked)
    facts = {"edge": chain(count), "blocked": blocked[:, None]}
    return Case(text, facts, "reached", routes={"NumPy": lambda facts: fingerprint([expected])}, souffle=0.09)


def many_rules(relations: int, nodes: int, labels: int = 10) -> Case:
    """Each relation is reached from two others along edges of one label."""
    random = np.random.default_rng(0)
    sources, kinds = random.integers(0, relations, (relations, 2)), random.integers(0, labels, (relations, 2))
    sources[:, 0] = np.roll(np.arange(relations), 1)
    rules = [
        f"rel p{k}(y) = p{source}(x), edge({kind}, x, y)"
        for k in range(relations)
        for source, kind in zip(sources[k].tolist(), kinds[k].tolist())
    ]
    answer = [f"rel all({k}, x) = p{k}(x)" for k in range(relations)]
    text = "\n".join(["type edge(u32, u32, u32), all(u32, u32)", "rel p0 = {0}", *rules, *answer, "query all"])
    edges = np.column_stack([random.integers(0, size, 2 * nodes * labels) for size in (labels, nodes, nodes)])
    edges = np.unique(edges, axis=0).astype(np.uint32)

    def by_search(facts: Facts) -> Fingerprint:
        """A breadth-first search over pairs of a relation and a node."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order

        by_label = [edges[edges[:, 0] == label, 1:].astype(np.int64) for label in range(labels)]
        steps = [
            by_label[kind] + [source * nodes, k * nodes]
            for k in range(relations)
            for source, kind in zip(sources[k].tolist(), kinds[k].tolist())
        ]
        pairs = np.concatenate(steps)
        size = relations * nodes
        matrix = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(size, size))
        found = breadth_first_order(matrix, 0, return_predecessors=False)
        return fingerprint([found // nodes, found % nodes])

    return Case(text, {"edge": edges}, "all", routes={"SciPy": by_search}, souffle=0.036)


def negated_strata(strata: int, nodes: int = 100) -> Case:
    """Each stratum is what the one before it has not, among nodes of its own residues."""
    rules = [f"rel s{k}(x) = node(x), not s{k - 1}(x), x % 7 != {k % 7}" for k in range(1, strata)]
    text = "\n".join(["type node(u32)", "rel s0(x) = node(x), x % 2 == 0", *rules, f"query s{strata - 1}"])

    def by_masks(facts: Facts) -> Fingerprint:
        node = facts["node"][:, 0].astype(np.int64)
        here = node % 2 == 0
        for k in range(1, strata):
            here = ~here & (node % 7 != k % 7)
        return fingerprint([node[here]])

    facts = {"node": np.arange(nodes, dtype=np.uint32)[:, None]}
    return Case(text, facts, f"s{strata - 1}", routes={"NumPy": by_masks}, souffle=0.02)


def recursive_strata(strata: int, nodes: int = 50) -> Case:
    """Each stratum goes on along a ring, as far as a node of its own, from some of what the one before it has."""
    rules = []
    for k in range(1, strata):
        rules += [
            f"rel r{k}(x) = r{k - 1}(x), x % 3 == {k % 3}",
            f"rel r{k}(y) = r{k}(x), edge(x, y), y != {k % nodes}",
        ]
    text = "\n".join(["type edge(u32, u32)", "rel r0(x) = edge(x, _)", *rules, f"query r{strata - 1}"])
    ring = np.column_stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes]).astype(np.uint32)

    def by_walks(facts: Facts) -> Fingerprint:
        here = set(range(nodes))
        for k in range(1, strata):
            reached = here = {x for x in here if x % 3 == k % 3}
            while reached:
                reached = {y for y in ((x + 1) % nodes for x in reached) if y != k % nodes} - here
                here = here | reached
        return fingerprint([np.array(sorted(here))])

    return Case(text, {"edge": ring}, f"r{strata - 1}", routes={"Python": by_walks})


def permutations(width: int) -> Case:
    """All orders of so many numbers, by a rotation and one exchange: rows as wide as that."""
    names = "abcdefghij"[:width]
    columns = ", ".join(names)
    text = f"""
    type state({", ".join(f"{name}: u32" for name in names)})
    rel state = {{({", ".join(map(str, range(width)))})}}
    rel state({", ".join(names[1:] + names[0])}) = state({columns})
    rel state({", ".join(names[1] + names[0] + names[2:])}) = state({columns})
    query state
    """

    def by_formula(facts: Facts) -> Fingerprint:
        number = float(np.prod(np.arange(1.0, width + 1)))
        return [number, *[number * (width - 1) / 2] * width]

    return Case(text, {}, "state", routes={"formula": by_formula})


def sums(limit: int, parts: tuple[int, ...] = (607, 901, 2_011), two: bool = True) -> Case:
    """The sums of given parts up to a limit: arithmetic over two atoms of the recursion, or one of it and the parts."""
    other = "s" if two else "part"
    text = f"""
    type part(i64), s(i64)
    rel s(x) = part(x)
    rel s(x + y) = s(x), {other}(y), x + y <= {limit}
    query s
    """

    def by_table(facts: Facts) -> Fingerprint:
        there = np.zeros(limit + 1, bool)
        there[0] = True
        for part in parts:
            for first in range(part):
                line = there[first::part]
                np.logical_or.accumulate(line, out=line)
        return fingerprint([np.flatnonzero(there)[1:]])

    facts = {"part": np.array(parts, np.int64)[:, None]}
    return Case(text, facts, "s", routes={"NumPy": by_table})


def words(letters: int, length: int) -> Case:
    """All texts of so many letters up to a length."""
    rules = [f'rel w($string_concat(x, "{"abc"[k]}")) = w(x), $string_length(x) < {length}' for k in range(letters)]
    text = "\n".join(["type w(String)", 'rel w = {""}', *rules, "query w"])

    def by_formula(facts: Facts) -> Fingerprint:
        number = [float(letters) ** k for k in range(length + 1)]
        return [sum(number), sum(k * count for k, count in enumerate(number))]

    return Case(text, {}, "w", routes={"formula": by_formula}, souffle=0.26)


def joined_texts(count: int) -> Case:
    """Two relations of texts, joined by texts that each has."""
    random = np.random.default_rng(0)
    text = "type r(String, String), s(String, String)\nrel t(a, c) = r(a, b), s(b, c)\nquery t"

    def rows(name: str, key: int) -> np.ndarray:
        own = [f"{name} number {k}" for k in range(count)]
        shared = [f"key {k} of both" for k in random.integers(0, count, count).tolist()]
        return np.array([own, shared][:: 1 - 2 * key], object).T

    facts = {"r": rows("left", 0), "s": rows("right", 1)}

    def by_dictionary(facts: Facts) -> Fingerprint:
        by_key: dict[str, list[int]] = {}
        for key, value in facts["s"].tolist():
            by_key.setdefault(key, []).append(len(value))
        found = np.zeros(3)
        for value, key in facts["r"].tolist():
            there = by_key.get(key, [])
            found += len(there), len(value) * len(there), sum(there)
        return found.tolist()

    return Case(text, facts, "t", routes={"Python": by_dictionary}, souffle=1.74)


def wide_join(count: int, width: int = 10) -> Case:
    """Two relations of ten columns, joined by the first two."""
    random = np.random.default_rng(0)
    left = [f"a{k}" for k in range(width)]
    right = left[:2] + [f"b{k}" for k in range(2, width)]
    shown = ", ".join(left + right[2:])
    types = ", ".join(["u32"] * width)
    text = f"type r({types}), s({types})\nrel t({shown}) = r({', '.join(left)}), s({', '.join(right)})\nquery t"
    facts = {name: random.integers(0, 600, (count, width)).astype(np.uint32) for name in "rs"}

    def by_sort(facts: Facts) -> Fingerprint:
        r, s = (np.unique(facts[name], axis=0).astype(np.int64) for name in "rs")
        keys = [part[:, 0] * 1_000 + part[:, 1] for part in (r, s)]
        order = np.argsort(keys[1], kind="stable")
        low, high = (np.searchsorted(keys[1], keys[0], side, sorter=order) for side in ("left", "right"))
        rows = np.repeat(np.arange(len(r)), high - low)
        others = order[np.arange(len(rows)) + np.repeat(low - np.cumsum(high - low) + (high - low), high - low)]
        return fingerprint([*r[rows].T, *s[others, 2:].T])

    return Case(text, facts, "t", routes={"NumPy": by_sort}, souffle=1.41)


def grouped_extremes(count: int) -> Case:
    """The number and the least of the values of each group."""
    random = np.random.default_rng(0)
    text = """
    type r(u32, u32)
    rel numbered(g, n) = n := count(x: r(g, x))
    rel least(g, x) = x := min(x: r(g, x))
    rel found(g, n, x) = numbered(g, n), least(g, x)
    query found
    """
    rows = np.column_stack([random.integers(0, count // 20, count), random.integers(0, count, count)])

    def by_sort(facts: Facts) -> Fingerprint:
        unique = np.unique(facts["r"], axis=0)
        group, first, number = np.unique(unique[:, 0], return_index=True, return_counts=True)
        return fingerprint([group, number, unique[first, 1]])

    return Case(text, {"r": rows.astype(np.uint32)}, "found", routes={"NumPy": by_sort}, souffle=0.24)


def parsed(length: int, symbols: int = 40, rules: int = 800) -> Case:
    """The spans of a sentence that a grammar in Chomsky's form derives (CYK)."""
    random = np.random.default_rng(0)
    text = """
    type word(u32, u32), rule(u32, u32, u32)
    rel span(s, i, i + 1) = word(i, s)
    rel span(s, i, k) = rule(s, a, b), span(a, i, j), span(b, j, k)
    type span(u32, u32, u32)
    query span
    """
    grammar = np.unique(random.integers(0, symbols, (rules, 3)), axis=0)
    sentence = np.column_stack([np.arange(length), random.integers(0, symbols, length)])
    facts = {"word": sentence.astype(np.uint32), "rule": grammar.astype(np.uint32)}

    def by_table(facts: Facts) -> Fingerprint:
        spans = np.zeros((length + 1, length + 1, symbols), bool)
        for i, symbol in sentence.tolist():
            spans[i, i + 1, symbol] = True
        for size in range(2, length + 1):
            for i in range(length + 1 - size):
                k = i + size
                left, right = spans[i, i + 1 : k], spans[i + 1 : k, k]
                derived = (left[:, grammar[:, 1]] & right[:, grammar[:, 2]]).any(axis=0)
                spans[i, k, grammar[derived, 0]] = True
        i, k, symbol = np.nonzero(spans)
        return fingerprint([symbol, i, k])

    return Case(text, facts, "span", routes={"NumPy": by_table})


def pairs_of_naturals(count: int) -> Case:
    """A relation of all pairs, of which two are wanted."""
    text = f"""
    rel natural(x) = x in 0..{count}
    rel pair(x, y) = natural(x), natural(y)
    rel found(y) = pair(7, y), y > 6, y < 9
    query found
    """
    return Case(text, {}, "found", routes={"formula": lambda facts: [2.0, 15.0]}, souffle=0.03)


# Title -> whether it belongs to the quick run, and what makes the case.
CASES: dict[str, tuple[bool, Callable[[], Case]]] = {
    "two relations in turn, 200,000 rounds": (True, lambda: in_turn(2, 200_000)),
    "three relations in turn, 200,000 rounds": (True, lambda: in_turn(3, 200_000)),
    "collatz of 850,000": (True, lambda: collatz(850_000)),
    "blocked chain of 200,000 nodes": (True, lambda: blocked_chain(200_000)),
    "600 rules of 300 relations": (True, lambda: many_rules(300, 60)),
    "800 strata with negation": (True, lambda: negated_strata(800)),
    "400 small recursive strata": (True, lambda: recursive_strata(400)),
    "permutations of 8 columns": (True, lambda: permutations(8)),
    "sums of two sums": (True, lambda: sums(20_000)),
    "sums with a part": (True, lambda: sums(2_000_000, two=False)),
    "texts of three letters": (True, lambda: words(3, 11)),
    "join of texts, 500,000": (True, lambda: joined_texts(500_000)),
    "join of 10 columns, 300,000": (True, lambda: wide_join(300_000)),
    "number and least by group, 1,000,000": (True, lambda: grouped_extremes(1_000_000)),
    "sentence of 120 words": (True, lambda: parsed(120)),
    "pairs of 10,000 naturals": (True, lambda: pairs_of_naturals(10_000)),
}
