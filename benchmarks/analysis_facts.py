"""Facts for the programs in `benchmarks/programs`, drawn with fixed seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Facts = Mapping[str, np.ndarray]


def columns(*parts: np.ndarray) -> np.ndarray:
    return np.unique(np.stack([np.asarray(part) for part in parts], 1), axis=0).astype(np.int32)


def skewed(random: np.random.Generator, values: int, count: int, power: float = 2.0) -> np.ndarray:
    """Values below `values` of which the small ones are frequent."""
    return (values * random.random(count) ** power).astype(np.int64)


def tree(random: np.random.Generator, nodes: int) -> np.ndarray:
    """[node - 1, 2] parent and child, parents being smaller."""
    child = np.arange(1, nodes)
    return columns((child * random.random(nodes - 1)).astype(np.int64), child)


def near(random: np.random.Generator, some: np.ndarray, width: int) -> np.ndarray:
    """Values among the `width` ones of which each of `some` is one."""
    return some // width * width + random.integers(0, width, len(some))


def andersen() -> Facts:
    random, n, width = np.random.default_rng(1), 12_000, 60
    v, few = random.integers(0, n, n), random.integers(0, n, n // 6)
    return {
        "addressOf": columns(v[::2], near(random, v[::2], width)),
        "assign": columns(v, near(random, v, width)),
        "load": columns(few, near(random, few, width)),
        "store": columns(few[::-1], near(random, few[::-1], width)),
    }


def bipartite() -> Facts:
    random, n = np.random.default_rng(2), 40_000
    left, right = random.integers(0, n, 4 * n) * 2, random.integers(0, n, 4 * n) * 2 + 1
    odd = np.stack([np.arange(20) * 2, np.arange(20) * 2 + 2], 1)
    return {"edge": np.concatenate([columns(left, right), odd.astype(np.int32)]), "start": np.array([[0]], np.int32)}


def borrow() -> Facts:
    random, functions, length = np.random.default_rng(3), 60, 120
    n = functions * length
    point = np.arange(n)
    ahead = point[point % length < length - 1]
    back = random.choice(ahead, n // 12)
    before = back // length * length + random.integers(0, length // 2, len(back))

    def origin(some: np.ndarray) -> np.ndarray:
        return some // length * 20 + random.integers(0, 20, len(some))

    issued = np.sort(random.choice(n, n // 8, replace=False))
    some = random.choice(n, n // 3)
    return {
        "flow": columns(np.r_[ahead, back], np.r_[ahead + 1, before]),
        "issued": columns(np.arange(len(issued)), origin(issued), issued),
        "outlives": columns(origin(some), origin(some), some),
        "used": columns(origin(point), point),
        "written": columns(random.integers(0, len(issued), n // 4), random.choice(n, n // 4)),
        "killed": columns(random.integers(0, len(issued), n // 10), random.choice(n, n // 10)),
    }


def cc() -> Facts:
    random, n = np.random.default_rng(4), 60_000
    return {"edge": columns(random.integers(0, n, n), skewed(random, n, n, 1.2))}


def crdt() -> Facts:
    random, n = np.random.default_rng(5), 20_000
    child = np.arange(1, n)
    after = np.where(random.random(n - 1) < 0.7, child - 1, (child * random.random(n - 1)).astype(np.int64))
    return {"insert": columns(child, after), "remove": columns(random.choice(n - 1, n // 4) + 1)}


def csda() -> Facts:
    random, n = np.random.default_rng(6), 60_000
    node = np.arange(n - 1)
    far = random.integers(0, n, n // 20)
    return {
        "arc": columns(
            np.r_[node[node % 50 < 49], far],
            np.r_[node[node % 50 < 49] + 1, np.minimum(far + random.integers(1, 200, len(far)), n - 1)],
        ),
        "null": columns(random.integers(0, n, 2000), random.integers(0, n, 2000)),
    }


def cspa() -> Facts:
    random, n = np.random.default_rng(7), 3000
    base = np.arange(n) // 30 * 30
    return {
        "assign": columns(base + random.integers(0, 30, n), base + random.integers(0, 30, n)),
        "dereference": columns(
            base[: n // 2] + random.integers(0, 30, n // 2), base[: n // 2] + random.integers(0, 30, n // 2)
        ),
    }


def code(random: np.random.Generator, blocks: int, length: int) -> dict[str, np.ndarray]:
    """Instructions of blocks that follow one another, with jumps between near blocks."""
    at = np.arange(blocks * length)
    inside = at[at % length < length - 1]
    k = np.arange(blocks - 1)
    near, far = k[k % 40 < 39], random.integers(0, blocks, blocks // 2)
    target = far // 40 * 40 + random.integers(0, 40, len(far))
    return {
        "next": columns(inside, inside + 1),
        "block": columns(at, at // length),
        "first": columns(np.arange(blocks), np.arange(blocks) * length),
        "last": columns(np.arange(blocks), np.arange(blocks) * length + length - 1),
        "edge": columns(np.r_[near, far], np.r_[near + 1, target]),
        "defined": columns(at[::2], random.integers(0, 16, len(at[::2]))),
        "used": columns(at, random.integers(0, 16, len(at))),
    }


def cvc5() -> Facts:
    random, blocks, length = np.random.default_rng(8), 4000, 6
    found = code(random, blocks, length)
    at, register = found["defined"].T
    is_moved = random.random(len(at)) < 0.5
    moved, added = at[is_moved], at[~is_moved]
    reg, value = random.integers(0, 16, (2, len(added)))
    return {
        **found,
        "moved": columns(moved, register[is_moved], random.integers(0, 64, len(moved))),
        "added": columns(added, register[~is_moved], reg, value),
    }


def doop() -> Facts:
    random, n = np.random.default_rng(9), 6000
    i, h, m, kinds = np.arange(4 * n), np.arange(2 * n), np.arange(n), n // 6

    def local(method: np.ndarray) -> np.ndarray:
        return method * 8 + random.integers(0, 8, len(method))

    some, near = random.integers(0, n, n), random.integers(0, n, n // 4)
    return {
        "start": columns(m[:3000]),
        "instruction": columns(i, i // 4),
        "base": columns(i, local(i // 4)),
        "name": columns(i, random.integers(0, 70, 4 * n)),
        "look": columns(random.integers(0, 70, 3 * n), random.integers(0, kinds, 3 * n), random.integers(0, n, 3 * n)),
        "allocated": columns(h, local(h // 2), h // 2),
        "kind": columns(h, random.integers(0, kinds, 2 * n)),
        "this": columns(m, m * 8),
        "argument": columns(i, i * 0, local(i // 4)),
        "parameter": columns(m, m * 0, m * 8 + 1),
        "returned": columns(m, local(m)),
        "result": columns(i, local(i // 4)),
        "move": columns(local(some), local(some)),
        "load": columns(local(near), local(near), random.integers(0, 20, len(near))),
        "store": columns(local(near), random.integers(0, 20, len(near)), local(near)),
    }


def dyck() -> Facts:
    random, n = np.random.default_rng(10), 12_000
    a = random.integers(0, n // 4, n)
    b = a // 40 * 40 + random.integers(0, 40, n)
    kind, half = random.integers(0, 2, n), n // 2
    return {"open": columns(kind[:half], a[:half], b[:half]), "close": columns(kind[half:], a[half:], b[half:])}


def galen() -> Facts:
    random, n = np.random.default_rng(11), 3000
    up = (np.arange(1, n) * random.random(n - 1)).astype(np.int64)

    def roles(count: int) -> np.ndarray:
        return columns(random.integers(0, n, count), random.integers(0, 12, count), random.integers(0, n, count))

    return {
        "sub": columns(np.arange(1, n), up),
        "some": roles(n // 2),
        "both": columns(random.integers(0, n, n // 4), random.integers(0, n, n // 4), random.integers(0, n, n // 4)),
        "under": roles(n // 4),
        "chain": columns(random.integers(0, 12, 4), random.integers(0, 12, 4), random.integers(0, 12, 4)),
        "above": columns(np.arange(6), np.arange(6) + 6),
    }


def pointsto() -> Facts:
    random, n, width = np.random.default_rng(12), 12_000, 60
    v, few = random.integers(0, n, n), random.integers(0, n, n // 3)
    return {
        "allocated": columns(v[::3], np.arange(len(v[::3]))),
        "move": columns(v, near(random, v, width)),
        "load": columns(few, near(random, few, width), random.integers(0, 4, len(few))),
        "store": columns(few[::-1], random.integers(0, 4, len(few)), near(random, few[::-1], width)),
    }


def polonius() -> Facts:
    found, random = dict(borrow()), np.random.default_rng(13)
    points = int(found["flow"].max()) + 1
    loans, origins, where = found["issued"].T
    some = np.arange(points)
    variable = some // 120 * 10 + random.integers(0, 10, points)
    owner = np.arange(int(found["used"][:, 0].max()) + 1)
    return {
        "flow": found["flow"],
        "issued": columns(origins, loans, where),
        "subset_at": found["outlives"][::2],
        "used": columns(variable, some),
        "defined": columns(some[::5] // 120 * 10 + random.integers(0, 10, len(some[::5])), some[::5]),
        "uses_origin": columns(owner // 20 * 10 + owner % 10, owner),
        "killed": found["killed"],
        "invalidated": found["written"][:, ::-1].copy(),
    }


def reach() -> Facts:
    random, n = np.random.default_rng(14), 300_000
    return {"edge": columns(random.integers(0, n, 2 * n), random.integers(0, n, 2 * n)), "start": columns(np.arange(3))}


def sg() -> Facts:
    return {"parent": tree(np.random.default_rng(15), 1500)}


def sssp() -> Facts:
    random, n = np.random.default_rng(16), 60_000
    ends = random.integers(0, n, 4 * n), random.integers(0, n, 4 * n)
    return {"edge": columns(*ends, random.integers(1, 100, 4 * n)), "start": columns(np.arange(1))}


def tc() -> Facts:
    random, n = np.random.default_rng(17), 4000
    start = random.integers(0, n, 2 * n)
    return {"edge": columns(start, np.minimum(start + random.integers(1, 60, 2 * n), n))}


def z3() -> Facts:
    random, n = np.random.default_rng(18), 1500
    b, uses = np.arange(6 * n), np.arange(8 * n)
    near = random.integers(0, n, n // 4)

    def functions() -> np.ndarray:
        return random.integers(0, n, 3 * n)

    def registers() -> np.ndarray:
        return random.integers(0, 16, 3 * n)

    return {
        "return_used": columns(random.integers(0, n, 8 * n), uses * 0, uses, uses % 2),
        "ends": columns(b[::3] // 6, b[::3]),
        "last_def": columns(np.repeat(b, 3), np.arange(18 * n), random.integers(0, 16, 18 * n)),
        "jump": columns(near, np.minimum(near + random.integers(1, 5, len(near)), n - 1)),
        "called": columns(random.integers(0, n, 2 * n), np.arange(2 * n), random.integers(0, n, 2 * n)),
        "defined": columns(
            random.integers(0, n, 3 * n), random.integers(0, 18 * n, 3 * n), random.integers(0, 16, 3 * n)
        ),
        "used": columns(functions(), random.integers(0, 8 * n, 3 * n), registers()),
    }


FACTS: dict[str, Callable[[], Facts]] = {
    made.__name__: made
    for made in (
        *(andersen, bipartite, borrow, cc, crdt, csda, cspa, cvc5, doop, dyck, galen, pointsto, polonius, reach, sg),
        *(sssp, tc, z3),
    )
}
