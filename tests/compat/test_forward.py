"""Forward functions and modules, as programs written for scallopy use them."""

import copy
import itertools
import pickle
import random

import pytest
import torch

import derivable.compat.scallopy as scallopy
from derivable.core.diagnostics import DerivableError


def softmax(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator).softmax(-1)


def sum_2(first, second):
    """[sample, sum] for independent facts [sample, digit]: 1 - the product over pairs that are none, to first order
    right where one pair counts."""
    total = torch.zeros(len(first), 2 * first.shape[1] - 1, dtype=first.dtype)
    for a, b in itertools.product(range(first.shape[1]), repeat=2):
        total[:, a + b] += first[:, a] * second[:, b]
    return total


def context(provenance="difftopkproofs", size=3, **options):
    ctx = scallopy.ScallopContext(provenance=provenance, **options)
    ctx.add_relation("digit_1", int, input_mapping=range(size))
    ctx.add_relation("digit_2", int, input_mapping=list(range(size)))
    ctx.add_rule("sum_2(a + b) = digit_1(a), digit_2(b)")
    return ctx


@pytest.mark.parametrize("dispatch", ["single", "serial", "parallel"])
def test_sum_2(dispatch):
    ctx = context("diffaddmultprob")
    forward = ctx.forward_function("sum_2", range(5), dispatch=dispatch, jit=True, recompile=True, sparse_jacobian=True)
    a, b = softmax(4, 3).requires_grad_(), softmax(4, 3, seed=1).requires_grad_()
    y = forward(digit_1=a, digit_2=b)
    assert y.shape == (4, 5)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, sum_2(a, b))
    target = torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 4]), 5).float()
    torch.nn.functional.binary_cross_entropy(y, target).backward()
    assert a.grad is not None
    found = a.grad.clone(), b.grad
    a.grad = b.grad = None
    torch.nn.functional.binary_cross_entropy(sum_2(a, b), target).backward()
    torch.testing.assert_close(found, (a.grad, b.grad))


def test_sum_2_with_exclusive_digits_and_proofs():
    ctx = scallopy.ScallopContext("difftopkproofs", k=9)
    for name in ("digit_1", "digit_2"):
        ctx.add_relation(name, int)
        ctx.set_input_mapping(name, range(3), disjunctive=True)
    ctx.add_rule("sum_2(a + b) = digit_1(a), digit_2(b)")
    a, b = softmax(4, 3).requires_grad_(), softmax(4, 3, seed=1)
    y = ctx.forward_function("sum_2", list(range(5)))(digit_1=a, digit_2=b)
    torch.testing.assert_close(y, sum_2(a, b))
    y[:, 2].sum().backward()
    expected = torch.stack([b[:, 2], b[:, 1], b[:, 0]], 1)
    torch.testing.assert_close(a.grad, expected)


def test_training_learns_digits_from_sums():
    """A network that knows nothing, and the sum alone as supervision."""
    torch.manual_seed(0)
    logits = torch.nn.Parameter(0.1 * torch.randn(3, 3))
    module = scallopy.Module(
        program="rel sum_2(a + b) = digit_1(a), digit_2(b)",
        relations=[("digit_1", int), ("digit_2", int)],
        input_mappings={"digit_1": range(3), "digit_2": range(3)},
        output_relation="sum_2",
        output_mapping=range(5),
        provenance="diffaddmultprob",
        retain_graph=True,
    )
    optimiser = torch.optim.Adam([logits], 0.1)
    pairs = torch.tensor(list(itertools.product(range(3), repeat=2)))
    target = torch.nn.functional.one_hot(pairs.sum(1), 5).float()
    for _ in range(60):
        p = logits.softmax(1)
        y = module(digit_1=p[pairs[:, 0]], digit_2=p[pairs[:, 1]])
        loss = torch.nn.functional.binary_cross_entropy(y.clamp(0, 1), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert logits.argmax(1).tolist() == [0, 1, 2]


def test_output_mappings():
    a, b = softmax(2, 3), softmax(2, 3, seed=1)
    ctx = context()
    ctx.add_rule("even() = sum_2(x), x % 2 == 0")
    tuples, y = ctx.forward_function("sum_2")(digit_1=a, digit_2=b)
    assert tuples == [(i,) for i in range(5)]
    assert y.shape == (2, 5)
    mapped = ctx.forward_function("sum_2", [(4,), 0, (99,)])(digit_1=a, digit_2=b)
    torch.testing.assert_close(mapped[:, 0], y[:, 4])
    torch.testing.assert_close(mapped[:, 1], y[:, 0])
    assert mapped[:, 2].tolist() == [0.0, 0.0]
    assert ctx.forward_function("even", ())(digit_1=a, digit_2=b).shape == (2,)
    one = ctx.forward_function("sum_2", (2,))(digit_1=a, digit_2=b)
    torch.testing.assert_close(one, y[:, 2])
    both = ctx.forward_function(output_mappings={"sum_2": range(5), "even": ()})(digit_1=a, digit_2=b)
    assert set(both) == {"sum_2", "even"}
    torch.testing.assert_close(both["sum_2"], y)
    some = ctx.forward_function(output_mappings={"sum_2": {0: range(5)}, "even": ()})
    torch.testing.assert_close(some(digit_1=a, digit_2=b, outputs=["sum_2"]), y)
    later = ctx.forward_function("sum_2", range(3))
    torch.testing.assert_close(later(digit_1=a, digit_2=b, output_mappings=range(5)), y)
    assert later(digit_1=a, digit_2=b, output_relations="even", output_mappings=()).shape == (2,)


def test_outputs_that_nothing_derives():
    ctx = context()
    ctx.add_relation("never", int)
    ctx.add_rule("none(x) = never(x), digit_1(x)")
    tuples, y = ctx.forward_function("none")(digit_1=softmax(2, 3), digit_2=softmax(2, 3))
    assert tuples == []
    assert y.shape == (2, 0)
    y = ctx.forward_function("none", range(2))(digit_1=softmax(2, 3), digit_2=softmax(2, 3))
    assert y.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert y.requires_grad


def test_an_output_relation_for_each_sample():
    ctx = context()
    ctx.add_rule("difference(a - b) = digit_1(a), digit_2(b)")
    forward = ctx.forward_function()
    a, b = softmax(3, 3), softmax(3, 3, seed=1)
    names = ["sum_2", "difference", "sum_2"]
    y = forward(digit_1=a, digit_2=b, output_relations=names, output_mappings=[0, 1])
    for place, name in enumerate(names):
        alone = ctx.forward_function(name, [0, 1])(digit_1=a, digit_2=b)
        torch.testing.assert_close(y[place], alone[place])


def test_lists_of_facts_that_differ_from_sample_to_sample():
    ctx = scallopy.ScallopContext("difftopkproofs", k=5)
    ctx.add_relation("edge", (int, int))
    ctx.add_relation("start", int, non_probabilistic=True)
    ctx.add_facts("edge", [(None, (7, 8))])
    ctx.add_rule("reached(x) = start(x) or (reached(y) and edge(y, x))")
    p = torch.tensor([0.5, 0.25, 0.125], requires_grad=True)
    edges = [[(p[0], (0, 1)), (p[1], (1, 2))], [(p[2], (0, 7))], []]
    tuples, y = ctx.forward_function("reached")(edge=edges, start=[[(0,)], [(0,)], [(5,)]])
    assert tuples == [(0,), (1,), (2,), (5,), (7,), (8,)]
    expected = [[1, 0.5, 0.125, 0, 0, 0], [1, 0, 0, 0, 0.125, 0.125], [0, 0, 0, 1, 0, 0]]
    assert y.tolist() == expected
    y[0, 2].backward()
    assert p.grad is not None
    assert p.grad.tolist() == [0.25, 0.5, 0.0]


def test_exclusive_facts_of_samples():
    ctx = scallopy.ScallopContext("difftopkproofs", k=5)
    ctx.add_relation("obj", (int, str))
    ctx.add_rule('both() = obj(0, "red"), obj(0, "blue")')
    ctx.add_rule("any(c) = obj(_, c)")
    facts = [(torch.tensor(0.5), (0, "red")), (torch.tensor(0.25), (0, "blue")), (torch.tensor(0.25), (1, "red"))]
    forward = ctx.forward_function("both", ())
    y = forward(obj=[facts, facts], disjunctions={"obj": [[[0, 1]], []]})
    assert y.tolist() == pytest.approx([0.0, 0.125])
    any_red = ctx.forward_function("any", ("red",))(obj=[facts])
    assert any_red.tolist() == pytest.approx([1 - 0.5 * 0.75])


@pytest.mark.parametrize("provenance", ["topkproofs", "difftopkproofs"])
def test_exclusive_facts_that_are_too_probable(provenance):
    """Their sum is cut at 1, and has the gradient of a sum."""
    p = torch.tensor([0.9, 0.8], requires_grad=True)
    ctx = scallopy.ScallopContext(provenance)
    ctx.add_relation("a", int)
    ctx.add_rule("some() = a(x)")
    ctx.add_facts("a", [(p[0], 0), (p[1], 1)], disjunctions=[[0, 1]])
    ctx.run()
    ((tag, _),) = ctx.relation("some")
    assert torch.as_tensor(tag).item() == 1.0
    if provenance == "difftopkproofs":
        assert torch.autograd.grad(tag, p)[0].tolist() == [1.0, 1.0]
        y = ctx.forward_function("some", ())(a=[[(p[0], 2)], []])
        assert y.tolist() == [1.0, 1.0]


def test_kept_facts():
    """The k best of a tensor and of a list, with the places of exclusive facts."""
    ctx = scallopy.ScallopContext("difftopkproofs", k=9)
    ctx.add_relation("d", int, input_mapping=range(4), retain_topk=2)
    ctx.add_relation("e", int, retain_topk=2)
    ctx.add_rule("out_d(x) = d(x)")
    ctx.add_rule("out_e(x) = e(x)")
    ctx.add_rule("pair(x, y) = e(x), e(y), x < y")
    p = torch.tensor([[0.1, 0.4, 0.3, 0.2], [0.7, 0.1, 0.1, 0.15]])
    facts = [(torch.tensor(q), (i,)) for i, q in enumerate([0.1, 0.4, 0.3])]
    given = {"d": p, "e": [facts, facts]}
    y = ctx.forward_function("out_d", range(4))(**given)
    assert y.tolist() == [pytest.approx([0, 0.4, 0.3, 0]), pytest.approx([0.7, 0, 0, 0.15])]
    tuples, _ = ctx.forward_function("out_e")(**given)
    assert tuples == [(1,), (2,)]
    forward = ctx.forward_function("pair", (1, 2))
    assert forward(**given, disjunctions={"e": [[[1, 2]], [[0, 1]]]}).tolist() == pytest.approx([0.0, 0.12])


def test_k_in_training_and_evaluation():
    module = scallopy.Module(
        program="rel any() = d(_)",
        relations=[("d", int)],
        input_mappings={"d": range(3)},
        output_mappings={"any": ()},
        train_k=1,
        test_k=3,
    )
    p = torch.tensor([[0.5, 0.25, 0.5]])
    assert module(d=p).tolist() == [0.5]
    assert module.eval()(d=p).tolist() == pytest.approx([1 - 0.5 * 0.75 * 0.5])


def test_proofs_of_a_forward_function():
    ctx = scallopy.ScallopContext("difftopkproofsdebug", k=3)
    ctx.add_relation("edge", (int, int))
    ctx.add_rule("path(a, c) = edge(a, c)")
    ctx.add_rule("path(a, c) = edge(a, b), path(b, c)")
    p = torch.tensor([0.5, 0.5])
    samples = [[((p[0], 3), (0, 1)), ((p[1], 4), (1, 2))], [((p[0], 8), (0, 2))]]
    y, proofs = ctx.forward_function("path", [(0, 2), (0, 1)])(edge=samples)
    assert y.tolist() == [[0.25, 0.5], [0.5, 0.0]]
    assert proofs == [[[[(True, 3), (True, 4)]], [[(True, 3)]]], [[[(True, 8)]], []]]


def test_mappings_of_more_dimensions():
    grid = [[(x, y) for x in range(2)] for y in range(3)]
    ctx = scallopy.ScallopContext("diffminmaxprob")
    ctx.add_relation("cell", (int, int), input_mapping=grid)
    ctx.add_relation("colour", (int, str), input_mapping={0: range(2), 1: ["red", "blue"]})
    ctx.add_relation("flag", (), input_mapping=())
    ctx.add_rule("column(x) = cell(x, _), flag()")
    ctx.add_rule('red(i) = colour(i, "red")')
    p, q, r = softmax(5, 3, 2), softmax(5, 2, 2), torch.ones(5)
    given = {"cell": p, "colour": q, "flag": r}
    torch.testing.assert_close(ctx.forward_function("column", range(2))(**given), p.max(1).values)
    torch.testing.assert_close(ctx.forward_function("red", range(2))(**given), q[:, :, 0])


def test_input_mappings():
    mapping = scallopy.InputMapping([["a", "b", "c"], ["d", "e", "f"]], retain_k=1, sample_dim=1)
    assert mapping.kind == "list"
    assert mapping.shape == (2, 3)
    assert mapping.dimension == 2
    assert mapping.is_singleton
    assert mapping[1, 2] == ("f",)
    assert mapping.all_tuples()[:2] == [("a",), ("b",)]
    assert mapping.all_indices()[-1] == (1, 2)
    p = torch.tensor([[0.2, 0.5, 0.3], [0.9, 0.0, 0.1]])
    assert [row for _, row in mapping.process_tensor(p)] == [("b",), ("d",)]
    assert len(mapping.process_tensor(p, batched=True)) == 1
    assert [len(facts) for facts in mapping.process_tensor(torch.stack([p, p, p]))] == [2, 2, 2]
    with pytest.raises(DerivableError, match="Tensor shape mismatch"):
        mapping.process_tensor(torch.zeros(3, 2))
    threshold = scallopy.Map(range(3), retain_threshold=0.3)
    assert [row for _, row in threshold.process_tensor(p[0])] == [(1,), (2,)]
    drawn = scallopy.Map(range(3), retain_k=5, sample_strategy="categorical")
    assert [row for _, row in drawn.process_tensor(torch.tensor([0.0, 1.0, 0.0]))] == [(1,)]
    exclusive = scallopy.Map([[0, 1], [2, 3]], disjunctive_dim=1, supports_disjunctions=True)
    facts = exclusive.process_tensor(torch.full((2, 2), 0.5))
    assert [tag[1] for tag, _ in facts] == [0, 0, 1, 1]
    assert [scallopy.Map(given).kind for given in ({0: [1]}, (1, 2), True, None)] == ["dict", "tuple", "value", None]


@pytest.mark.parametrize(
    "mapping",
    [[], [[]], [[1, 2], [3]], [1, (2,)], [(1,), (1, 2)], {}, {1: [2]}, {0: []}, [None], {"a": [1]}, object()],
)
def test_wrong_mappings(mapping):
    with pytest.raises(DerivableError):
        scallopy.InputMapping(mapping)


@pytest.mark.parametrize("options", [{"disjunctive_dim": 1}, {"sample_dim": 7}, {"sample_strategy": "best"}])
def test_wrong_options_of_mappings(options):
    with pytest.raises(DerivableError):
        scallopy.InputMapping(range(3), **options)


def test_wrong_inputs():
    ctx = context()
    ctx.add_relation("plain", int)
    forward = ctx.forward_function("sum_2", range(5))
    p = softmax(2, 3)
    with pytest.raises(DerivableError, match="no input"):
        forward()
    with pytest.raises(DerivableError, match="Inconsistency in batch size"):
        forward(digit_1=p, digit_2=p[:1])
    with pytest.raises(DerivableError, match="Tensor shape mismatch"):
        forward(digit_1=softmax(2, 4), digit_2=p)
    with pytest.raises(DerivableError, match="no input mapping"):
        forward(plain=p)
    with pytest.raises(DerivableError, match="Unknown relation"):
        forward(digit_3=p)
    with pytest.raises(DerivableError, match="no output"):
        ctx.forward_function()(digit_1=p, digit_2=p)
    with pytest.raises(DerivableError, match="dispatch"):
        ctx.forward_function("sum_2", dispatch="all")
    with pytest.raises(DerivableError, match="i32"):
        ctx.set_input_mapping("digit_1", ["a", "b"])
    named = context("difftopkproofsdebug").forward_function("sum_2", range(5))
    with pytest.raises(DerivableError, match="facts have names"):
        named(digit_1=p, digit_2=p)


def test_wrong_outputs():
    ctx = context()
    with pytest.raises(DerivableError, match="Unknown relation `sum_3`"):
        ctx.forward_function("sum_3", range(5))
    with pytest.raises(DerivableError, match="Unknown relation `sum_3`"):
        scallopy.Module(program="rel sum_2 = {0.5::1}", output_mappings={"sum_2": None, "sum_3": range(3)})
    with pytest.raises(DerivableError, match="2 values"):
        ctx.forward_function("sum_2", [(i, i + 1) for i in range(5)])
    with pytest.raises(DerivableError, match="i32"):
        ctx.forward_function(output_mappings={"sum_2": ["0", "1"]})
    with pytest.raises(DerivableError, match="one output relation"):
        ctx.forward_function(output_mappings={}, jit=True)
    # Without, the outputs are those of the call.
    p = softmax(2, 3)
    assert ctx.forward_function()(digit_1=p, digit_2=p, output_relations=["sum_2"] * 2)[1].shape == (2, 5)


def test_a_module_is_a_module():
    module = scallopy.ScallopForwardFunction(
        program="rel sum_2(a + b) = digit_1(a), digit_2(b), not wrong(a)",
        relations=[("digit_1", int), ("digit_2", int), ("wrong", int)],
        facts={"wrong": [(torch.tensor(1.0), (2,))]},
        input_mappings={"digit_1": range(3), "digit_2": range(3)},
        output_mappings={"sum_2": range(5)},
        provenance="diffminmaxprob",
        retain_topk={"digit_1": 3},
    )
    given = {"digit_1": softmax(2, 3), "digit_2": softmax(2, 3, seed=1)}
    y = module(**given)
    assert y[:, 4].tolist() == [0.0, 0.0]
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(other(**given), y)


@pytest.mark.parametrize("provenance", ["diffminmaxprob", "diffaddmultprob", "diffmaxmultprob", "difftopkproofs"])
def test_a_batch_is_its_samples(provenance):
    """Samples of different facts, some of which exclude each other: values and gradients are those of contexts that
    have one sample each."""
    generator = random.Random(provenance)

    def base():
        ctx = scallopy.ScallopContext(provenance, k=4)
        ctx.add_relation("edge", (int, int))
        ctx.add_relation("closed", int)
        ctx.add_facts("edge", [(None, (0, 1)), (fixed, (1, 2))])
        ctx.add_program(
            "rel open(x, y) = edge(x, y), not closed(y) "
            "rel path(x, y) = open(x, y) rel path(x, z) = open(x, y), open(y, z)"
        )
        return ctx

    # Where no two are equal, there is one derivative of a minimum.
    fixed = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    pairs = list(itertools.permutations(range(4), 2))
    samples, closed, groups = [], [], []
    for _ in range(5):
        edges = generator.sample(pairs, generator.randrange(5))
        samples.append([(torch.tensor(generator.uniform(0.1, 0.4), dtype=torch.float64), e) for e in edges])
        closed.append([(torch.tensor(0.25, dtype=torch.float64), (generator.randrange(4),))])
        groups.append([[0, 1]] if len(edges) > 1 and provenance == "difftopkproofs" else [])
    leaves = [fixed, *(tag.requires_grad_() for sample in (*samples, *closed) for tag, _ in sample)]
    given = {"edge": samples, "closed": closed}
    tuples, y = base().forward_function("path")(**given, disjunctions={"edge": groups})
    weights = torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape)
    found = torch.autograd.grad((y * weights).sum(), leaves, allow_unused=True)
    total: torch.Tensor = torch.zeros(())
    for place in range(5):
        ctx = base()
        ctx.add_facts("edge", samples[place], disjunctions=groups[place])
        ctx.add_facts("closed", closed[place])
        ctx.run()
        alone = {row: tag for tag, row in ctx.relation("path")}
        assert {row for row, p in zip(tuples, y[place].tolist()) if p} == {row for row, p in alone.items() if p.item()}
        for at, row in enumerate(tuples):
            if row in alone:
                torch.testing.assert_close(y[place, at], alone[row])
                total = total + weights[place, at] * alone[row]
    expected = torch.autograd.grad(total, leaves, allow_unused=True)
    for one, other in zip(found, expected):
        zero = torch.zeros((), dtype=torch.float64)
        torch.testing.assert_close(one if one is not None else zero, other if other is not None else zero)


@pytest.mark.parametrize("options", [{"provenance": "difftopkproofs", "k": 50}, {"provenance": "diffexact"}])
def test_many_proofs_are_all_proofs(options):
    """The probability that two independent digits add up to four, by enumeration of the pairs that are there."""
    ctx = context(size=5, **options)
    a, b = softmax(2, 5).double().requires_grad_(), softmax(2, 5, seed=1).double()
    y = ctx.forward_function("sum_2", (4,))(digit_1=a, digit_2=b)
    expected = 1 - torch.stack([1 - a[:, i] * b[:, 4 - i] for i in range(5)]).prod(0)
    torch.testing.assert_close(y, expected.float())
    torch.testing.assert_close(torch.autograd.grad(y.sum(), a), torch.autograd.grad(expected.sum(), a))
    ctx.add_facts("digit_1", [(a[0, i], (i,)) for i in range(5)])
    ctx.add_facts("digit_2", [(b[0, i], (i,)) for i in range(5)])
    ctx.run()
    found = {row: tag for tag, row in ctx.relation("sum_2")}
    torch.testing.assert_close(found[4,], expected[0].float())


@pytest.mark.parametrize("provenance", ["diffminmaxprob", "difftopkproofs"])
def test_aggregates_that_go_by_weights(provenance):
    ctx = scallopy.ScallopContext(provenance)
    ctx.add_relation("digit", int, input_mapping=range(3))
    ctx.add_rule("best(x) = x := top<1>(x: digit(x))")
    p = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]], requires_grad=True)
    y = ctx.forward_function("best", range(3))(digit=p)
    assert y.argmax(1).tolist() == [1, 0]
    assert (y > 0).sum().item() == 2
    ctx.add_facts("digit", [(p[0, i], i) for i in range(3)])
    ctx.run()
    assert [row for _, row in ctx.relation("best")] == [(1,)]
