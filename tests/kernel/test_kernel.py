"""The loop IR: what it means, how it prints, what the validator refuses, and that compiled kernels do the same."""

import copy
import itertools

import numpy as np
import pytest

import golden_files
from derivable.algebra.expr.functions import exp, less
from derivable.algebra.expr.nodes import Argument, Constant
from derivable.core.diagnostics import LayoutError, TypeMismatchError, UnsupportedError
from derivable.device.cpu import llvm_code
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder
from derivable.kernel.check import check
from derivable.kernel.emit_llvm import emit_llvm
from derivable.kernel.interpret import interpret
from derivable.kernel.lines import has_line_form
from kernel import kernels
from kernel.random_kernels import Drawn


def same(found, expected):
    """Raise unless both calls left the same arrays and returned the same."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=0)


def test_the_comparison_can_fail():
    with pytest.raises(AssertionError):
        same([np.array([1.0, 2.0])], [np.array([1.0, 2.1])])


@pytest.mark.parametrize("name", kernels.CASES)
def test_llvm_does_what_the_interpreter_says(name):
    kernel, arguments = kernels.CASES[name]()
    theirs = copy.deepcopy(arguments)
    expected = interpret(kernel, *theirs)
    found = llvm_code.compile_kernel(kernel, by_row="scalars" in name)(*arguments)
    same(arguments, theirs)
    same(found if isinstance(found, tuple) else () if found is None else (found,), expected)


def bits(values):
    """Numbers as they lie in memory, but all NaN alike."""
    arrays = [np.array(value) for value in values]
    return [np.where(np.isnan(a), np.nan, a).astype(a.dtype).tobytes() if a.dtype.kind == "f" else a for a in arrays]


def check_drawn(compile_kernel, drawn):
    kernel, arguments = drawn.k.kernel(), drawn.arguments
    theirs = copy.deepcopy(arguments)
    with np.errstate(all="ignore"):
        expected = interpret(kernel, *theirs)
    found = compile_kernel(kernel)(*arguments)
    for name, ours, wanted in zip(kernel.parameters, bits(arguments), bits(theirs), strict=True):
        assert np.array_equal(ours, wanted), (name, str(kernel))
    assert [np.array(a).tolist() for a in bits(found)] == [np.array(b).tolist() for b in bits(expected)], str(kernel)


@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=pytest.mark.slow) for start in range(10, 500, 10))])
def test_drawn_kernels_mean_the_same_to_llvm(start):
    for seed in range(start, start + 10):
        check_drawn(llvm_code.compile_kernel, Drawn(seed))


def test_tables_of_hashes():
    kernel, arguments = kernels.tables()
    interpret(kernel, *arguments)
    count, words, _, slots, _, bits, wide, narrow = arguments
    expected = sum(1 << slot for slot in set(slots.tolist()))
    assert int(bits[0]) + (int(bits[1]) << 32) == expected == int(wide[1])
    assert len(set(slots[::3].tolist())) > count // 2
    assert narrow.tolist() == [(int(word) ** 3 + 2**31) % 2**32 - 2**31 for word in words]


@pytest.mark.parametrize("name", ["segment_sums", "control"])
def test_printed_form(name):
    golden_files.compare(f"kernel/{name}", f"{kernels.CASES[name]()[0]}\n")


@pytest.mark.parametrize("name", ["segment_sums", "lines", "lines_backwards"])
def test_text_of_llvm(name):
    golden_files.compare(f"kernel/{name}_llvm", emit_llvm(kernels.CASES[name]()[0]))


def test_segment_sums_mean_sums():
    kernel, arguments = kernels.segment_sums()
    interpret(kernel, *arguments)
    _, _, offsets, values, out = arguments
    assert out.tolist() == pytest.approx([values[a:b].sum() for a, b in itertools.pairwise(offsets)])
    shown = (n.__doc__ or "").split("each segment:\n\n")[1]
    assert "\n".join(line[4:] for line in shown.strip("\n").split("\n")) == str(kernel)


def test_a_line_of_linear_functions_is_what_they_compose_to():
    kernel, arguments = kernels.lines()
    factors, terms, out = arguments[0].astype(np.float64), arguments[1], arguments[4]
    interpret(kernel, *arguments)
    value, expected = 0.0, []
    for factor, term in zip(factors, terms):
        value = value * factor + term
        expected.append(value)
    np.testing.assert_allclose(out[:8], expected, rtol=1e-12)
    np.testing.assert_allclose(out[8:16], [5.0, *expected[:-1]], rtol=1e-12)


def test_rows_outside_an_array_are_an_error_of_the_interpreter():
    k = Builder("outside")
    x = k.array("x", "float64")
    k.store(x, 3, 1.0)
    with pytest.raises(IndexError, match="rows 3 to 3 of x, which has 3"):
        interpret(k.kernel(), np.zeros(3))


def test_lanes_with_places_of_their_own():
    kernel, (rows, size, values, scratch, out) = kernels.places_of_lanes()
    interpret(kernel, rows, size, values, scratch, out)
    padded = np.full((rows, 16), -1.0)
    padded[:, :size] = values.reshape(rows, size)
    np.testing.assert_array_equal(out.reshape(rows, 16), padded[:, ::-1])
    text = str(kernel)
    for part in ("lane = lanes", "x = values[", "where there else -1.0", "] where true = x", "barrier"):
        assert part in text
    with pytest.raises(UnsupportedError, match="not positions of their own"):
        emit_llvm(kernel)
    with pytest.raises(IndexError, match=f"position {size * rows} of values"):
        interpret(kernel, rows + 1, size, values, np.zeros(64), np.zeros(64))


def test_arguments_are_replaced_at_once():
    found, expected = kernels.substituted()
    assert all(ours is theirs for ours, theirs in zip(found, expected, strict=True))


def test_names_stay_unique():
    k = Builder("names")
    assert [k.register("a").name for _ in range(3)] == ["a", "a_1", "a_2"]
    assert k.register("a_1").name == "a_1_1"


def test_what_works_on_lines():
    a = Argument(0, "int64", "a")
    assert has_line_form([a * a + 1])
    assert not has_line_form([a // 3])


def test_narrow_lines_do_not_fill_wide_registers():
    k = Builder("narrow")
    line = k.register("line", "float32")
    k.load_line(line, k.array("x", "float32"), 0)
    with pytest.raises(TypeMismatchError, match="lines of 8 lanes do not hold float32"):
        emit_llvm(k.kernel())


def test_columns_are_rows_of_the_matrix():
    kernel, arguments = kernels.columns(8)
    interpret(kernel, *arguments)
    matrix, flags, _, _, out, result, positive, _ = arguments
    total = matrix[:, 0].astype(np.float64) + matrix[:, 2]
    assert out[0].tolist() == [*total, *[total[-1]] * 3]
    assert result[:, 1].tolist() == total.tolist()
    assert not result[:, 0].any()
    assert positive.tolist() == (flags & (total > 0)).tolist()
    assert "line = matrix[0 by 3] count count" in str(kernel)
    assert "sum_of_two(x, y, out, 0)" in str(kernel)
    with pytest.raises(IndexError, match="6 rows from 0 on by 3 of matrix, which has 15"):
        interpret(kernel, *arguments[:-1], 6)


def test_lines_of_fewer_rows():
    k = Builder("ragged")
    x, out, count = k.array("x", "float64"), k.array("out", "float64"), k.scalar("count")
    line = k.register("line", "float64")
    k.load_line(line, x, 4, backwards=True, count=count, fill=9)
    k.store_line(out, 0, line)
    k.store_line(out, 8, line, count=count - 1)
    for count in range(-1, 6):
        out = np.zeros(16)
        interpret(k.kernel(), np.arange(5.0), out, count)
        rows = [4.0, 3.0, 2.0, 1.0, 0.0][: max(count, 0)]
        assert out[:8].tolist() == rows + [9.0] * (8 - len(rows))
        assert out[8:].tolist() == rows[:-1] + [0.0] * (8 - len(rows[:-1]))
    assert "line = x[.. 4] count count else 9.0" in str(k.kernel())
    assert "out[8 ..] count count - 1 = line" in str(k.kernel())


def test_positions_of_lanes():
    kernel, arguments = kernels.positions(8)
    x, out, prefixes, constant, flags, sums, count = arguments
    before = flags.copy()
    interpret(kernel, *arguments)
    rows = np.concatenate([x[count - 1 :: -1][:count].astype(np.float64), np.full(-count % 8, 2.5)])
    products = np.concatenate([np.multiply.accumulate(part[::-1])[::-1] for part in rows.reshape(-1, 8)])
    assert out[5 : 2 * count : 2].tolist() == products[2:count].tolist()
    assert not out[:5].any()
    assert not out[::2].any()
    # From the last lane on: what lies behind is the left operand.
    last = rows.reshape(-1, 8)[0]
    assert prefixes[7] == x[0]
    assert prefixes[6] == x[0] * last[6] + x[0]
    assert constant.tolist() == [7.0] * count + [0.0] * (len(constant) - count)
    assert (flags[:count] == ~before[:count]).all()
    assert (flags[count:] == before[count:]).all()
    assert sums.tolist() == [3.5, sum(range(3, count))]
    text = str(kernel)
    assert "sums[where(here < 3, 0, 1)] where here < count += " in text
    assert "found0 = x[count - 1 - here] where here < count else 2.5" in text
    assert "found0, found1 = scan down (found0, found1) with" in text
    assert "out0[2 * here + 1] where here < count & 1 < here = first" in text
    with pytest.raises(IndexError, match="position 21 of out0, which has 20"):
        interpret(kernel, x, out[:20], *arguments[2:])
    with pytest.raises(UnsupportedError, match="consecutive rows"):
        emit_llvm(kernel)


def _refused(build, error, message):
    k = Builder("bad")
    build(k, k.array("x", "float64"), k.array("i", "int64"))
    with pytest.raises(error, match=message):
        check(k.kernel())


def _unassigned(k, x, i):
    k.store(x, k.register("p"), 1.0)


def _line_into_one_position(k, x, i):
    line = k.register("line", "float64")
    k.load_line(line, x, 0)
    k.store(x, 0, line)


def _scalar_where_a_line_belongs(k, x, i):
    k.store_line(x, 0, k.load(x, 0, "a"))


def _line_as_condition(k, x, i):
    line = k.register("line", "float64")
    k.load_line(line, x, 0)
    with k.when(less(line, 1.0)):
        k.store(x, 0, 1.0)


def _both_line_and_scalar(k, x, i):
    a = k.load(x, 0, "a")
    k.load_line(a, x, 0)


def _break_outside(k, x, i):
    k.break_()


def _foreign_array(k, x, i):
    k.add(n.Store(n.Array("y", "float64"), k.let("p", 0), k.let("v", 1.0)))


def _float_position(k, x, i):
    k.add(n.Load(k.register("a", "float64"), x, k.let("v", 1.0)))


def _wrong_type(k, x, i):
    k.add(n.Assign((k.register("a", "int64"),), (exp(k.load(x, 0, "v")),)))


def _different_results(k, x, i):
    with k.when(less(k.load(i, 0, "a"), 0)):
        k.return_(1)
    k.return_(1, 2)


def _count_of_float(k, x, i):
    k.add(n.LoadLine(k.register("line", "float64"), x, k.let("p", 0), False, k.let("c", 1.0), Constant(0, "float64")))


def _array_that_does_not_fit(k, x, i):
    inner = Builder("inner")
    inner.array("x", "float32")
    k.call(inner.kernel(), (x,))


def _call_of_what_returns(k, x, i):
    inner = Builder("inner")
    inner.return_(1)
    k.call(inner.kernel(), ())


def _fill_of_other_type(k, x, i):
    k.add(n.LoadLine(k.register("line", "float64"), x, k.let("p", 0), False, k.let("c", 1), Constant(0, "float32")))


def _gather_by_floats(k, x, i):
    k.gather(k.register("line", "float64"), x, k.lane_numbers(), k.let("c", 1.0))
    k.add(n.Gather(k.register("line", "float64"), x, k.let("p", 0.5), Constant(True, "bool"), Constant(0, "float64")))


def _scatter_of_scalars(k, x, i):
    k.scatter(x, k.let("p", 0), 1.0)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (_unassigned, LayoutError, r"`x\[p\] = 1.0`: p is read before it is assigned"),
        (_line_into_one_position, LayoutError, "a line does not fit one position"),
        (_scalar_where_a_line_belongs, LayoutError, "a is a scalar where a line belongs"),
        (_line_as_condition, LayoutError, "is a line where a scalar belongs"),
        (_both_line_and_scalar, LayoutError, "a is a line in one place and a scalar in another"),
        (_break_outside, LayoutError, "there is no loop around it"),
        (_foreign_array, LayoutError, "y is not a parameter"),
        (_float_position, TypeMismatchError, "v is float64, not int64"),
        (_wrong_type, TypeMismatchError, "a is int64, its value float64"),
        (_different_results, LayoutError, "returns 1 and 2 values"),
        (_count_of_float, TypeMismatchError, "is float64, not int64"),
        (_array_that_does_not_fit, TypeMismatchError, "x does not fit x"),
        (_call_of_what_returns, LayoutError, "the kernel has other lines or returns something"),
        (_gather_by_floats, TypeMismatchError, "positions are int64, and the mask is bool"),
        (_scatter_of_scalars, LayoutError, "the positions are no line"),
        (_fill_of_other_type, TypeMismatchError, "what fills the line is no constant of float64"),
    ],
)
def test_the_validator_refuses(build, error, message):
    _refused(build, error, message)
