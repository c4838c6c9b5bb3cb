"""Triton's source, run on the CPU by its interpreter in a process of its own, because that is chosen at import."""

import pytest

import golden_files
from derivable.algebra.expr.nodes import Constant
from derivable.core.diagnostics import UnsupportedError
from derivable.kernel.build import Builder
from derivable.kernel.emit_triton import emit_triton
from kernel import kernels
from triton_process import printed_by


def test_triton_does_what_the_interpreter_of_the_ir_says():
    assert printed_by("kernel/triton_cases.py").split() == [
        "test_kernels",
        "test_scans",
        "test_the_comparison_can_fail",
    ]


def test_source():
    kernel, _ = kernels.lines(returns=False)
    golden_files.compare("kernel/lines_triton", emit_triton(kernel))


def test_leaving_a_loop_is_refused():
    kernel, _ = kernels.control()
    with pytest.raises(UnsupportedError, match="Triton has no `continue`"):
        emit_triton(kernel)


def test_tiles_have_a_power_of_two():
    with pytest.raises(UnsupportedError, match="a tile of 12 rows"):
        emit_triton(Builder("odd", lanes=12).kernel())


def test_constants_of_all_types_are_those_of_triton_in_conditions_of_loops():
    k = Builder("doubled")
    numbers = k.array("numbers", "float32")
    x = k.let("x", Constant(0.25, "float32"))
    with k.while_(x < Constant(0.5, "float32")):
        k.set(x, x + x)
    k.store(numbers, 0, x)
    source = emit_triton(k.kernel())
    assert "while x < tl.full((), 0.5, tl.float32):" in source
    assert "np." not in source
