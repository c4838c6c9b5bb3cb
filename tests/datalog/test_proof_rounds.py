"""Rounds of top-k proofs end where nothing that rows keep derives a proof that a row should keep, but does not."""

import itertools

import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog.naive import fact_sets, programs, solutions, text_of
from datalog.test_proofs import Reference
from derivable.datalog.tags.random_facts import RandomFacts
from drawn import examples

# Two proofs of way(5), with a and b and with a and c, leave for a alone, which is a longer way.
DETOUR = """type step(i32, i32)
rel step = {0.9::(0, 1), 0.8::(1, 2), 0.7::(1, 3), 0.1::(0, 4)}
rel step = {(2, 5), (3, 5), (4, 5), (1, 6), (6, 7), (7, 5)}
rel way(0)
rel way(y) = way(x), step(x, y)
query way
"""


def test_a_proof_that_was_too_bad_comes_back_where_two_better_ones_become_one():
    found = dv.Program(DETOUR).run({}, "topkproofsdebug", k=2)["way"]
    assert found[5,] == (pytest.approx(0.91), {frozenset({0}), frozenset({3})})


def test_a_sample_of_a_batch_and_a_run_that_goes_on_have_it_as_well():
    import torch

    rules = DETOUR.replace("rel step = {0.9::(0, 1), 0.8::(1, 2), 0.7::(1, 3), 0.1::(0, 4)}\n", "")
    chances, edges = [0.9, 0.8, 0.7, 0.1], [(0, 1), (1, 2), (1, 3), (0, 4)]
    layer = dv.nn.Logic(rules.replace("query way\n", ""), {"step": dv.varying()}, {"way": [5]}, "topkproofs", k=2)
    p = torch.tensor(chances, dtype=torch.float64)
    few = edges[:3], p[:3]
    assert layer(step=[(edges, p), few, (edges, p)])[:, 0].tolist() == pytest.approx([0.91, 0.9, 0.91])
    # The long way is added to a run that has dropped the last proof.
    begun = rules.replace(", (7, 5)}", "}")
    first = dv.Program(begun).run({"step": [*zip(chances, edges)]}, "topkproofs", k=2, keep=True)
    assert first["way"][5,] == pytest.approx(0.9 * (1 - 0.2 * 0.3))
    first.add({"step": [(7, 5)]})
    assert first["way"][5,] == pytest.approx(0.91)


@examples(25, 1500, programs(), fact_sets(), st.integers(1, 3), st.integers(0, 999))
def test_nothing_that_rows_keep_derives_a_proof_that_a_row_should_keep(program, facts, k, seed):
    """Of rule instances with up to two uncertain literals: of more the best products of two are multiplied first."""
    (rules, order), rng, random = program, np.random.default_rng(seed), RandomFacts()
    texts, given, proofs = [], {}, {}
    for name, rows in facts.items():
        rows, given[name] = [*rows], []
        while rows:
            size = min(int(rng.integers(1, 4)), len(rows))
            own, rows = rows[:size], rows[size:]
            if size == 1 and rng.random() < 0.4:
                given[name] += own
                proofs |= {(name, row): [frozenset()] for row in own}
                continue
            chances = rng.dirichlet(np.ones(size + 1))[:size] if size > 1 else rng.uniform(0.05, 0.95, 1)
            variables = random.add_choice(chances) if size > 1 else random.add(chances)
            values = [f"{p!r}::({', '.join(map(str, row))},)" for p, row in zip(chances.tolist(), own)]
            texts.append(f"rel {name} = {{{'; '.join(values).replace(',)', ')')}}}")
            proofs |= {(name, row): [frozenset({v + 1})] for v, row in zip(variables.tolist(), own)}
    text = "\n".join([text_of(rules), *texts, *(f"query {name}" for name in order)])
    found = dv.Program(text).run(given, "topkproofsdebug", k=k)
    reference = Reference(random, k)
    for name in order:
        for row, (_, some) in found[name].items():
            proofs[name, row] = reference.best({frozenset(n + 1 if n >= 0 else n for n in one) for one in some})
    model = {name: {row for other, row in proofs if other == name} for name in [*facts, *order]}
    for name, arity in {name: len(arguments) for name, arguments, _ in rules}.items():
        for row in itertools.product(range(4), repeat=arity):
            kept = proofs.get((name, row), [])
            derived = set(kept).union(*_derived(rules, name, row, model, proofs, reference))
            # Proofs of the same probability may be kept one for another.
            assert _costs(reference, kept) == _costs(reference, reference.best(derived)), (name, row)


def _costs(reference, proofs):
    return [(round(reference.chance(proof), 9), len(proof)) for proof in proofs]


def _derived(rules, name, row, model, proofs, reference):
    """The proofs of a tuple by each instance of a rule."""
    for head, arguments, body in rules:
        positive = [literal for literal in body if literal[0] != "-"]
        for world in solutions(positive, model) if head == name else ():
            if tuple(world.get(a, a) for a in arguments) != row:
                continue
            factors = []
            for kind, relation, terms in (literal for literal in body if literal[0] in "+-"):
                own = proofs.get((relation, tuple(world.get(a, a) for a in terms)), [])
                factors.append(own if kind == "+" else reference.negate(own))
            factors = [factor for factor in factors if factor != [frozenset()]]
            if len(factors) <= 2:
                yield reference.every(*[*factors, [frozenset()], [frozenset()]][:2])
