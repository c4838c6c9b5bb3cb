"""The kernel of products of matrices of tags, for any semiring; see `apm.tag_matrices`."""

from __future__ import annotations

from derivable.algebra.expr.functions import less, where
from derivable.algebra.expr.nodes import Constant
from derivable.algebra.semiring import TypedSemiring
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute

# Lanes of a row that a program computes.
LANES = 256


def include_rows_kernel(typed: TypedSemiring, lanes: int = LANES) -> n.Kernel:
    """Rows of `matrix` [source, lane], times the tag of an edge, are added to rows of `into` [row, lane].

    Row x of `result` has the edges `offsets[x]` .. `offsets[x + 1]`, from the rows `sources` with these
    `tags` [edge]; all tags are arrays of components.
    """
    k = Builder("include_tagged_rows", lanes)
    rows, width = k.scalar("rows"), k.scalar("width")
    offsets, sources = k.array("offsets", "int64"), k.array("sources", "int64")
    tags, matrix, into, result = (
        [k.array(f"{name}{c}_", dtype) for c, dtype in enumerate(typed.dtypes)]
        for name in ("tag", "matrix", "into", "result")
    )
    zeros = [Constant(zero.item(), dtype) for zero, dtype in zip(typed.zero, typed.dtypes)]
    with k.loop("row", 0, rows, parallel=True) as row, k.loop("first", 0, width, step=lanes) as first:
        count = width - first
        total = k.registers("total", typed.dtypes)
        for register, array, zero in zip(total, into, zeros):
            k.load_line(register, array, row * width + first, count=count, fill=zero)
        edge, end = k.load(offsets, row, "edge"), k.load(offsets, row + 1, "end")
        with k.while_(less(edge, end)):
            source = k.load(sources, edge, "source")
            weight = [k.load(array, edge, "weight", dtype) for array, dtype in zip(tags, typed.dtypes)]
            value = k.registers("value", typed.dtypes)
            for register, array, zero in zip(value, matrix, zeros):
                k.load_line(register, array, source * width + first, count=count, fill=zero)
            bound = {**dict(zip(typed.times.left, value)), **dict(zip(typed.times.right, weight))}
            product = substitute(typed.times.values, bound)
            (operand,) = typed.discard.operands
            (is_nothing,) = substitute(typed.discard.values, dict(zip(operand, product)))
            terms = [where(is_nothing, zero, part) for zero, part in zip(zeros, product)]
            k.set(value, terms)
            bound = {**dict(zip(typed.plus.left, total)), **dict(zip(typed.plus.right, value))}
            k.set(total, substitute(typed.plus.values, bound))
            k.set(edge, edge + 1)
        for register, array in zip(total, result):
            k.store_line(array, row * width + first, register, count=count)
    return k.kernel()
