"""The Raven-like problems of the examples, and the four models that solve them, where attributes are given."""

import itertools

import pytest
import torch

from reasoning import abduction, learned_rules, problems, reader, superposition

SIZES = list(problems.ATTRIBUTES.values())
KINDS = ("raven", "i-raven")


def exact_masses(puzzles):
    return [torch.nn.functional.one_hot(puzzles.panels[..., k], size).float() for k, size in enumerate(SIZES)]


def blind_choice(puzzles):
    """The chance to be right for who sees the answers only, and takes the one that agrees with the others most."""
    pairs = puzzles.answers[:, :, None] == puzzles.answers[:, None]
    agreement = pairs.sum((-2, -1))
    best = agreement == agreement.amax(1, keepdim=True)
    return (best.gather(1, puzzles.right[:, None])[:, 0] / best.sum(1)).mean().item()


@pytest.mark.parametrize("kind", KINDS)
def test_problems_follow_their_rules(kind):
    puzzles = problems.generate(60, 0, kind)
    assert (puzzles.values >= 0).all()
    assert (puzzles.values < torch.tensor(SIZES)).all()
    assert set(puzzles.rules.flatten().tolist()) == set(range(len(problems.RULES)))
    for problem, attribute in itertools.product(range(60), range(4)):
        values = puzzles.values[problem, :, attribute].view(3, 3).tolist()
        name = problems.RULES[puzzles.rules[problem, attribute]]
        for a, b, c in values:
            holds = {"constant": a == b == c, "plus": a + b == c, "minus": a - b == c}
            if name.startswith("progression"):
                assert b - a == c - b == int(name.split()[1])
            elif name.startswith("three"):
                assert {a, b, c} == set(values[0])
            else:
                assert holds[name]
        if name.startswith("three"):
            assert len(set(values[0])) == 3
            assert len({row[0] for row in values}) == 3
        # No other rule gives another answer.
        given = [tuple(values[0]), tuple(values[1]), (*values[2][:2], None)]
        assert {problems.third(rule, given) for rule in problems.RULES} - {None} == {values[2][2]}


@pytest.mark.parametrize("kind", KINDS)
def test_answers(kind):
    puzzles = problems.generate(200, 1, kind)
    right = puzzles.answers[torch.arange(200), puzzles.right]
    assert torch.equal(right, puzzles.values[:, 8])
    assert all(len(torch.unique(answers, dim=0)) == 8 for answers in puzzles.answers)
    altered = (puzzles.answers != right[:, None]).sum(-1)
    assert altered.max() == (1 if kind == "raven" else 3)
    # The shortcut that I-RAVEN closes.
    assert blind_choice(puzzles) == pytest.approx(1 if kind == "raven" else 1 / 8, abs=0.01)
    assert torch.equal(problems.generate(200, 1, kind).panels, puzzles.panels)


def test_pictures_show_the_attributes():
    """The ink of each cell, size and colour; a circle is not turned."""
    values = torch.tensor([[4, size, colour, position] for size, colour, position in ((0, 0, 0), (5, 0, 4), (5, 9, 8))])
    pictures = problems.draw(values, 0, noise=0)
    assert pictures.shape == (3, 1, 80, 80)
    ink = pictures[:, 0].clamp(min=0)
    place = torch.arange(80) + 0.5
    for picture, (_, _, _, position) in zip(ink, values.tolist()):
        centre = [(picture.sum(1 - axis) * place).sum() / picture.sum() for axis in (0, 1)]
        assert [int(coordinate * 3 / 80) for coordinate in centre] == [position // 3, position % 3]
    amounts = ink.sum((-2, -1))
    assert amounts[0] < amounts[1] < amounts[2]
    assert amounts[2].item() == pytest.approx(3.14 * 11.75**2 * 0.9, rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_abduction_solves_every_problem(kind):
    """On block codes and on probabilities, with the same rules; soft masses give nearly the same scores by both."""
    puzzles = problems.generate(100, 2, kind)
    models = abduction.nvsa(torch.nn.Identity(), 2, 32), abduction.prae(torch.nn.Identity())
    for model in models:
        scores, weights = model.reason(exact_masses(puzzles))
        assert torch.equal(scores.argmax(-1), puzzles.right)
        assert (weights.argmax(-1) == puzzles.rules).float().mean() > 0.98
    soft = [(mass + 0.05) / (mass + 0.05).sum(-1, keepdim=True) for mass in exact_masses(puzzles)]
    (first, _), (second, _) = (model.reason(soft) for model in models)
    assert torch.equal(first.argmax(-1), puzzles.right)
    assert torch.equal(second.argmax(-1), puzzles.right)


def test_rules_are_learned():
    formulas = learned_rules.learn(problems.generate(300, 3), steps=60, batch=32)
    puzzles = problems.generate(200, 4)
    model = learned_rules.lvrf(torch.nn.Identity(), formulas, 2, 32)
    scores, _ = model.reason(exact_masses(puzzles))
    assert (scores.argmax(-1) == puzzles.right).float().mean() > 0.95
    untrained = learned_rules.lvrf(torch.nn.Identity(), None, 2, 32)
    scores, _ = untrained.reason(exact_masses(puzzles))
    assert (scores.argmax(-1) == puzzles.right).float().mean() < 0.7


def traced(model, example):
    graph = torch.fx.symbolic_trace(model.eval())
    found, expected = graph(example), model(example)
    pairs = zip(found, expected) if isinstance(found, tuple) else [(found, expected)]
    assert all(torch.equal(first, second) for first, second in pairs)
    return {getattr(node.target, "__name__", node.target) for node in graph.graph.nodes}


def test_all_models_can_be_traced():
    example = problems.draw(problems.generate(2, 5).panels, 0)
    front = reader.Reader(width=4)
    symbolic = {"bind", "unbind", "bundle", "match_probability", "mass_to_vector"}
    assert symbolic <= traced(abduction.nvsa(front, 2, 32), example)
    assert symbolic <= traced(learned_rules.lvrf(front, None, 2, 32), example)
    assert not symbolic & traced(abduction.prae(front), example)
    assert {"bind", "unbind", "bundle"} <= traced(superposition.mimonet(2, 2, 8), example[:, :2])


def test_gradients_reach_the_reader():
    puzzles = problems.generate(2, 6)
    model = abduction.nvsa(reader.Reader(width=4), 2, 32)
    scores, _ = model(problems.draw(puzzles.panels, 0))
    torch.nn.functional.cross_entropy(scores, puzzles.right).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.reader.top.parameters())


def test_a_superposed_reader_knows_its_inputs_by_their_keys():
    """Inputs, keys and own keys exchanged together exchange the results."""
    torch.manual_seed(0)
    network = superposition.mimonet(2, 2, 8).eval()
    pictures = problems.draw(torch.tensor([[[0, 5, 9, 0], [4, 5, 0, 8]]]), 0)
    first, second = network(pictures)[0]
    assert not torch.allclose(first, second)
    with torch.no_grad():
        network.keys.copy_(network.keys.flip(0).clone())
        network.own_keys.copy_(network.own_keys.flip(0).clone())
    assert torch.allclose(network(pictures.flip(1))[0], torch.stack([second, first]), atol=1e-5)
