"""What other libraries have as numbers is read by every door with its values, or refused in words of ours: conjugated
and narrow tensors, masked arrays, nullable columns, keys of random numbers, arrays whose memory was given away."""

from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import derivable as dv
from derivable.circuit.formulas.formula import evaluate

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax.experimental import sparse  # noqa: E402

a, b, c = dv.circuit.variables("a b c")
# Its value is the weight of the one variable whose negation weighs nothing.
ONE = dv.circuit.compile((a & ~b & ~c) | (~a & b & ~c) | (~a & ~b & c))
PROGRAM = dv.tensor.parse("sum(<i, x> in X) {i -> x}", {"X": 1})
FUNCTION = dv.tensor.Function(PROGRAM)
KERNEL = dv.tensor.compile(PROGRAM, {"X": "dense"})
DOORS = {
    "einsum": lambda x: dv.tensor.einsum("i,i->i", x, np.ones(3)),
    "program": lambda x: PROGRAM(X=x),
    "coordinates": lambda x: dv.tensor.coordinates(x).to_numpy(),
    "scan": lambda x: dv.parallel.scan("max", x),
    "circuit": lambda x: [ONE.evaluate(x, others, semiring="real").item() for others in 1 - np.eye(3)],
    "function": lambda x: FUNCTION(X=x),
    "kernel": lambda x: KERNEL(X=x),
    "weighted count": lambda x: [ONE.weighted_count(x, others) for others in 1 - np.eye(3)],
}
NUMBERS = [0.25, 0.5, 0.75]
# With the doors that have no form for it.
READ = {
    "negated view": (lambda: torch.tensor([-0.25j, -0.5j, -0.75j]).conj().imag, ()),
    "bfloat16": (lambda: torch.tensor(NUMBERS, dtype=torch.bfloat16), ()),
    "float8": (lambda: torch.tensor(NUMBERS).to(torch.float8_e5m2), ("scan",)),
    "list of bfloat16": (lambda: list(torch.tensor(NUMBERS, dtype=torch.bfloat16)), ()),
    "list of views": (lambda: list(torch.tensor([-0.25j, -0.5j, -0.75j]).conj().imag), ()),
    "JAX bfloat16": (lambda: jnp.array(NUMBERS, jnp.bfloat16), ()),
    "NumPy bfloat16": (lambda: np.array(NUMBERS, jnp.bfloat16), ()),
    "series": (lambda: pd.Series(NUMBERS, dtype="Float64"), ()),
    "sparse series": (lambda: pd.Series(pd.arrays.SparseArray(NUMBERS)), ()),
    "other byte order": (lambda: np.array(NUMBERS, ">f4"), ()),
    "Arrow": (lambda: pa.chunked_array([NUMBERS[:1], NUMBERS[1:]]), ()),
    "types without sizes": (lambda: _Series(NUMBERS), ()),
}


class _Series(list):
    """As a series of polars, whose types are no types of NumPy."""

    dtype = SimpleNamespace()

    def __array__(self, *_, **__):
        return np.array(list(self))


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("door", DOORS)
def test_numbers_are_read(door, kind):
    make, without = READ[kind]
    if door in without:
        with pytest.raises(dv.DerivableError, match="float8"):
            DOORS[door](make())
        return
    result = DOORS[door](make())
    result = [float(x) for x in result]
    assert result == NUMBERS


def _deleted():
    array = jnp.array(NUMBERS) + 0
    array.delete()
    return array


REFUSED = {
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "nested"),
    "nested rows": (
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
        "nested|layout|j[0-9]",
    ),
    "keys": (lambda: jax.random.split(jax.random.key(0), 3), "key|PRNGKey"),
    "list of keys": (lambda: [jax.random.key(0)] * 3, "PRNGKey|key"),
    "deleted": (_deleted, "given away|deleted"),
    "masked": (lambda: np.ma.array(NUMBERS, mask=[False, True, False]), "masked at 1 place"),
    "list with a masked one": (lambda: [0.25, np.ma.masked, 0.75], "masked at 1 place"),
    "signalling NaN": (lambda: [0.25, Decimal("sNaN"), 0.75], "object|NaN|real numbers"),
    "texts": (lambda: pd.Series(["0.25", "0.5", "0.75"]), "object|no number|real numbers"),
    "missing number": (lambda: pd.Series([0.25, None, 0.75], dtype="Float64"), "1 missing value,"),
    "missing integers": (lambda: pd.array([1, None, None], dtype="Int64"), "2 missing values"),
    "missing numbers of a table": (lambda: pd.DataFrame({"x": pd.array([None, 1.0], "Float32")}), "1 missing value,"),
    "missing category": (lambda: pd.Categorical([0.25, None, 0.75]), "1 missing value,"),
    "missing number of Arrow": (lambda: pa.array([0.25, None, 0.75]), "1 missing value,"),
    "missing number of a table of Arrow": (lambda: pa.table({"x": [0.25, None]}), "1 missing value,"),
    "list with a masked row": (lambda: [np.ma.array([1.0, 2.0], mask=[False, True])] * 2, "masked at 2 places"),
    "dates": (lambda: np.array(["2026-03-05"] * 3, "M8[D]"), "datetime64|no number|real numbers"),
    "durations": (lambda: np.array([1, 2, 3], "m8[s]"), "timedelta64|no number|real numbers"),
    "list of texts": (lambda: ["0.25", "0.5", "0.75"], "<U4|str128|no number|real numbers"),
    "complex": (lambda: torch.tensor(NUMBERS) + 0j, "complex|real numbers"),
    "large decimal": (lambda: [Decimal("1e400"), Decimal(1), Decimal(2)], "object|beyond|too large|real numbers"),
    "masked tensor": (lambda: torch.masked.masked_tensor(torch.ones(3), torch.ones(3) > 0), "masked tensor|traced"),
    "fake": (lambda: FakeTensorMode().from_tensor(torch.ones(3)), "fake|traced"),
    "list within itself": (lambda: _within_itself(), "within itself|object|lengths"),
    "tables": (lambda: _Table(), "cannot be read as an array: no table is an array"),
}


def _within_itself():
    numbers: list = [0.25, 0.5]
    numbers.append(numbers)
    return numbers


class _Table:
    def __array__(self, *_, **__):
        raise LookupError("no table is an array")


@pytest.mark.filterwarnings(
    "ignore:.*nested tensors", "ignore:.*masked element", "ignore:The PyTorch API of MaskedTensors"
)
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("door", DOORS)
def test_what_has_no_numbers_is_refused(door, kind):
    make, message = REFUSED[kind]
    with pytest.raises(dv.DerivableError, match=message):
        DOORS[door](make())


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("door", DOORS)
def test_quantised_tensors_are_refused(door):
    with pytest.raises(dv.DerivableError, match=r"quantised|quint8"):
        DOORS[door](torch.quantize_per_tensor(torch.tensor(NUMBERS), 0.25, 0, torch.quint8))


@pytest.mark.parametrize("form", ["dense", "entries"])
def test_torch_beside_what_jax_traces_is_constant(form):
    """As in programs: gradients of the one do not reach the other."""
    weights, places = torch.tensor([2.0, 3.0, 4.0]), jnp.arange(3)[:, None]

    def total(x):
        x = sparse.BCOO((x, places), shape=(3,)) if form == "entries" else x
        return dv.tensor.einsum("i,i->", x, weights)

    assert jax.jit(total)(jnp.ones(3)) == 9
    np.testing.assert_array_equal(jax.grad(total)(jnp.ones(3)), weights)
    weights.requires_grad_()
    with pytest.raises(dv.DerivableError, match=r"gradients|one library"):
        jax.jit(lambda x: total(x))(jnp.ones(3))


@pytest.mark.parametrize(
    "make", [lambda n: torch.ones(n).to(torch.float8_e5m2), lambda n: jnp.ones(n, jnp.float8_e5m2)]
)
def test_floats_of_8_bits_are_added_up_in_32(make):
    """A float of so few bits has no 9: its sum of ones would end at 8."""
    assert float(dv.tensor.einsum("i,i->", make(10_000), np.ones(10_000, np.float32))) == 10_240


FACTS = "type f(i32)\nrel p(i) = f(i)"
LAYER = dv.nn.Logic(FACTS, {"f": dv.independent([0, 1, 2])}, {"p": [0, 1, 2]})
VARYING = dv.nn.Logic(FACTS, {"f": dv.varying()}, {"p": [0, 1, 2]})
FUNCTION_OF_JAX = dv.nn.logic_function(FACTS, {"f": dv.independent([0, 1, 2])}, {"p": [0, 1, 2]})
LAYERS = {
    "layer": LAYER,
    "in logarithms": LAYER.log,
    "varying": lambda x: VARYING([([0, 1, 2], x)]),
    "loss": lambda x: dv.nn.semantic_loss(ONE, x),
    "loss of scores": lambda x: dv.nn.semantic_loss(ONE, x, inputs="logits"),
    "circuit": ONE.to_torch("real"),
    "circuit in JAX": ONE.to_jax("real"),
    "function of JAX": FUNCTION_OF_JAX,
}
NO_INPUT = {
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "nested"),
    "masked": (lambda: torch.masked.masked_tensor(torch.ones(3), torch.ones(3) > 0), "masked tensor"),
    "fake": (lambda: FakeTensorMode().from_tensor(torch.ones(3)), "fake"),
    "meta": (lambda: torch.ones(3, device="meta"), "meta|cannot be read"),
    "sparse": (lambda: torch.tensor(NUMBERS).to_sparse(), "sparse|to_dense|cannot be read"),
}


@pytest.mark.filterwarnings("ignore:.*nested tensors", "ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize("kind", NO_INPUT)
@pytest.mark.parametrize("door", LAYERS)
def test_what_is_no_input_of_a_layer_is_refused(door, kind):
    make, message = NO_INPUT[kind]
    if door == "circuit" and kind == "meta":
        # It computes shapes, as operations of torch do.
        assert LAYERS[door](make()).is_meta
        return
    with pytest.raises(dv.DerivableError, match=message):
        LAYERS[door](make())


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.uint16, torch.uint64])
@pytest.mark.parametrize("door", ["layer", "in logarithms", "varying"])
def test_types_that_torch_only_stores_are_named(door, dtype):
    with pytest.raises(dv.DerivableError, match=r"storage.*\n.*x\.float"):
        LAYERS[door](torch.ones(3).to(dtype))


def test_masked_probabilities_of_a_sample_are_refused():
    with pytest.raises(dv.DerivableError, match="masked at 1 place"):
        VARYING([([0, 1, 2], np.ma.array(NUMBERS, mask=[False, True, False]))])


def test_probabilities_of_a_sample_that_are_a_list_of_tensors_with_gradients_are_refused():
    """Their gradients would end there."""
    with pytest.raises(dv.DerivableError, match="gradients"):
        VARYING([([0, 1, 2], list(torch.tensor(NUMBERS, requires_grad=True)))])


OPERANDS = {
    "bind": lambda x: dv.vsa.bind(x, torch.ones(3), model="hrr"),
    "convolve": lambda x: dv.vsa.convolve(torch.ones(3), x),
    "weights": lambda x: dv.vsa.bundle(torch.eye(3), weights=x, model="map"),
    "exponents": lambda x: dv.vsa.power(torch.ones(3, 4), x, model="hrr"),
    "mass": lambda x: dv.vsa.mass_to_vector(x, torch.ones(3, 1, 4)),
    "memory": lambda x: dv.vsa.ItemMemory((3,), model="map").add("item", x),
}


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize("operand", [NUMBERS, np.array(NUMBERS), "sparse", "nested"], ids=["list", "NumPy", *"sn"])
@pytest.mark.parametrize("door", OPERANDS)
def test_what_is_no_dense_tensor_is_no_vector(door, operand):
    if isinstance(operand, str):
        operand = NO_INPUT[operand][0]()
    with pytest.raises(dv.DerivableError, match=r"expected|nested|sparse"):
        OPERANDS[door](operand)


def test_complex_weights_of_real_vectors_are_refused():
    with pytest.raises(dv.DerivableError, match="complex numbers, and the vectors are real"):
        dv.vsa.bundle(torch.eye(3), weights=torch.ones(3) + 1j, model="map")


@pytest.mark.parametrize("model", ["hrr", "block", "fhrr"])
def test_complex_exponents_are_refused(model):
    """Their imaginary parts were dropped."""
    shape = (1, 4) if model == "block" else (4,)
    with pytest.raises(dv.DerivableError, match="complex"):
        dv.vsa.power(dv.vsa.random(*shape, model=model), torch.tensor([0.5 + 1j, 0.25 + 0j]), model=model)


VECTORS = OPERANDS | {
    "normalise": lambda x: dv.vsa.normalise(x, model="hrr"),
    "similarity": lambda x: dv.vsa.similarity(x, torch.ones(3), model="map"),
    "cleanup": lambda x: dv.vsa.cleanup(x, torch.eye(3), model="map"),
    "permute": lambda x: dv.vsa.permute(x, 1, model="map"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize("kind", ["masked", "fake"])
@pytest.mark.parametrize("door", VECTORS)
def test_what_has_no_numbers_is_no_vector(door, kind):
    with pytest.raises(dv.DerivableError, match=kind):
        VECTORS[door](NO_INPUT[kind][0]())


@pytest.mark.parametrize("door", ["convolve", "weights", "exponents", "mass"])
def test_vectors_of_types_that_torch_only_stores_are_named(door):
    with pytest.raises(dv.DerivableError, match=r"storage.*\n.*x\.float"):
        VECTORS[door](torch.ones(3).to(torch.float8_e5m2))


def test_vectors_of_one_mode_of_fake_tensors_have_shapes():
    with FakeTensorMode():
        assert dv.vsa.bind(torch.ones(3), torch.ones(3), model="map").shape == (3,)


COMPLEX = {
    "JAX": lambda: jnp.ones(3) + 1j,
    "torch": lambda: (torch.ones(3) + 1j).requires_grad_(),
    "torch, sparse": lambda: torch.sparse_coo_tensor([[0, 2]], (torch.ones(2) + 1j).requires_grad_(), (3,)),
    "BCOO": lambda: sparse.BCOO((jnp.ones(2) + 1j, jnp.array([[0], [2]])), shape=(3,)),
    "NumPy": lambda: np.ones(3) + 1j,
}


@pytest.mark.parametrize("subscripts", ["i->i", "i->", "i,i->i"])
@pytest.mark.parametrize("kind", COMPLEX)
def test_complex_operands_are_refused_by_every_sum(kind, subscripts):
    operands = [COMPLEX[kind]() for _ in range(subscripts.count("i,") + 1)]
    with pytest.raises(dv.DerivableError, match="complex"):
        dv.tensor.einsum(subscripts, *operands)


@pytest.mark.parametrize("kind", ["masked", "missing", "complex", "deleted"])
def test_tables_and_logits_of_circuits_are_real_numbers(kind):
    """The imaginary part of a table was dropped, and what a mask hides was read."""
    values = {
        "masked": lambda: np.ma.array(NUMBERS, mask=[False, True, False]),
        "missing": lambda: pd.array([0.5, None, 0.25], dtype="Float64"),
        "complex": lambda: np.array(NUMBERS) + 1j,
        "deleted": _deleted,
    }[kind]()
    with pytest.raises(dv.DerivableError, match=r"masked|missing|real|given away"):
        dv.circuit.from_factors([((0,), values)], [3])
    with pytest.raises(dv.DerivableError, match=r"masked|missing|complex|given away"):
        evaluate(a & b | c, values)


def test_a_deleted_array_has_no_value_and_gradient():
    square = dv.tensor.parse("sum(<i, x> in X) x * x", {"X": 1})
    with pytest.raises(dv.DerivableError, match=r"`X` is an array of JAX whose memory was given away"):
        dv.tensor.value_and_gradient(square, "X")(X=_deleted())


@pytest.mark.parametrize("make", [dv.independent, dv.categorical, lambda x: dv.independent([1, 2, 3], x)])
def test_facts_on_the_meta_device_are_refused(make):
    with pytest.raises(dv.DerivableError, match="meta"):
        make(torch.ones(3, device="meta"))


@pytest.mark.filterwarnings("ignore:.*quantize")
def test_quantised_values_of_folds_have_their_hint():
    values = torch.quantize_per_tensor(torch.tensor(NUMBERS), 0.25, 0, torch.quint8)
    with pytest.raises(dv.DerivableError, match=r"values is quantised.*\n.*dequantize"):
        dv.parallel.reduce_by_index(torch.zeros(3), "max", torch.arange(3), values)


def test_entries_that_are_differentiated_are_no_array():
    x = torch.ones(3, requires_grad=True)
    entries = dv.tensor.einsum("i,i->i", x, np.ones(3), output="coordinates")
    with pytest.raises(dv.DerivableError, match="gradients"):
        entries.to_numpy()
