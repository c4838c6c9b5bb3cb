"""Programs as gathers and sums of torch tensors, against NumPy, the interpreter and the kernels of the CPU."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derivable.algebra import semirings
from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.tensor import columns
from derivable.tensor.binding import free_variables
from derivable.tensor.compilation import compile
from derivable.tensor.interpret import NOTHING, interpret
from derivable.tensor.passes import KERNEL
from derivable.tensor.program import Program
from derivable.tensor.types import INT
from derivable.tensor.values import coordinates
from tensor.random_programs import INPUTS, SIZE, programs, tensors
from tensor.test_kernels import (
    BITMAP,
    BLOCKS,
    CASES,
    MATRICES,
    TYPES,
    VALUES,
    VECTORS,
    complete,
    dense_of,
    is_outside,
    parse,
)

torch = pytest.importorskip("torch")
# The program as it is written.
PLAIN = dict.fromkeys(KERNEL, False)


def as_dense(found):
    found = found.to_dense() if found.layout != torch.strided else found
    return found.detach().numpy()


def in_torch(value):
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    return torch.sparse_csr_tensor(
        *(torch.from_numpy(x) for x in (value.indptr, value.indices, value.data)), value.shape
    )


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("output", ["torch", "torch_coo"])
def test_every_format(case, output):
    text, expected = CASES[case]
    used = {name: TYPES[name] for name in TYPES if name in text.replace("exp", "")}
    values = {name: in_torch(VALUES[name]) for name in used}
    mixed = [
        {},
        *(
            {"A": m, "B": m, "S": m, "X": v, "Y": v, "Z": v}
            for m, v in zip((*MATRICES, BLOCKS), VECTORS * 2 + (BITMAP,))
        ),
    ]
    for formats in mixed:
        kept = {name: of for name, of in formats.items() if name in used}
        kernel = compile(parse(text, used), kept, output=output if np.ndim(expected) else None, backend="torch")
        if case == "functions" and formats and formats["A"] is BLOCKS:
            continue
        found = kernel(**values)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(as_dense(found), expected)
        for plans in kernel._plans.values():
            for plan in plans:
                columns.check([plan.column])


def places_of(value, order):
    """Where a nested dictionary has entries."""
    found = np.zeros((SIZE,) * order, bool)

    def put(inner, path):
        if len(path) == order:
            found[path] = True
            return
        for key, below in inner.items():
            put(below, (*path, key))

    if value is not NOTHING:
        put(value, ())
    return found


def numbers_of(kernel, values):
    return {name: np.asarray(x) for name, x in kernel._parted(values, torch.device("cpu"))[2].items()}


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_random_programs(data):
    node = data.draw(programs(data.draw(st.integers(0, 2))))
    types = {name: of for name, of in INPUTS.items() if name in free_variables(node)}
    given_, meant, formats = {}, {}, {}
    for name, of in types.items():
        if of == INT or of.order == 0:
            given_[name] = meant[name] = data.draw(st.integers(0, SIZE) if of == INT else tensors(0))
            continue
        value = data.draw(tensors(of.order))
        formats[name] = data.draw(st.sampled_from(("dense", "csf")))
        given_[name] = coordinates(value, shape=(SIZE,) * of.order)
        meant[name] = complete(value, of.order) if formats[name] == "dense" else value
    program = Program(node, types)
    order = program.type.order
    output = data.draw(st.sampled_from(["torch", "torch_coo"])) if order else None
    optimise = data.draw(st.booleans())
    expected = interpret(node, meant, semirings.get("real"))
    kernel = compile(
        program, formats, output=output, shape=(SIZE,) * order if order else None, backend="torch", passes=None if optimise else PLAIN
    )
    if is_outside(expected):
        with pytest.raises((DomainError, UnsupportedError)):
            kernel(**given_)
        return
    found = kernel(**given_)
    dense = dense_of(expected, order)
    np.testing.assert_allclose(as_dense(found), dense, rtol=1e-6, atol=1e-9)
    if output == "torch_coo" and not optimise:
        held = np.zeros((SIZE,) * order, bool)
        held[tuple(found.indices().numpy())] = True
        np.testing.assert_array_equal(held, places_of(expected, order))
    for plans in kernel._plans.values():
        for plan in plans:
            columns.check([plan.column])
            meaning = columns.evaluate([plan.column], numbers_of(kernel, given_), semirings.get("real"))[0]
            np.testing.assert_allclose(
                meaning,
                np.asarray(found.values() if output == "torch_coo" else found).reshape(-1),
                rtol=1e-6,
                atol=1e-9,
            )
