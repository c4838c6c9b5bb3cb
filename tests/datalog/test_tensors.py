"""Tensors as values, against NumPy and torch."""

import subprocess
import sys

import numpy as np
import pytest

import derivable as dv

TEXT = """type q(i: i32, x: Tensor)
rel sum(i, j, x + y) = q(i, x), q(j, y), i <= 2, j <= 2
rel scaled(i, x * 0.5 - 1.0, 2.0 / x) = q(i, x)
rel product(i, $dot(x, x) as f64) = q(i, x), $dim(x) == 1
rel shape(i, k, n) = q(i, x), tensor_shape(x, k, n)
rel dims(i, $dim(x)) = q(i, x)
rel same(i, j) = q(i, x), q(j, x), i < j
rel distinct(n) = n := count(x: q(_, x))
"""
ARRAYS = [(1, np.array([1.0, 2.0])), (2, np.array([3.0, 5.0])), (3, np.arange(6.0).reshape(2, 3) + 1)]
ARRAYS += [(4, np.array([1.0, 2.0])), (5, np.array(7.0))]


def as_lists(rows):
    return sorted((tuple(v.tolist() if hasattr(v, "tolist") else v for v in row) for row in rows), key=repr)


def check(db, arrays):
    by = dict(arrays)
    sums = [(i, j, by[i] + by[j]) for i in (1, 2) for j in (1, 2)]
    assert as_lists(db["sum"]) == as_lists(sums)
    assert as_lists(db["scaled"]) == as_lists([(i, x * 0.5 - 1.0, 2.0 / x) for i, x in arrays])
    assert set(db["product"]) == {(1, 5.0), (2, 34.0), (4, 5.0)}
    assert set(db["shape"]) == {(1, 0, 2), (2, 0, 2), (3, 0, 2), (3, 1, 3), (4, 0, 2)}
    assert set(db["dims"]) == {(1, 1), (2, 1), (3, 2), (4, 1), (5, 0)}
    assert set(db["same"]) == {(1, 4)}
    assert set(db["distinct"]) == {(4,)}


def test_arrays_of_numpy():
    db = dv.Program(TEXT).run({"q": ARRAYS})
    check(db, ARRAYS)
    assert "(3, tensor<2x3>[1, 2, 3, 4, ...])" in repr(dv.Program("type q(i32, Tensor)").run({"q": ARRAYS})["q"])
    assert not db["sum"].columns[2][0].flags.writeable or db["sum"].columns[2][0] is not ARRAYS[0][1]


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    arrays = [(i, torch.tensor(x)) for i, x in ARRAYS]
    db = dv.Program(TEXT).run({"q": arrays})
    check(db, arrays)
    assert isinstance(db["sum"].columns[2][0], torch.Tensor)


def test_gradients_flow_through_tensors():
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    db = dv.Program("type q(x: Tensor)\nrel r($dot(x * 3.0, x)) = q(x)").run({"q": [(x,)]})
    ((found,),) = db["r"]
    found.backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_a_fact_is_what_it_was_when_it_was_given():
    x = np.array([1.0, 2.0])
    program = dv.Program("type q(x: Tensor)\nrel r(x) = q(x)")
    db = program.run({"q": [(x,)]})
    x[0] = 9.0
    assert as_lists(db["r"]) == [([1.0, 2.0],)]


def test_errors():
    clash = dv.Program("type q(x: Tensor)\nrel r(x + y) = q(x), q(y)")
    with pytest.raises(dv.DerivableError, match=r"2:7: error: the operator \+ failed for .*broadcast"):
        clash.run({"q": [(np.ones(2),), (np.ones(3),)]})
    dot = dv.Program("type q(x: Tensor)\nrel r($dot(x, y)) = q(x), q(y)")
    with pytest.raises(dv.DerivableError, match=r"the shapes are \(2,\) and \(3,\)|the shapes are \(3,\) and \(2,\)"):
        dot.run({"q": [(np.ones(2),), (np.ones(3),)]})
    with pytest.raises(dv.DerivableError, match="`<` needs something with an order, this is Tensor"):
        dv.Program("type q(x: Tensor)\nrel r() = q(x), q(y), x < y")
    with pytest.raises(dv.DerivableError, match="expected Tensor"):
        dv.Program("type q(x: Tensor)").run({"q": [(3.0,)]})


def test_torch_is_not_imported_without_its_tensors():
    code = """
import sys, numpy as np, derivable as dv
db = dv.Program("type q(x: Tensor)\\nrel r(x + x) = q(x)").run({"q": [(np.ones(2),)]})
assert len(db["r"]) == 1
print("torch" in sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"


@pytest.mark.parametrize("name", ["float32", "float64", "int64", "bool"])
def test_inner_products_of_torch_tensors_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    values = torch.arange(1000).reshape(2, 500).remainder(7)
    a, b = (values.to(dtype) / 3 if dtype.is_floating_point else values.to(dtype)).unbind(0)
    program = dv.Program("type q(x: Tensor, y: Tensor)\nrel r($dot(x, y)) = q(x, y)")
    ((found,),) = program.run({"q": [(a, b)]})["r"]
    assert isinstance(found, torch.Tensor)
    assert found == (int((a & b).sum()) if dtype == torch.bool else torch.dot(a, b))
    if dtype.is_floating_point:
        a.requires_grad_()
        ((found,),) = program.run({"q": [(a, b)]})["r"]
        (gradient,) = torch.autograd.grad(found, a)
        assert torch.equal(gradient, b)
