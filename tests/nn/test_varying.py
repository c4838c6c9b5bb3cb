"""Layers whose facts differ from sample to sample: against runs of each sample by itself, and finite differences."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

import derivable as dv
from datalog.naive import fact_sets, programs, text_of
from derivable.core.diagnostics import (
    BindingError,
    DomainError,
    LimitError,
    ShapeError,
    TypeMismatchError,
    UnsupportedError,
)
from derivable.datalog.apm import run as apm_run
from derivable.nn import batch as batch_module

GRAPH = """
type edge(i32, i32), closed(i32)
rel path(a, b) = edge(a, b), not closed(b)
rel path(a, c) = path(a, b), edge(b, c), not closed(c)
rel next(a, n) = n := count(b: edge(a, b)), node(a)
rel most(n) = n := max(x: next(_, x))
rel node = {0, 1, 2, 3}
rel edge = {(3, 0)}
rel far(a, b) = node(a), node(b), not path(a, b)
rel quiet(a) = node(a), not edge(a, _)
rel few(a, x) = edge(a, b), x in 0..b
rel 0.5::odd(a) = edge(a, _)
rel chosen(b) = b := uniform<2>(b: edge(_, b))
rel first(b) = b := top<1>(b: edge(0, b))
"""
OUTPUTS = ["path", "next", "most", "far", "quiet", "few", "odd", "chosen", "first"]
SAMPLES = [[(0, 1), (1, 2), (2, 0)], [(0, 1), (1, 3), (0, 3), (3, 2)], [], [(1, 2)]]
CLOSED = [[(1,)], [], [(0,)], [(3,)]]
READ = "rel answer(x + y) = read(0, x), read(1, y)"
PAIRS = [[(0, 1), (1, 2)], [(0, 2), (0, 0), (1, 1), (1, 0)], [(0, 1)]]


def numbers(samples, seed=0, dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    drawn = [scale * torch.rand(len(s), dtype=torch.float64, generator=generator) for s in samples]
    return [p.to(dtype).requires_grad_() for p in drawn]


def by_itself(program, facts, provenance, names, k=16):
    """relation -> tuple -> tag, of a run of one sample."""
    database = program.run(facts, provenance=provenance, k=k)
    return {name: {t: float(tag) for t, tag in database[name].items()} for name in names}


def found(result):
    return [dict(zip(tuples, values.tolist(), strict=True)) for tuples, values in result]


def check_equal(found, expected, exactly):
    assert found.keys() == expected.keys()
    for t, value in expected.items():
        assert found[t] == (value if exactly else pytest.approx(value, abs=1e-12)), t


def check_gradients(layer, call, p):
    """Against differences of the values at both sides."""

    def total(values):
        leaves = [leaf for leaf in tree_leaves(call(layer, values)) if isinstance(leaf, torch.Tensor)]
        return sum((leaf * torch.linspace(0.5, 1.5, leaf.numel()).reshape(leaf.shape)).sum() for leaf in leaves)

    expected = []
    with torch.no_grad():
        for i, q in enumerate(p):
            for j in range(len(q)):
                sides = []
                for step in (1e-6, -1e-6):
                    moved = [r.detach().clone() for r in p]
                    moved[i][j] += step
                    sides.append(float(total(moved)))
                expected.append((sides[0] - sides[1]) / 2e-6)
    got = torch.cat(torch.autograd.grad(total(p), p))
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "minmaxprob", "max_product"])
def test_a_batch_is_equal_to_runs_of_its_samples(provenance):
    program = dv.Program(GRAPH)
    # There are more than sixteen proofs that there is no path.
    outputs = [name for name in OUTPUTS if name != "far" or provenance != "topkproofs"]
    layer = dv.nn.Logic(program, {"edge": dv.varying()}, dict.fromkeys(outputs), provenance, k=16)
    p = numbers(SAMPLES)
    results = layer(edge=list(zip(SAMPLES, p)), certain={"closed": CLOSED})
    for i, tuples in enumerate(SAMPLES):
        facts = {"edge": list(zip(p[i].tolist(), tuples)), "closed": CLOSED[i]}
        expected = by_itself(program, facts, provenance, outputs)
        for name in outputs:
            check_equal(found(results[name])[i], expected[name], provenance in ("minmaxprob", "max_product"))
    # The gradients are those of batches of one sample.
    whole = torch.autograd.grad(sum(v.sum() for name in outputs for _, v in results[name]), p)
    for i, tuples in enumerate(SAMPLES):
        alone = layer(edge=[(tuples, p[i])], certain={"closed": CLOSED[i : i + 1]})
        (own,) = torch.autograd.grad(sum(alone[name][0][1].sum() for name in outputs), p[i])
        torch.testing.assert_close(whole[i], own, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "provenance", ["exact", "topkproofs", "clauses", "minmaxprob", "addmultprob", "max_product", "log"]
)
def test_gradients(provenance):
    text = "rel answer(x + y) = read(0, x), read(1, y), not mark(x)\nrel mark = {0.3::2}"
    layer = dv.nn.Logic(text, {"read": dv.varying()}, {"answer": None}, provenance, k=2)
    p = numbers(PAIRS, scale=0.4)
    check_gradients(layer, lambda layer, p: layer(read=list(zip(PAIRS, p))), p)


@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "minmaxprob", "max_product"])
def test_gradients_are_those_of_layers_with_fixed_facts(provenance):
    """Recursion, negation of what is recursive, and facts that are written in the program."""
    text = """
    type edge(i32, i32)
    rel edge = {0.5::(3, 0)}
    rel path(a, b) = edge(a, b) or (path(a, c) and edge(c, b))
    rel apart(a, b) = edge(a, _), edge(_, b), not path(a, b)
    rel fixed = {0.25::1}
    """
    outputs = {"path": [(0, 2), (0, 0), (3, 1), (7, 7)], "apart": [(0, 3), (1, 0), (2, 2)], "fixed": [1, 2]}
    layer = dv.nn.Logic(text, {"edge": dv.varying()}, outputs, provenance, k=8)
    p = numbers(SAMPLES)
    y = layer(edge=list(zip(SAMPLES, p)))
    for i, tuples in enumerate(SAMPLES):
        q = p[i].detach().clone().requires_grad_()
        expected = dv.nn.Logic(text, {"edge": dv.independent(tuples)}, outputs, provenance, k=8)(edge=q)
        for name in outputs:
            torch.testing.assert_close(y[name][i], expected[name])
        (got,) = torch.autograd.grad(sum(y[name][i].square().sum() for name in outputs), p[i], retain_graph=True)
        (own,) = torch.autograd.grad(sum(expected[name].square().sum() for name in outputs), q)
        torch.testing.assert_close(got, own, rtol=1e-10, atol=1e-12)


def test_exclusive_groups():
    """Facts of a group exclude each other: as a choice of the program, with the probability that none holds."""
    groups = [[0, -1], [3, 3, 3, -1], [0]]
    text = READ + "\nrel none() = not read(0, 2), not read(0, 0)"
    p = numbers(PAIRS, scale=0.3)
    for provenance in ("exact", "topkproofs"):
        layer = dv.nn.Logic(text, {"read": dv.varying()}, {"answer": None, "none": ()}, provenance, k=16)

        def call(layer, p):
            return layer(read=list(zip(PAIRS, p, groups)))

        result = call(layer, p)
        for i, (tuples, q) in enumerate(zip(PAIRS, p)):
            q = q.tolist()
            chosen = [j for j, g in enumerate(groups[i]) if g >= 0]
            facts = [dv.categorical([tuples[j] for j in chosen], [q[j] for j in chosen])]
            rest = [j for j in range(len(tuples)) if j not in chosen]
            facts += [dv.independent([tuples[j] for j in rest], [q[j] for j in rest])] if rest else []
            expected = by_itself(dv.Program(text), {"read": facts}, "exact", ["answer", "none"])
            check_equal(found(result["answer"])[i], expected["answer"], False)
            assert result["none"][i].item() == pytest.approx(expected["none"][()], abs=1e-12)
        check_gradients(layer, call, p)


@pytest.mark.parametrize("provenance", ["minmaxprob", "topkproofs"])
@given(programs(), st.lists(fact_sets(), min_size=1, max_size=3), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_a_batch_on_a_device_is_that_on_the_cpu(provenance, drawn, facts, seed):
    """Torch on the CPU stands for the device of the probabilities."""
    rules, order = drawn
    p = numbers([one["e"] for one in facts], seed)
    layer = dv.nn.Logic(
        dv.Program(text_of(rules)), {"e": dv.varying()}, dict.fromkeys(order), provenance, k=1 + seed % 3
    )
    found, runs = [], []

    def run_on_device(*given):
        runs.append(given)
        return machine_run(*given)

    machine_run = apm_run.run_on_device
    for device in (None, "torch:cpu"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch_module, "device_of", lambda inputs, device=device: device)
            patch.setattr(apm_run, "run_on_device", run_on_device)
            results = layer(e=[(one["e"], q) for one, q in zip(facts, p)], certain={"u": [one["u"] for one in facts]})
        results = results if len(order) > 1 else {order[0]: results}
        values = [value for name in order for _, value in results[name]]
        total = sum((value * (k + 1)).sum() for k, value in enumerate(values))
        gradients = torch.autograd.grad(total, p, allow_unused=True) if total.requires_grad else ()
        tuples = [rows for name in order for rows, _ in results[name]]
        found.append(
            (tuples, [value.tolist() for value in values], [None if g is None else g.tolist() for g in gradients])
        )
    assert found[0] == found[1]
    assert len(runs) == 1


@given(programs(), st.lists(fact_sets(), min_size=1, max_size=3), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_random_programs(drawn, facts, seed):
    rules, order = drawn
    program = dv.Program(text_of(rules))
    p = numbers([one["e"] for one in facts], seed)
    for provenance in ("minmaxprob", "topkproofs"):
        layer = dv.nn.Logic(program, {"e": dv.varying()}, dict.fromkeys(order), provenance, k=6)
        results = layer(e=[(one["e"], q) for one, q in zip(facts, p)], certain={"u": [one["u"] for one in facts]})
        results = results if len(order) > 1 else {order[0]: results}
        for i, one in enumerate(facts):
            own = {"e": list(zip(p[i].tolist(), one["e"])), "u": one["u"]}
            expected = by_itself(program, own, "minmaxprob" if provenance == "minmaxprob" else "exact", order)
            for name in order:
                mine = found(results[name])[i]
                if provenance == "minmaxprob":
                    check_equal(mine, expected[name], True)
                else:
                    # Six proofs of a tuple are at most all of them.
                    assert all(value <= expected[name].get(t, 0.0) + 1e-12 for t, value in mine.items())


@given(programs(), st.lists(fact_sets(max_edges=5), min_size=2, max_size=3), st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_random_programs_with_exclusive_facts(drawn, facts, rng):
    """Exact, against runs in which the facts of a group are a choice."""
    rules, order = drawn
    program, given, alone = dv.Program(text_of(rules)), {"e": [], "u": []}, []
    for one in facts:
        alone.append({})
        for name, samples in given.items():
            rows, groups = one[name], [rng.choice([-1, 0, 1]) for _ in one[name]]
            p = [rng.uniform(0.01, 0.3) for _ in rows]
            samples.append((rows, torch.tensor(p, dtype=torch.float64), groups))
            parts = {g: [j for j, h in enumerate(groups) if h == g] for g in sorted(set(groups))}
            alone[-1][name] = [
                (dv.independent if g < 0 else dv.categorical)([rows[j] for j in part], [p[j] for j in part])
                for g, part in parts.items()
            ]
    layer = dv.nn.Logic(program, dict.fromkeys(given, dv.varying()), dict.fromkeys(order))
    results = layer(**given)
    results = results if len(order) > 1 else {order[0]: results}
    for i, own in enumerate(alone):
        expected = by_itself(program, own, "exact", order)
        for name in order:
            check_equal(found(results[name])[i], expected[name], False)


def forms(p):
    """The same batch in all forms."""
    rows = [row for sample in PAIRS for row in sample]
    offsets, joined = [0, 2, 6, 7], torch.cat(p)
    yield list(zip(PAIRS, p))
    yield [(np.array(sample), q) for sample, q in zip(PAIRS, p)]
    yield [(tuple(np.array(sample).T), q) for sample, q in zip(PAIRS, p)]
    yield [({"x": [a for a, _ in s], "y": [b for _, b in s]}, q) for s, q in zip(PAIRS, p)]
    yield [(torch.tensor(sample), q, torch.full((len(sample),), -1)) for sample, q in zip(PAIRS, p)]
    yield dv.nn.Ragged(rows, joined, offsets)
    yield dv.nn.Ragged(np.array(rows), joined, torch.tensor(offsets), [-1] * 7)
    yield dv.nn.Ragged(tuple(np.array(rows).T), joined, np.array(offsets))
    places = torch.nn.utils.rnn.pad_sequence([torch.tensor(sample) for sample in PAIRS], batch_first=True)
    padded = torch.nn.utils.rnn.pad_sequence(p, batch_first=True, padding_value=7.0)
    yield dv.nn.Padded(places, padded, padded < 2)


def test_forms_of_samples():
    layer = dv.nn.Logic(READ, {"read": dv.varying()}, {"answer": range(5)}, "topkproofs", k=1)
    p = numbers(PAIRS, dtype=torch.float32)
    expected = torch.zeros(3, 5)
    for i, (sample, q) in enumerate(zip(PAIRS, p)):
        for (a, x), u in zip(sample, q.tolist()):
            for (b, y), v in zip(sample, q.tolist()):
                if a < b:
                    expected[i, x + y] = max(float(expected[i, x + y]), u * v)
    for form in forms(p):
        y = layer(read=form)
        assert y.dtype == torch.float32
        torch.testing.assert_close(y, expected)
        assert all(q is not None for q in torch.autograd.grad(y.sum(), p))
    torch.testing.assert_close(layer(pickle.loads(pickle.dumps(list(zip(PAIRS, p))))), expected)
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        torch.testing.assert_close(other(read=list(zip(PAIRS, p))), expected)
    assert layer(read=[]).shape == (0, 5)
    assert layer(read=[([], torch.zeros(0))]).count_nonzero() == 0
    half = [(sample, q.bfloat16()) for sample, q in zip(PAIRS, p)]
    torch.testing.assert_close(layer(read=half), expected, rtol=0.02, atol=0.02)


def test_frames_of_samples():
    frame = pytest.importorskip("pandas").DataFrame
    layer = dv.nn.Logic("rel answer(n) = said(n, x), x < 2", {"said": dv.varying()}, {"answer": None}, "minmaxprob")
    rows = [[("a", 1), ("b", 2)], [("c", 0)]]
    p = numbers(rows)
    expected = found(layer(said=list(zip(rows, p))))
    assert expected == [{("a",): p[0][0].item()}, {("c",): p[1][0].item()}]
    assert found(layer(said=[(frame(sample), q) for sample, q in zip(rows, p)])) == expected


def test_texts_of_earlier_batches_are_forgotten(monkeypatch):
    from derivable.datalog.api import batched

    monkeypatch.setattr(batched, "MOST_TEXTS", 4)
    text = 'rel known = {"a", "b"}\nrel answer(n) = said(n), not known(n)'
    layer = dv.nn.Logic(text, {"said": dv.varying()}, {"answer": None}, "minmaxprob")
    for step in range(9):
        rows = [f"{step}", "a", f"{step + 1}"]
        assert layer(said=[(rows, torch.ones(3))])[0][0] == [(f"{step}",), (f"{step + 1}",)]
    (runs,) = layer.inference.logic.runs.values()
    assert len(runs.base.symbols.texts) < 12


def test_fixed_inputs_beside_varying_ones():
    """A choice of all samples with probabilities of each, facts of the layer, and facts that are certain."""
    text = "type bonus(i32), scale(i32)\nrel answer(x * s + b) = read(_, x), digit(b), scale(s), bonus(b)"
    inputs = {"read": dv.varying(), "digit": dv.categorical(range(3)), "scale": dv.independent([1, 2])}
    layer = dv.nn.Logic(text, inputs, {"answer": range(7)}, facts={"bonus": [0, 2]})
    p, digit = numbers(PAIRS), torch.rand(3, 3, dtype=torch.float64).softmax(-1)
    scale = torch.tensor([0.5, 0.25], dtype=torch.float64)
    y = layer(read=list(zip(PAIRS, p)), digit=digit, scale=scale)
    program = dv.Program(text)
    for i, (tuples, q) in enumerate(zip(PAIRS, p)):
        facts = {
            "read": list(zip(q.tolist(), tuples)),
            "digit": dv.categorical(range(3), digit[i].tolist()),
            "scale": dv.independent([1, 2], scale.tolist()),
            "bonus": [0, 2],
        }
        expected = by_itself(program, facts, "exact", ["answer"])["answer"]
        for value in range(7):
            assert y[i, value].item() == pytest.approx(expected.get((value,), 0.0), abs=1e-12)
    with pytest.raises(ShapeError, match=r"'digit' has shape \[2, 3\]; .* needs \[3, 3\]"):
        layer(read=list(zip(PAIRS, p)), digit=digit[:2], scale=scale)
    with pytest.raises(DomainError, match="add up to one"):
        layer(read=list(zip(PAIRS, p)), digit=2 * digit / 3, scale=scale)


@pytest.mark.parametrize("provenance", ["topkproofs", "exact", "minmaxprob"])
def test_probabilities_that_all_samples_share(provenance):
    """As if each sample had them, also where proofs are equally probable, and where a relation has facts of samples
    too."""
    text = "type scale(i32)\nrel 0.5::odd(x) = scale(x)\nrel answer(x * s + b) = digit(b), read(_, x), scale(s), odd(s)"
    inputs = {"read": dv.varying(), "digit": dv.categorical(range(3)), "scale": dv.independent([1, 2, 3])}
    layer = dv.nn.Logic(text, inputs, {"answer": range(9)}, provenance, k=2)
    read = [(tuples, torch.full((len(tuples),), 0.5, dtype=torch.float64)) for tuples in PAIRS]
    found = []
    for each in (False, True):
        digit = torch.full((3,), 1 / 3, dtype=torch.float64).requires_grad_()
        scale = torch.tensor([0.5, 0.5, 0.25], dtype=torch.float64).requires_grad_()
        rows = [p.expand(len(PAIRS), -1) if each else p for p in (digit, scale)]
        y = layer(read=read, digit=rows[0], scale=rows[1], certain={"scale": [[], [(2,)], [(0,)]][: len(PAIRS)]})
        (y * torch.arange(9)).sum().backward()
        found.append((y.detach(), digit.grad, scale.grad))
        z = layer(read=read, digit=rows[0], scale=rows[1])
        found[-1] += (z.detach(),)
    for shared, own in zip(*found):
        torch.testing.assert_close(shared, own, rtol=1e-12, atol=1e-12)


def test_outputs_of_each_sample():
    layer = dv.nn.Logic(READ, {"read": dv.varying()}, {"answer": None}, "minmaxprob")
    p = numbers(PAIRS)
    wanted = layer(read=list(zip(PAIRS, p)), outputs={"answer": [[3, 4], [], [(0,), 1, 2]]})
    everything = found(layer(read=list(zip(PAIRS, p))))
    assert [len(one) for one in wanted] == [2, 0, 3]
    assert wanted[0].tolist() == [everything[0][(3,)], 0.0]
    with pytest.raises(BindingError, match="no output relation 'answr'"):
        layer(read=list(zip(PAIRS, p)), outputs={"answr": []})
    with pytest.raises(ShapeError, match="input 'read' has 3, outputs of 'answer' has 1"):
        layer(read=list(zip(PAIRS, p)), outputs={"answer": [[]]})


def test_facts_that_are_kept():
    p = torch.tensor([0.2, 0.6, 0.1, 0.6, 0.05])
    rows, groups = [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4)], [0, 0, 0, 1, 1]

    def kept(n=1, **rule):
        layer = dv.nn.Logic("rel answer(x) = read(_, x)", {"read": dv.varying(**rule)}, {"answer": None}, "minmaxprob")
        return [{x for (x,) in one} for one, _ in layer(read=[(rows, p, groups)] * n)]

    assert kept(2) == [{0, 1, 2, 3, 4}] * 2
    assert kept(2, keep=1) == [{1}] * 2
    assert kept(keep=3) == [{0, 1, 3}]
    assert kept(keep=1, per_group=True) == [{1, 3}]
    assert kept(above=0.1) == [{0, 1, 2, 3}]
    assert kept(keep=4, above=0.2) == [{0, 1, 3}]
    torch.manual_seed(0)
    drawn = kept(400, keep=1, sampled=True)
    assert {len(one) for one in drawn} == {1}
    counts = np.bincount([next(iter(one)) for one in drawn], minlength=5) / 400
    np.testing.assert_allclose(counts, p.numpy() / p.sum().item(), atol=0.07)
    assert all(len(one & {3, 4}) == 1 for one in kept(20, keep=1, per_group=True, sampled=True))
    for bad in ({"keep": 0}, {"keep": 0.5}, {"per_group": True}, {"sampled": True}):
        with pytest.raises(DomainError):
            dv.varying(**bad)


def many(change, place=17, count=20):
    """A batch of one sample over and over, and another one at a place."""
    batch = [([(0, 1), (1, 2)], torch.tensor([0.5, 0.25])) for _ in range(count)]
    batch[place] = change
    return batch


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (
            many(([(0, 1), (1, "a")], torch.ones(2))),
            TypeMismatchError,
            r"sample 17: .*`read`, row 1, column 1.*found \"a\"",
        ),
        (many(([(0, 1), (1,)], torch.ones(2))), TypeMismatchError, "sample 17: .*row 1: 1 value for 2 columns"),
        (
            many(([(0, 1)], torch.tensor([1.5]))),
            DomainError,
            r"sample 17: read\[0\] is 1.5, which is not a probability",
        ),
        (many(([(0, 1)], torch.tensor([torch.nan]))), DomainError, r"sample 17: read\[0\] is NaN"),
        (many(([(0, 1)], torch.ones(2))), ShapeError, r"sample 17: input 'read' has 1 tuple and .* shape \[2\]"),
        (many(([(0, 1)], torch.ones(1), [0, 1])), ShapeError, r"sample 17: .* groups of shape \[2\]"),
        (many(([(0, 1)], torch.ones(1), [0.5])), ShapeError, "sample 17: .* dtype float64"),
        (many(([(0, 1)], "x")), TypeMismatchError, "sample 17: the probabilities of input 'read' are a str"),
        (many(([(0, 1)], None)), ShapeError, "sample 17 of input 'read' has no probabilities"),
        (many(([(0, 1), (0, 2)], torch.ones(2), [1, 1])), DomainError, "sample 17: .* group 1 of `read` add up to 2"),
        (many([(0, 1)]), TypeMismatchError, "sample 17 of input 'read' is a list of 1"),
        (many(("(0, 1)", torch.ones(1))), TypeMismatchError, "sample 17: facts for `read` are the text"),
        (many(({(0, 1): 0.5}, torch.ones(1))), TypeMismatchError, "sample 17: the tuples of `read` are a dict"),
        (many(((np.ones(2), np.ones(1)), torch.ones(2))), ShapeError, r"sample 17: column 1 of tuples has shape \[1\]"),
        (torch.ones(3), TypeMismatchError, "differs from sample to sample"),
        (dv.nn.Ragged([(0, 1)], torch.ones(1), [0, 2]), ShapeError, "from 0 to 2, and there are 1 tuples"),
        (dv.nn.Ragged([(0, 1)] * 3, torch.ones(3), [0, 2, 1, 3]), ShapeError, "sample 1: .* go back from 2 to 1"),
        (dv.nn.Ragged([(0, 1)], torch.ones(1), [0.0, 1.0]), ShapeError, "offsets .* dtype float64"),
        (dv.nn.Ragged([(0, 1)], torch.ones(2), [0, 1]), ShapeError, r"1 tuple and probabilities of shape \[2\]"),
        (dv.nn.Padded(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3)), ShapeError, "dtype float32"),
        (dv.nn.Padded(np.ones((2, 3, 2), int), torch.ones(2, 2), np.ones((2, 3), bool)), ShapeError, r"shape \[2, 2\]"),
    ],
)
def test_errors_of_inputs(given, kind, message):
    layer = dv.nn.Logic("type read(i32, i32)\n" + READ, {"read": dv.varying()}, {"answer": range(5)}, "topkproofs")
    with pytest.raises(kind, match=message):
        layer(read=given)


def test_errors_of_layers():
    with pytest.raises(BindingError, match="no relation `red`"):
        dv.nn.Logic(READ, {"red": dv.varying()}, {"answer": None})
    with pytest.raises(BindingError, match="no relation `anser`"):
        dv.nn.Logic(READ, {"read": dv.varying()}, {"anser": None})
    with pytest.raises(DomainError, match="on_limit is 'no'"):
        dv.nn.Logic(READ, {"read": dv.varying()}, {"answer": None}, on_limit="no")
    layer = dv.nn.Logic(READ, {"read": dv.varying()}, {"answer": None}, "minmaxprob")
    with pytest.raises(BindingError, match="no relation `asked`"):
        layer(read=[], certain={"asked": []})
    with pytest.raises(ShapeError, match="input 'read' has 1, certain 'read' has 0"):
        layer(read=[([], None)], certain={"read": []})
    with pytest.raises(BindingError, match="no tensor for 'read'"):
        layer()
    assert "read: varying -> answer: derived" in repr(layer)
    assert "a list [sample]" in layer.explain()
    assert "whatever is derived" in layer._repr_html_()
    for call in (lambda: layer.circuit, lambda: layer.log(read=[])):
        with pytest.raises(UnsupportedError, match="differ from sample to sample"):
            call()
    with pytest.raises(UnsupportedError, match="log_probabilities is for inputs that are the same"):
        dv.nn.Logic(READ, {"read": dv.varying()}, {"answer": None}, log_probabilities=True)
    with pytest.raises(UnsupportedError, match="proofs gives sets of facts"):
        dv.nn.Logic(READ, {"read": dv.varying()}, {"answer": None}, "proofs")


COUNT = """
type start(i32)
rel number(x) = start(x)
rel number(x + 1) = number(x), x < 10
rel last(x) = x := max(y: number(y))
"""


@pytest.mark.parametrize("limit", [{"tuple_limit": 30}, {"round_limit": 8}])
def test_a_sample_that_exceeds_a_limit_fails_alone(limit):
    starts = [[(7,)], [(0,)], [(9,), (5,)], [(1,)], []]
    given = [(rows, torch.full((len(rows),), 0.5, requires_grad=True)) for rows in starts]
    outputs = {"number": None, "last": [(10,), (1,)]}
    layer = dv.nn.Logic(COUNT, {"start": dv.varying()}, outputs, "minmaxprob", on_limit="skip", **limit)
    y = layer(start=given)
    assert set(layer.skipped) == {1, 3}
    assert all(str(error).startswith(f"sample {place}: the run passed") for place, error in layer.skipped.items())
    assert [len(tuples) for tuples, _ in y["number"]] == [4, 0, 6, 0, 0]
    assert y["last"].tolist() == [[0.5, 0.0], [0.0, 0.0], [0.5, 0.0], [0.0, 0.0], [0.0, 0.0]]
    torch.cat([v for _, v in y["number"]]).sum().backward()
    assert given[0][1].grad.tolist() == [4.0]
    assert layer(start=given[:1])["number"][0][0] == [(7,), (8,), (9,), (10,)]
    assert layer.skipped == {}
    wanted = layer(start=given, outputs={"number": [[7], [0, 1], [9], [], [3]]})["number"]
    assert [one.tolist() for one in wanted] == [[0.5], [0.0, 0.0], [0.5], [], [0.0]]
    strict = dv.nn.Logic(COUNT, {"start": dv.varying()}, outputs, "minmaxprob", **limit)
    with pytest.raises(LimitError, match="sample 1: the run passed"):
        strict(start=given)
    assert len(strict(start=given[2:3])["number"][0][0]) == 6


def test_exact_circuits_are_kept():
    """One for each structure: what values there are, and which of them are wanted, is no part of it."""
    layer = dv.nn.Logic(READ, {"read": dv.varying()}, {"answer": range(9)})
    samples = [*PAIRS, [(1, 5), (0, 2)], [(0, 2), (1, 5)], [(0, 4), (0, 2), (1, 4), (1, 3)]]
    p = numbers(samples)
    y = layer(read=list(zip(samples, p)))
    kept = layer.inference.logic.inference.kept
    assert len(kept) == 2
    circuits = list(kept.values())
    again = layer(read=list(zip(samples, p)))
    assert [*kept.values()] == circuits
    torch.testing.assert_close(y, again, rtol=0, atol=0)
    assert y[3, 7].item() == y[3].sum().item() == pytest.approx(p[3].prod().item(), abs=1e-15)


def test_torch_compile_goes_on_behind_the_layer():
    layer = dv.nn.Logic(READ, {"read": dv.varying()}, {"answer": range(5)}, "minmaxprob")
    p = numbers(PAIRS)
    function = torch.compile(lambda p: 2 * layer(read=list(zip(PAIRS, p))), backend="eager")
    torch.testing.assert_close(function(p), 2 * layer(read=list(zip(PAIRS, p))))


def test_terms_are_those_of_their_sample():
    text = """
    type Tree = Leaf(i32) | Node(Tree, Tree)
    type given(t: Tree)
    rel size(t, 1) = case t is Leaf(_)
    rel size(t, a + b) = case t is Node(l, r), size(l, a), size(r, b)
    rel whole(n) = given(t), size(t, n)
    """
    Entity = dv.datalog.Entity
    one, two, three = (Entity("Leaf", x) for x in (1, 2, 3))
    tree = Entity("Node", one, Entity("Node", two, one))
    layer = dv.nn.Logic(text, {"given": dv.varying()}, {"size": None, "whole": None}, "minmaxprob")
    y = layer(given=[([(tree,)], torch.tensor([0.5])), ([(two,), (three,)], torch.tensor([0.25, 0.75]))])
    assert found(y["whole"]) == [{(3,): 0.5}, {(1,): 0.75}]
    assert [len(one) for one, _ in y["size"]] == [4, 2]


def drawn(number):
    """A sample of that number, as a data set gives it."""
    generator = torch.Generator().manual_seed(number)
    count = number % 4
    return [(int(i) % 2, number % 3 + int(i)) for i in range(count)], torch.rand(count, generator=generator)


@pytest.mark.slow
def test_workers_of_a_data_loader_and_autocast():
    """Samples come from other processes as they are, and half-precision numbers of a network are widened."""
    loader = torch.utils.data.DataLoader(
        list(range(8)), batch_size=4, num_workers=2, collate_fn=collated, multiprocessing_context="fork"
    )
    layer = dv.nn.Logic(READ, {"read": dv.varying()}, {"answer": range(9)}, "topkproofs", k=1)
    network = torch.nn.Linear(1, 1)
    for numbers_of_batch, batch in loader:
        expected = layer(read=[drawn(number) for number in numbers_of_batch])
        torch.testing.assert_close(layer(read=batch), expected)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scored = [(tuples, network(p[:, None]).sigmoid()[:, 0]) for tuples, p in batch]
            y = layer(read=scored)
        assert y.dtype == torch.float32
        y.sum().backward()
    assert network.weight.grad.abs().sum() > 0


def collated(batch):
    return batch, [drawn(number) for number in batch]


# What a process computes of the samples that are its own: the gradients of a network before a layer.
OF_A_PROCESS = """
import sys
import torch
import derivable as dv

rank, size, place, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.manual_seed(0)


class Paths(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.read = torch.nn.Linear(3, 1, dtype=torch.float64)
        rules = "type edge(i32, i32) rel path(a, b) = edge(a, b) or path(a, c) and edge(c, b)"
        self.logic = dv.nn.Logic(rules, {"edge": dv.varying()}, {"path": [(0, 2)]}, sys.argv[5], k=2)

    def forward(self, tuples, features):
        return self.logic(edge=[(t, torch.sigmoid(self.read(f))[:, 0]) for t, f in zip(tuples, features)])


model, draw = Paths(), torch.Generator().manual_seed(1)
tuples = [[(0, 1), (1, 2), (0, 2)], [(0, 1), (1, 2)], [(0, 2)], [(0, 1), (1, 3), (3, 2), (0, 2)]]
features = [torch.randn(len(t), 3, generator=draw, dtype=torch.float64) for t in tuples]
trained = model
if size > 1:
    torch.distributed.init_process_group("gloo", init_method="file://" + place, rank=rank, world_size=size)
    trained = torch.nn.parallel.DistributedDataParallel(model)
for _ in range(2):
    trained(tuples[rank::size], features[rank::size]).square().mean().backward()
torch.save([p.grad for p in model.parameters()], out)
if size > 1:
    torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("provenance", ["topkproofs", "exact"])
def test_two_processes_share_a_batch(tmp_path, provenance):
    """DistributedDataParallel: the mean of the gradients of halves is that of the whole batch."""
    outs = [tmp_path / name for name in ("first", "second", "whole")]
    calls = [(rank, 2, tmp_path / "place", outs[rank]) for rank in range(2)] + [(0, 1, tmp_path / "none", outs[2])]
    running = [
        subprocess.Popen([sys.executable, "-c", OF_A_PROCESS, *map(str, call), provenance], stderr=subprocess.PIPE)
        for call in calls
    ]
    try:
        for one in running:
            _, errors = one.communicate(timeout=300)
            assert one.returncode == 0, errors.decode()
    finally:
        for one in running:
            one.kill()
    first, second, whole = (torch.load(out) for out in outs)
    for a, b, c in zip(first, second, whole):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        torch.testing.assert_close(a, c, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("provenance", ["exact", "topkproofs"])
@pytest.mark.parametrize("u", [dv.independent(range(3)), dv.varying()], ids=["fixed", "varying"])
def test_that_a_weight_does_not_hold_is_the_sum_of_the_others(provenance, u):
    """Of weights that do not add up to one; (0 or 1), not 0 and not 1 are two proofs of one output and a sum of two."""
    text = "rel out(c) = range(c), not colour(c), u(c)\nrel range = {0, 1, 2}\nrel any() = out(c), c < 2"
    layer = dv.nn.Logic(
        text, {"colour": dv.categorical(range(3), factors=True), "u": u}, {"out": range(3), "any": ()}, provenance
    )
    colour = torch.tensor([[0.5, 0.9, 0.3]], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([0.5, 0.25, 1.0], dtype=torch.float64)
    given = p[None] if isinstance(u, type(dv.independent([]))) else [([(0,), (1,), (2,)], p)]
    found = layer(colour=colour, u=given)
    others = torch.stack([colour[:, [1, 2]].sum(1), colour[:, [0, 2]].sum(1), colour[:, [0, 1]].sum(1)], 1)
    a, b, both = p[0] * others[:, 0], p[1] * others[:, 1], p[0] * p[1] * colour[:, 2]
    expected = {"out": p * others, "any": a + b - both}
    for name, values in expected.items():
        torch.testing.assert_close(found[name].reshape(values.shape), values)
        (mine,), (other,) = (torch.autograd.grad(x.sum(), colour, retain_graph=True) for x in (found[name], values))
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "values", [[0.5] * 5, [0.7, 0.5, 0.5, 0.7, 0.5], [0.6, 0.5, 0.6, 0.5, 0.1], [0.2, 0.2, 0.3, 0.4, 0.3]]
)
def test_ties_go_by_the_order_of_the_facts(values, reverse):
    """Of equal values a maximum takes the fact that was given first, a minimum the last, however they are derived."""
    edges = [(0, 1), (1, 3), (0, 2), (2, 3), (0, 3)]
    edges, paths = (edges[::-1], [(0, 1), (2, 3), (4,)]) if reverse else (edges, [(0, 1), (2, 3), (4,)])
    paths = [tuple(4 - k for k in path) for path in paths] if reverse else paths
    text = "type edge(i32, i32)\nrel path(a, b) = edge(a, b)\nrel path(a, c) = path(a, b), edge(b, c)"
    layer = dv.nn.Logic(text, {"edge": dv.varying()}, {"path": [(0, 3)]}, "minmaxprob")
    p = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    found = layer([(edges, p)])
    least = [min(path, key=lambda k: (values[k], -k)) for path in paths]
    best = max(least, key=lambda k: (values[k], -k))
    (gradient,) = torch.autograd.grad(found.sum(), p)
    assert found.item() == values[best]
    assert gradient.tolist() == [float(k == best) for k in range(5)]
    fixed = dv.nn.Logic(text, {"edge": dv.independent(edges)}, {"path": [(0, 3)]}, "minmaxprob")
    (other,) = torch.autograd.grad(fixed(p[None]).sum(), p)
    # Another subgradient, of a fact with that value.
    assert sorted(other.tolist()) == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert values[int(other.argmax())] == values[best]
