"""Sets of proofs as rows of bits, against sets of Python's frozensets."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.datalog.kernels import proof_fold
from derivable.datalog.kernels.proofs import ONE, ZERO
from derivable.datalog.tags.proof_store import ProofStore
from derivable.datalog.tags.random_facts import RandomFacts

INDEPENDENT, CHOICES = 5, (3, 2)


class Reference:
    """Proofs as frozensets of signed facts from 1 on; sets as lists of them, best first."""

    def __init__(self, facts, k):
        self.chances, self.groups, self.k = facts.probabilities, [set(g.tolist()) for g in facts.groups], k

    def group(self, literal):
        return next((g for g, group in enumerate(self.groups) if abs(literal) - 1 in group), None)

    def chance(self, proof):
        denied = {}
        result = 1.0
        for literal in proof:
            p, g = self.chances[abs(literal) - 1], self.group(literal)
            if literal < 0 and g is not None:
                denied[g] = denied.get(g, 0.0) + p
            else:
                result *= p if literal > 0 else 1 - p
        return result * np.prod([1 - p for p in denied.values()])

    def probability(self, proofs):
        """The sum over all worlds, which are sets of the facts that hold."""
        grouped = set().union(*self.groups)
        total = 0.0
        free = [v for v in range(INDEPENDENT) if v not in grouped]
        for held in product([False, True], repeat=len(free)):
            for chosen in product(*map(sorted, self.groups)):
                world = {v for v, holds in zip(free, held) if holds} | set(chosen)
                if any(all((abs(x) - 1 in world) == (x > 0) for x in proof) for proof in proofs):
                    total += np.prod([self.chances[v] if v in world else 1 - self.chances[v] for v in free]) * np.prod(
                        [self.chances[v] for v in chosen]
                    )
        return total

    def simplified(self, proof):
        used = [self.group(x) for x in proof if x > 0 and self.group(x) is not None]
        if any(-x in proof for x in proof) or len(set(used)) < len(used):
            return None
        proof = frozenset(x for x in proof if x > 0 or self.group(x) not in used)
        for group in self.groups:
            if all(-v - 1 in proof for v in group):
                return None
        return proof

    def best(self, proofs):
        minimal = {p for p in proofs if not any(other < p for other in proofs)}
        # All values of a choice but one are denied: as probable as that one, but for rounding.
        return sorted(minimal, key=lambda proof: (-round(self.chance(proof), 12), len(proof)))[: self.k]

    def plus(self, a, b):
        return self.best({*a, *b})

    def times(self, a, b):
        return self.best(self.every(a, b))

    def every(self, a, b):
        return {self.simplified(x | y) for x, y in product(a, b)} - {None}

    def negate(self, a):
        result = [frozenset()]
        for proof in a:
            result = self.times(result, [p for x in proof if (p := self.simplified({-x})) is not None])
        return result


def random_facts(seed):
    """Independent facts and choices, and their sums of products have no two of the same probability."""
    rng = np.random.default_rng(seed)
    facts = RandomFacts()
    facts.add(rng.uniform(0.05, 0.95, INDEPENDENT))
    for size in CHOICES:
        facts.add_choice(rng.dirichlet(np.ones(size + 1))[:size])
    return facts


OPERATIONS = st.lists(st.tuples(st.sampled_from(["plus", "times", "negate"]), st.integers(0, 99), st.integers(0, 99)))


@pytest.mark.parametrize("widest", [16, 5, 0])
@settings(max_examples=20, deadline=None)
@given(OPERATIONS, st.integers(1, 4), st.integers(0, 99), st.booleans())
def test_operations_are_those_on_sets(widest, operations, k, seed, spread):
    """As one block, as one that becomes several blocks, and as several."""
    facts = random_facts(seed)
    if seed % 2:
        # Each of a sample of a batch, and facts of several samples meet.
        facts.samples.append(np.random.default_rng(seed).integers(0, 3, len(facts.probabilities)))
    store, reference = ProofStore(facts, k, widest), Reference(facts, k)
    variables = np.arange(len(facts.probabilities))
    if spread:
        # Literals of other facts come in between.
        others = facts.add(np.full(300, 0.5))
        for variable in variables:
            store.singles(others[37 * variable : 37 * variable + 30])
            store.singles(variables[variable : variable + 1])
    tags = store.singles(variables).tolist()
    expected = [[frozenset([v + 1])] for v in variables.tolist()]
    for operation, i, j in operations:
        chosen = [i % len(tags)] if operation == "negate" else [i % len(tags), j % len(tags)]
        tags += getattr(store, operation)(*(np.array([tags[c]]) for c in chosen)).tolist()
        expected.append(getattr(reference, operation)(*(expected[c] for c in chosen)))
    assert [[frozenset(p) for p in store.proofs_of(tag)] for tag in tags] == expected
    shown = store.probability_of(np.array(tags)).tolist()
    assert shown == pytest.approx([reference.probability(proofs) for proofs in expected])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 999), st.integers(1, 30), st.booleans())
def test_rows_get_the_best_of_what_they_had_and_of_products_in_any_order(k, seed, count, is_news):
    rng = np.random.default_rng(seed)
    facts = random_facts(seed)
    store, reference = ProofStore(facts, k), Reference(facts, k)
    tags = store.singles(np.arange(len(facts.probabilities)))
    tags = np.concatenate([[ONE], tags, store.negate(tags)])
    for _ in range(2):
        pairs = tags[rng.integers(0, len(tags), (2, 8))]
        tags = np.concatenate([tags, store.times(*pairs), store.plus(*pairs)])
    tags = tags[tags != ZERO]
    rows, (a, b) = rng.integers(0, 5, count), tags[rng.integers(0, len(tags), (2, count))]
    possible = store.are_possible(a, b)
    possible = np.ones(count, bool) if possible is None else possible

    def proofs_of(tag):
        return [frozenset(proof) for proof in store.proofs_of(int(tag))]

    products = [reference.every(proofs_of(x), proofs_of(y)) for x, y in zip(a, b)]
    assert possible.tolist() == [bool(product) for product in products]
    # Those from 3 on are new; the others have a set that may be part of what they get.
    before = np.where(np.arange(5) < 3, tags[rng.integers(0, len(tags), 5)], -1)
    wanted = {}
    for row in set(rows[possible].tolist()):
        derived = set().union(*(product for r, product in zip(rows, products) if r == row))
        wanted[row] = reference.best(derived.union(proofs_of(before[row]) if row < 3 else ()))
    for order in (np.flatnonzero(possible), np.flatnonzero(possible)[::-1]):
        after, news = before.copy(), np.full(5, -1)
        listed, following = np.empty((2, len(order)), np.int64)
        last = np.zeros(5, np.int64)
        listed = listed[: proof_fold.chain(rows[order], last, following, listed)]
        given = np.ascontiguousarray(a[order]), np.ascontiguousarray(b[order])
        changed = store.fold((listed, last, following), *given, 3, after, news if is_news else None)
        assert not last.any()
        found = dict(zip(listed.tolist(), changed.tolist()))
        assert found.keys() == wanted.keys()
        for row, expected in wanted.items():
            old = proofs_of(before[row]) if row < 3 else []
            assert found[row] == (expected != old)
            assert proofs_of(after[row]) == expected
            if found[row] and is_news:
                assert proofs_of(news[row]) == [proof for proof in expected if proof not in old]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_rows_get_equally_probable_proofs_in_the_order_of_sums(k):
    rng = np.random.default_rng(k)
    facts = RandomFacts()
    store = ProofStore(facts, k)
    tags = store.singles(facts.add(np.full(9, 0.5)))
    tags = np.concatenate([tags, store.times(*tags[rng.integers(0, 9, (2, 20))])])
    rows, (a, b) = np.sort(rng.integers(0, 40, 200)), tags[rng.integers(0, len(tags), (2, 200))]
    before = tags[rng.integers(0, len(tags), 40)]
    for order in (np.arange(200), np.arange(200)[::-1]):
        after, last = before.copy(), np.zeros(40, np.int64)
        listed, following = np.empty((2, 200), np.int64)
        listed = listed[: proof_fold.chain(rows[order], last, following, listed)]
        store.fold((listed, last, following), a[order], b[order], 40, after, None)
        for row in range(40):
            own = np.concatenate([before[row : row + 1], store.times(a[rows == row], b[rows == row])])
            expected = store.reduce(own, np.array([0, len(own)]))
            assert store.proofs_of(int(after[row])) == store.proofs_of(int(expected[0]))


def test_columns_are_longer_than_their_room():
    """Thousands of pairs at once, whose sets need more room than there is."""
    rng = np.random.default_rng(0)
    facts = RandomFacts()
    facts.add(rng.uniform(0.1, 0.9, 40))
    store, reference = ProofStore(facts, 2), Reference(facts, 2)
    pairs = rng.integers(0, 40, (2, 3000))
    tags = store.singles(np.arange(40))
    products = store.times(tags[pairs[0]], tags[pairs[1]])
    sums = store.reduce(products, np.arange(0, 3001, 3))
    squares = store.times(sums[:900], sums[100:1000])
    sets = [[frozenset((a + 1, b + 1))] for a, b in pairs.T.tolist()]
    added = [reference.best({sets[i][0], sets[i + 1][0], sets[i + 2][0]}) for i in range(0, 3000, 3)]
    for i in (*range(0, 900, 97), 899):
        expected = reference.times(added[i], added[i + 100])
        assert [frozenset(p) for p in store.proofs_of(int(squares[i]))] == expected


def test_a_product_of_long_sets_is_made_in_parts():
    """(a1 or a2 or ...) and (b1 or b2 or ...) have 90 * 80 pairs of proofs, of which the best are known."""
    facts, k = RandomFacts(), 100
    chances = np.random.default_rng(1).uniform(0.1, 0.9, 170)
    facts.add(chances)
    store = ProofStore(facts, k)
    tags = store.singles(np.arange(170))
    a, b = store.reduce(tags, np.array([0, 90, 170]))[:, None]
    found = [set(proof) for proof in store.proofs_of(int(store.times(a, b)[0]))]
    order = np.argsort(-np.multiply.outer(chances[:90], chances[90:]).reshape(-1))[:k]
    assert found == [{1 + i // 80, 91 + i % 80} for i in order.tolist()]


def test_the_best_proof_of_a_path_is_the_most_probable_way():
    import networkx as nx

    rng = np.random.default_rng(5)
    graph = nx.gnp_random_graph(30, 0.15, seed=2, directed=True)
    edges = {edge: float(rng.uniform(0.05, 0.95)) for edge in graph.edges}
    nx.set_edge_attributes(graph, {edge: -np.log(p) for edge, p in edges.items()}, "length")
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph, weight="length"))
    text = "type e(u32, u32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nquery p"
    found = dv.Program(text).run({"e": [(p, edge) for edge, p in edges.items()]}, "topkproofs", k=1)["p"]
    expected = {(a, b): np.exp(-d) for a, ways in lengths.items() for b, d in ways.items() if a != b}
    assert {ends: p for ends, p in found.items() if ends[0] != ends[1]} == pytest.approx(expected)


def test_very_unlikely_proofs_have_an_order():
    """The probabilities of all of these are zero as floats."""
    facts = RandomFacts()
    facts.add(np.array([1e-200, 1e-200, 1e-160, 1e-230]))
    store = ProofStore(facts, 2)
    a, b, c, d = store.singles(np.arange(4))[:, None]
    both = store.plus(store.times(a, b), store.times(c, d))
    assert store.proofs_of(int(both[0])) == [(3, 4), (1, 2)]


@pytest.mark.parametrize("k", [1, 2])
def test_proofs_of_one_probability_have_the_same_order_wherever_their_bits_are(k):
    """A batch gives a sample's facts other numbers than a run of the sample by itself."""
    rng = np.random.default_rng(k)
    facts = RandomFacts()
    variables, others = facts.add(np.full(12, 0.5)), facts.add(np.full(400, 0.5))
    chosen = rng.integers(0, 12, (3, 40))
    found = []
    for gap in (0, 1, 7, 33):
        store = ProofStore(facts, k, 2)
        for variable in variables.tolist():
            store.singles(others[gap * variable : gap * variable + gap])
            store.singles(np.array([variable]))
        a, b, c = (store.singles(variables[row]) for row in chosen)
        sums = store.reduce(store.times(store.times(a, b), c), np.arange(0, 41, 8))
        sums = np.append(sums, store.negate(sums[:2]))
        found.append([store.proofs_of(int(tag)) for tag in sums])
    assert [[[*map(sorted, s)] for s in one] for one in found[1:]] == [[[*map(sorted, s)] for s in found[0]]] * 3


def test_more_proofs_than_the_stack_is_deep():
    """1,200 proofs of one fact each: one is branched on after the other."""
    database = dv.Program("rel a() = u(x)\nquery a").run({"u": dict.fromkeys(range(1200), 0.001)}, "topkproofs", k=1200)
    assert database["a"][()] == pytest.approx(1 - 0.999**1200, rel=1e-9)
