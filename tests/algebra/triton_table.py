"""Every operation that has a Triton text, on all pairs of edge values, in Triton's interpreter; run with
TRITON_INTERPRET=1, which is chosen at import."""

import sys

import numpy as np
import torch

from algebra.test_operations import applications, check, values_of
from derivable.algebra import expr
from derivable.algebra.expr import emit
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.operations import OPERATIONS


def try_type(dtype):
    found, arguments = applications(dtype)
    found = {name: node for name, node in found.items() if OPERATIONS[name].text("triton", node.dtype)}
    if dtype.startswith("float"):
        found["saturating_cast"] = expr.saturating_cast(arguments[0], "int32")
        found["cast"] = expr.cast(arguments[0], "float32")
    x, y = values_of(dtype)
    exprs = tuple(found.values())
    lines, results = emit.statements("triton", exprs, dict(zip(arguments, "xy")))
    outs = [torch.empty(x.size, dtype=getattr(torch, e.dtype)) for e in exprs]
    names = [f"out{place}" for place in range(len(outs))]
    source = [
        "import triton\nimport triton.language as tl\n\n\n@triton.jit",
        f"def kernel(xs, ys, {', '.join(names)}, size, width: tl.constexpr):",
        "    i = tl.arange(0, width)",
        *(f"    {name} = tl.load({name}s + i, mask=i < size)" for name in "xy"),
        *lines,
        *(f"    tl.store({name} + i, {text}, mask=i < size)" for name, text in zip(names, results)),
    ]
    kernel = load_generated("\n".join(source) + "\n", "triton_table").kernel
    kernel[(1,)](torch.tensor(x), torch.tensor(y), *outs, x.size, 1 << (x.size - 1).bit_length())
    for name, got, expected in zip(found, outs, expr.interpret(exprs, (x, y))):
        check(name, got.numpy(), expected, dtype if dtype.startswith("float") else "float64")
    return len(found)


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        print(*(try_type(dtype) for dtype in sys.argv[1:]))
