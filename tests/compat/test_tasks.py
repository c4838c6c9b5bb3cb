"""Programs of the kinds that scallopy is used for, small: formulas, mazes, families."""

import itertools

import pytest
import torch

import derivable.compat.scallopy as scallopy


def test_handwritten_formulas():
    """Symbols with probabilities, formulas of any length, results that are whatever is derived (HWF)."""
    module = scallopy.Module(
        program="""
        type symbol(index: usize, symbol: String), length(n: usize)
        type factor(value: f32, begin: usize, end: usize)
        rel digit = {("0", 0.0), ("1", 1.0), ("2", 2.0), ("3", 3.0)}
        rel factor(x as f32, b, b + 1) = symbol(b, s), digit(s, x)
        rel term(x, b, r) = factor(x, b, r)
        rel term(x * y, b, e) = term(x, b, m), symbol(m, "*"), factor(y, m + 1, e)
        rel total(x, b, e) = term(x, b, e)
        rel total(x + y, b, e) = total(x, b, m), symbol(m, "+"), term(y, m + 1, e)
        rel result(y) = total(y, 0, l), length(l)
        """,
        provenance="difftopkproofs",
        k=5,
        facts=None,
        non_probabilistic=["length"],
        output_relation="result",
        dispatch="parallel",
    )
    p = torch.tensor(0.75, requires_grad=True)
    symbols = [
        [(p, (0, "2")), (1 - p, (0, "3")), (torch.tensor(1.0), (1, "*")), (torch.tensor(0.5), (2, "3"))],
        [(torch.tensor(1.0), (0, "1"))],
    ]
    disjunctions = {"symbol": [[[0, 1]], []]}
    values, y = module(symbol=symbols, length=[[(3,)], [(1,)]], disjunctions=disjunctions)
    found = {row[0]: y[:, i].tolist() for i, row in enumerate(values)}
    assert found == {6.0: [0.375, 0.0], 9.0: [0.125, 0.0], 1.0: [0.0, 1.0]}
    y[0, values.index((6.0,))].backward()
    assert p.grad is not None
    assert float(p.grad) == 0.5


MAZE = """
    type node(x: i32, y: i32), actor(x: i32, y: i32), goal(x: i32, y: i32), enemy(x: i32, y: i32)
    const UP = 0, DOWN = 1, RIGHT = 2, LEFT = 3
    rel safe(x, y) = node(x, y) and not enemy(x, y)
    rel edge(x, y, x, y + 1, UP) = safe(x, y) and safe(x, y + 1)
    rel edge(x, y, x, y - 1, DOWN) = safe(x, y) and safe(x, y - 1)
    rel edge(x, y, x + 1, y, RIGHT) = safe(x, y) and safe(x + 1, y)
    rel edge(x, y, x - 1, y, LEFT) = safe(x, y) and safe(x - 1, y)
    rel path(x, y, x, y) = node(x, y)
    rel path(x, y, a, b) = path(x, y, c, d) and edge(c, d, a, b, _)
    rel next_action(a) = actor(x, y), edge(x, y, c, d, a), path(c, d, g, h), goal(g, h)
    rel too_many_goals() = n := count!(x, y: goal(x, y)), n > 9
"""


def test_mazes():
    cells = [(x, y) for x in range(3) for y in range(3)]
    module = scallopy.ScallopForwardFunction(
        program=MAZE,
        provenance="difftopkproofs",
        k=1,
        facts={"node": [(torch.tensor(0.99), cell) for cell in cells]},
        input_mappings={"actor": cells, "goal": cells, "enemy": cells},
        retain_topk={"actor": 1, "goal": 1, "enemy": 2},
        output_mappings={"next_action": list(range(4)), "too_many_goals": ()},
        retain_graph=True,
    )

    def at(*places, p=0.9):
        values = torch.full((1, 9), 0.01)
        for place in places:
            values[0, cells.index(place)] = p
        return values

    actor = at((0, 0)).requires_grad_()
    enemy = at((1, 0), (2, 2), p=0.8).requires_grad_()
    out = module(actor=actor, goal=at((0, 2)), enemy=enemy)
    y = out["next_action"][0]
    # Up, up; the way to the right begins with the enemy.
    assert y.argmax() == 0
    assert y[0].item() == pytest.approx(0.9 * 0.9 * 0.99**3, rel=1e-5)
    assert y[2].item() < 0.5
    assert out["too_many_goals"].item() == 0.0
    y[2].backward()
    assert enemy.grad is not None
    assert float(enemy.grad[0, cells.index((1, 0))]) < 0.0


def test_families():
    """Relations that a model reads from a story, and a table of compositions with weights that are learned (CLUTRR)."""
    names = ["daughter", "sister", "son", "mother", "father"]
    ctx = scallopy.ScallopContext(provenance="difftopkproofs", k=3)
    triples = [(a, b, c) for a, b, c in itertools.product(range(5), repeat=3)]
    ctx.add_relation("question", (str, str), non_probabilistic=True)
    ctx.add_relation("kinship", ("usize", str, str))
    ctx.add_relation("composition", ("usize", "usize", "usize"), input_mapping=triples, retain_topk=20)
    ctx.add_program("""
        rel derived(r, a, b) = kinship(r, a, b)
        rel derived(r, a, c) = composition(r1, r2, r), derived(r1, a, b), derived(r2, b, c), a != c
        rel answer(r) = question(a, b), derived(r, a, b)
    """)
    answer = ctx.forward_function("answer", output_mapping=[(i,) for i in range(5)])
    weights = torch.nn.Parameter(torch.full((len(triples),), -2.0))
    told = [
        [(torch.tensor(0.9), (names.index("mother"), "a", "b")), (torch.tensor(0.8), (names.index("son"), "b", "c"))],
        [(torch.tensor(1.0), (names.index("father"), "a", "b"))],
    ]
    question = [[("a", "c")], [("a", "b")]]
    optimiser = torch.optim.Adam([weights], lr=0.2)
    target = torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
    first = None
    for _ in range(25):
        y = answer(question=question, kinship=told, composition=weights.sigmoid().expand(2, -1))
        loss = torch.nn.functional.binary_cross_entropy(y, target)
        first = first or loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    # "mother" and "son" make "sister": the weight of that triple has become the largest of the five.
    at = triples.index((names.index("mother"), names.index("son"), 0))
    assert int(weights[at : at + 5].argmax()) == 1
    assert loss.item() < 0.6 * first
