"""Provenances of one's own, as classes."""

import pytest
import torch

import derivable.compat.scallopy as scallopy
from derivable.core.diagnostics import DerivableError


class MinMax(scallopy.ScallopProvenance):
    def zero(self):
        return 0.0

    def one(self):
        return 1.0

    def add(self, t1, t2):
        return max(t1, t2)

    def mult(self, t1, t2):
        return min(t1, t2)

    def negate(self, t):
        return 1.0 - t

    def saturated(self, t1, t2):
        return t1 == t2


class AddMult(scallopy.Provenance):
    """On scalars of torch."""

    def zero(self):
        return torch.tensor(0.0)

    def one(self):
        return torch.tensor(1.0)

    def add(self, t1, t2):
        return torch.clamp(t1 + t2, max=1.0)

    def mult(self, t1, t2):
        return t1 * t2

    def saturated(self, t1, t2):
        return True

    def discard(self, t):
        return bool(t <= 0)


def context(own):
    ctx = scallopy.ScallopContext(provenance="custom", custom_provenance=own)
    ctx.add_relation("edge", (int, int))
    ctx.add_program(
        "rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y)) rel far(x, y) = path(x, y), not edge(x, y)"
    )
    return ctx


def test_a_class_is_a_provenance():
    ctx = context(MinMax())
    ctx.add_facts("edge", [(0.9, (0, 1)), (0.5, (1, 2)), (None, (2, 0)), (0.25, (0, 2))])
    ctx.run()
    built_in = scallopy.ScallopContext("minmaxprob")
    built_in.add_relation("edge", (int, int))
    built_in.add_program("rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))")
    built_in.add_facts("edge", [(0.9, (0, 1)), (0.5, (1, 2)), (None, (2, 0)), (0.25, (0, 2))])
    built_in.run()
    assert list(ctx.relation("path")) == list(built_in.relation("path"))
    assert (0.5, (0, 2)) in list(ctx.relation("far"))
    ctx.add_facts("edge", [(0.75, (2, 3))])
    ctx.run()
    assert {row: tag for tag, row in ctx.relation("path")}[0, 3] == 0.5


@pytest.mark.parametrize("dispatch", ["serial", "single", "parallel"])
def test_forward_functions_collate_tags(dispatch):
    ctx = scallopy.ScallopContext("custom", custom_provenance=AddMult())
    ctx.add_relation("a", int, input_mapping=range(3))
    ctx.add_relation("b", int)
    ctx.add_rule("sum(x + y) = a(x), b(y)")
    forward = ctx.forward_function("sum", range(5), dispatch=dispatch)
    p = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], requires_grad=True)
    q = torch.tensor(0.5, requires_grad=True)
    y = forward(a=p, b=[[(q, (1,)), (q, (0,))], [(None, (2,))]])
    assert y.tolist() == [[0.25, 0.375, 0.25, 0.125, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0]]
    y[0, 1].backward()
    assert p.grad is not None
    assert p.grad[0].tolist() == [0.5, 0.5, 0.0]
    assert q.grad is not None
    assert q.grad.item() == 0.75
    tuples, whole = ctx.forward_function("sum")(a=p, b=[[(q, (1,))], []])
    assert tuples == [(1,), (2,), (3,)]
    assert whole.shape == (2, 3)


def test_what_a_class_needs():
    with pytest.raises(DerivableError, match="custom_provenance"):
        scallopy.ScallopContext("custom")

    class NoAdd(scallopy.ScallopProvenance):
        pass

    ctx = context(NoAdd())
    ctx.add_facts("edge", [(1, (0, 1))])
    with pytest.raises(DerivableError, match="NoAdd"):
        ctx.run()
    with pytest.raises(DerivableError, match="custom"):
        ctx.clone(provenance="unit")


def test_aggregates_of_a_class():
    ctx = context(MinMax())
    ctx.add_rule("number(n) = n := count(x, y: edge(x, y))")
    ctx.add_facts("edge", [(0.9, (0, 1)), (0.5, (1, 2))])
    ctx.run()
    assert list(ctx.relation("number")) == [(1.0, (2,))]
