"""The semiring dictionary against Python dicts, in every semiring, on the reference and on the CPU."""

import itertools
import math
import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from derivable.algebra import semirings
from derivable.algebra.laws import sample_values
from derivable.core.diagnostics import LayoutError, ShapeError, TypeMismatchError
from derivable.device import primitives as device
from derivable.parallel import SemiringDictionary, reference

ROUTES = {"reference": reference, "device": device}


def ordinary(semiring):
    return [v for v in sample_values(semiring) if not (isinstance(v, float) and math.isinf(v))]


@st.composite
def dictionaries(draw, semiring, names, primitives):
    n = draw(st.integers(0, 7))
    keys = [draw(st.tuples(*[st.integers(0, 2)] * len(names))) for _ in range(n)]
    values = [draw(st.sampled_from(ordinary(semiring))) for _ in range(n)]
    model = {}
    for key, value in zip(keys, values):
        model[key] = semiring.plus(model[key], value) if key in model else value
    columns = {name: np.array([key[i] for key in keys], np.int64) for i, name in enumerate(names)}
    array = np.array(values, {"float": np.float64, "bool": bool, "integer": object}[semiring.carrier])
    made = SemiringDictionary.from_pairs(columns, array, semiring, primitives=primitives)
    return made, model


def same(made, model):
    made.check()
    got = made.to_dict()
    assert list(got) == sorted(model)
    for key, value in model.items():
        assert got[key] == pytest.approx(value, rel=1e-9), key


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", semirings.names())
def test_operations_against_python_dicts(name, route):
    semiring = semirings.get(name)

    @settings(max_examples=12, deadline=None, database=None)
    @given(st.data())
    def check(data):
        a, model_a = data.draw(dictionaries(semiring, ("x", "y"), ROUTES[route]))
        b, model_b = data.draw(dictionaries(semiring, ("y", "z"), ROUTES[route]))
        c, model_c = data.draw(dictionaries(semiring, ("x", "y"), ROUTES[route]))
        same(a, model_a)

        union = dict(model_a)
        for key, value in model_c.items():
            union[key] = semiring.plus(union[key], value) if key in union else value
        same(a.union(c), union)

        joined = {
            (*key, other[1]): semiring.times(value, model_b[other])
            for key, value in model_a.items()
            for other in model_b
            if other[0] == key[1]
        }
        same(a.join(b), joined)
        same(a.join(c), {k: semiring.times(v, model_c[k]) for k, v in model_a.items() if k in model_c})

        for names, pick in ((["y"], lambda k: (k[1],)), (["y", "x"], lambda k: (k[1], k[0])), ([], lambda k: ())):
            projected = {}
            for key in sorted(model_a):
                short = pick(key)
                value = model_a[key]
                projected[short] = semiring.plus(projected[short], value) if short in projected else value
            same(a.project(names), projected)
        apart = a.project(["x"]).join(b)
        assert len(apart) == len({key[0] for key in model_a}) * len(model_b)

        same(a.filter(lambda x, y: x < y), {k: v for k, v in model_a.items() if k[0] < k[1]})
        inside = {key[0] for key in model_b}
        same(a.restrict(b), {k: v for k, v in model_a.items() if k[1] in inside})
        same(a.restrict(b, keep=False), {k: v for k, v in model_a.items() if k[1] not in inside})
        same(a.without_zeros(), {k: v for k, v in model_a.items() if v != semiring.zero})
        total = semiring.zero
        for key in sorted(model_a):
            total = semiring.plus(total, model_a[key])
        assert a.total() == pytest.approx(total, rel=1e-9)

        every = list(itertools.product(range(4), range(3)))
        found = a.lookup({"x": [k[0] for k in every], "y": [k[1] for k in every]})
        for key, value in zip(every, found):
            assert value == a[key] == model_a.get(key, semiring.zero) or value == pytest.approx(model_a[key])
            assert (key in a) == (key in model_a)

    check()


def test_a_sparse_matrix_product_is_scipys():
    rng = np.random.default_rng(0)
    a, b = (scipy.sparse.random(30, 30, 0.1, random_state=rng, format="coo") for _ in range(2))
    left = SemiringDictionary.from_pairs({"i": a.row, "j": a.col}, a.data, primitives=device)
    right = SemiringDictionary.from_pairs({"j": b.row, "k": b.col}, b.data, primitives=device)
    product = left.join(right).project(["i", "k"])
    expected = (a @ b).toarray()
    dense = np.zeros((30, 30))
    dense[product.columns] = product.values
    np.testing.assert_allclose(dense, expected, rtol=1e-12)


def test_values_may_be_batches():
    values = np.arange(8.0).reshape(4, 2)
    d = SemiringDictionary.from_pairs({"k": [1, 0, 1, 2]}, values)
    assert d.values.tolist() == [[2, 3], [4, 6], [6, 7]]
    assert d[1].tolist() == [4, 6]
    assert d[9].tolist() == [0, 0]
    assert d.join(d).values.tolist() == [[4, 9], [16, 36], [36, 49]]
    assert d.total().tolist() == [12, 16]
    assert d.map_values(lambda v: v[:, 0]).to_dict() == {(0,): 2, (1,): 4, (2,): 6}


def test_relations_and_scalars():
    relation = SemiringDictionary.from_pairs({"x": [2, 1, 2]}, semiring="boolean")
    assert relation.to_dict() == {(1,): True, (2,): True}
    assert repr(relation) == "SemiringDictionary[boolean](x; {(1,): True, (2,): True})"
    counted = SemiringDictionary.from_pairs({"x": [2, 1, 2]}, semiring="counting")
    assert counted.to_dict() == {(1,): 1, (2,): 2}
    scalar = counted.project([])
    assert scalar.to_dict() == {(): 3}
    assert scalar[()] == 3
    assert scalar.join(counted).to_dict() == {(1,): 3, (2,): 6}
    assert SemiringDictionary.from_pairs({}, [2.0, 3.0]).to_dict() == {(): 5.0}


def test_empty_dictionaries():
    empty = SemiringDictionary.empty({"x": np.int64, "y": np.float64}, "log", batch=(2,))
    empty.check()
    assert len(empty) == 0
    assert list(empty) == []
    assert empty[3, 0.5].tolist() == [-math.inf] * 2
    assert len(empty.union(empty)) == len(empty.join(empty)) == len(empty.project([])) == 0
    assert empty.total().tolist() == [-math.inf] * 2
    assert empty.lookup({"x": [1], "y": [0.0]}).tolist() == [[-math.inf] * 2]
    assert SemiringDictionary.from_pairs({"x": []}, semiring="counting").columns[0].dtype == np.int64


def test_float_keys_and_many_rows():
    d = SemiringDictionary.from_pairs({"t": [0.5, math.nan, -0.0, 0.0, math.nan]}, [1.0, 2, 3, 4, 5])
    assert d.values.tolist() == [7, 1, 7]
    assert len(d.join(d)) == 3
    many = SemiringDictionary.from_pairs({"x": np.arange(20)})
    assert "... 12 more" in repr(many)


@pytest.mark.parametrize("route", ROUTES)
def test_dictionaries_can_be_pickled(route):
    d = SemiringDictionary.from_pairs({"x": [1, 0], "y": [2, 2]}, [1.0, 3.0], "log", primitives=ROUTES[route])
    copied = pickle.loads(pickle.dumps(d))
    assert copied.primitives is d.primitives
    assert copied.to_dict() == d.to_dict() == {(0, 2): 3.0, (1, 2): 1.0}
    assert copied.union(d).to_dict() == d.union(d).to_dict()


def test_errors():
    d = SemiringDictionary.from_pairs({"x": [1], "y": [2]}, [1.0])
    with pytest.raises(ShapeError, match="1 rows, the values 2"):
        SemiringDictionary.from_pairs({"x": [1]}, [1.0, 2.0])
    with pytest.raises(ShapeError, match="neither key columns nor values"):
        SemiringDictionary.from_pairs({})
    with pytest.raises(TypeMismatchError, match="float64 are not in the carrier of boolean"):
        SemiringDictionary.from_pairs({"x": [1]}, [0.5], "boolean")
    with pytest.raises(ShapeError, match="differ"):
        d.union(d.rename({"x": "z"}))
    with pytest.raises(TypeMismatchError, match="the semirings real and log differ"):
        d.union(SemiringDictionary.from_pairs({"x": [1], "y": [2]}, [1.0], "log"))
    with pytest.raises(ShapeError, match="int64 here and float64 there"):
        d.join(SemiringDictionary.from_pairs({"x": [1.0]}, [1.0]))
    with pytest.raises(ShapeError, match="no key column 'q'"):
        d.project(["q"])
    with pytest.raises(ShapeError, match="where one repeats"):
        d.rename({"x": "y"})
    with pytest.raises(ShapeError, match="not bool"):
        d.filter(np.array([1]))
    with pytest.raises(ShapeError, match="has 1 parts, the dictionary 2"):
        _ = d[1]
    with pytest.raises(TypeMismatchError, match="is no part of a key"):
        _ = d["a", 1]
    with pytest.raises(ShapeError, match="keys have the columns"):
        d.lookup({"x": [1]})
    with pytest.raises(LayoutError, match="row 1 repeats the key"):
        SemiringDictionary(("x",), (np.array([1, 1]),), np.ones(2), semirings.real).check()
    with pytest.raises(LayoutError, match="not sorted"):
        SemiringDictionary(("x",), (np.array([2, 1]),), np.ones(2), semirings.real).check()
