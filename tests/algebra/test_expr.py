import copy
import math
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from derivable.algebra import expr
from derivable.algebra.expr import differentiate, functions
from derivable.algebra.expr.generated import load_generated
from derivable.core.diagnostics import TypeMismatchError, UnsupportedError

a, b = expr.Argument(0, "float64", "a"), expr.Argument(1, "float64", "b")
f32 = expr.Argument(0, "float32", "f")
i, j = expr.Argument(0, "int64", "i"), expr.Argument(1, "int64", "j")
p, q = expr.Argument(0, "bool", "p"), expr.Argument(1, "bool", "q")


def test_equal_structure_is_one_object():
    assert expr.exp(a) + b is expr.exp(a) + b
    assert expr.exp(a) + b is not expr.exp(b) + a
    assert expr.Constant(0.0, "float64") is not expr.Constant(-0.0, "float64")
    assert expr.Constant(1, "int64") is not expr.Constant(1, "float64")
    assert expr.Constant(math.nan, "float64") is expr.Constant(math.nan, "float64")
    e = expr.where(a < b, expr.exp(a), 2 * b)
    assert pickle.loads(pickle.dumps(e)) is e
    assert copy.deepcopy(e) is e


def test_only_nodes_with_a_key_can_be_made():
    class Nameless(expr.Expr):
        pass

    with pytest.raises(TypeError, match="abstract"):
        expr.Expr()
    with pytest.raises(TypeError, match="abstract"):
        Nameless()
    assert isinstance(a, expr.Expr)
    assert not isinstance(1.0, expr.Expr)


def test_sharing_survives_threads():
    made = []

    def build():
        e = a
        for k in range(200):
            e = e * b + k
        made.append(e)

    workers = [threading.Thread(target=build) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({id(e) for e in made}) == 1


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (a + b * 2, "a + b * 2.0"),
        ((a + b) * 2, "(a + b) * 2.0"),
        (a - (b - a), "a - (b - a)"),
        (a - b - a, "a - b - a"),
        (a / (b * a), "a / (b * a)"),
        (-(a + b), "-(a + b)"),
        (expr.power(expr.power(a, b), a), "(a ** b) ** a"),
        (expr.power(a, expr.power(b, a)), "a ** b ** a"),
        (expr.where((a < b) | (b < a), a, -b), "where(a < b | b < a, a, -b)"),
        (expr.logical_not(expr.equal(i, 3)), "~(i == 3)"),
        (expr.cast(i, "float32") * f32, "float32(i) * f"),
        (i // 2 + i % 3, "i // 2 + i % 3"),
        (expr.maximum(a, -math.inf), "maximum(a, -inf)"),
        (a - (-2.0), "a - -2.0"),
        (expr.Constant(True, "bool"), "true"),
    ],
)
def test_printed_form(e, text):
    assert str(e) == text


def test_shared_subexpressions_are_named():
    t = expr.exp(a)
    assert expr.to_text(t / (1 + t)) == "t0 = exp(a)\nt0 / (1.0 + t0)"
    assert expr.to_text((a + b, a)) == "(a + b, a)"


@pytest.mark.parametrize(
    ("e", "simple"),
    [
        (a + 0, a),
        (0 + a, a),
        (a - 0, a),
        (0 - a, -a),
        (a * 1, a),
        (a * 0, expr.Constant(0, "float64")),
        (a * -1, -a),
        (a + (-b), a - b),
        (a - (-b), a + b),
        ((-a) + b, b - a),
        ((-a) * (-b), a * b),
        (-(-a), a),  # noqa: B002
        (-(a - b), b - a),
        (a / 1, a),
        (expr.power(a, 1.0), a),
        (expr.power(a, 2.0), a * a),
        (expr.power(a, 0.0), expr.Constant(1, "float64")),
        (expr.maximum(a, a), a),
        (expr.maximum(a, -math.inf), a),
        (expr.minimum(a, -math.inf), expr.Constant(-math.inf, "float64")),
        (expr.logaddexp(-math.inf, a), a),
        (expr.exp(expr.Constant(0.0, "float64")) + a * 0 + 2 * 3, expr.Constant(7, "float64")),
        (expr.where(expr.Constant(True, "bool"), a, b), a),
        (expr.where(~p, a, b), expr.where(p, b, a)),
        (expr.where(p, expr.where(p, a, b), b), expr.where(p, a, b)),
        (expr.where(a < b, 1.0, 0.0) * a, expr.where(a < b, a, 0.0)),
        (p & True, p),
        (p | True, expr.Constant(True, "bool")),
        (p & p, p),
        (~~p, p),
        (expr.logical_xor(p, True), ~p),
        (expr.equal(i, i), expr.Constant(True, "bool")),
        (expr.cast(expr.cast(f32, "float64"), "float32"), f32),
        ((a + 0) * (b * 1), a * b),
        (i // 1 + i % 1, i),
        (i + expr.Constant(2**63 - 1, "int64") * 0, i),
    ],
)
def test_simplify(e, simple):
    assert expr.simplify(e) is simple
    assert expr.simplify(e).dtype == e.dtype


def test_simplify_keeps_what_is_not_equal():
    assert expr.simplify(a - a) is a - a  # NaN at infinities
    assert expr.simplify(expr.equal(a, a)) is expr.equal(a, a)  # false for NaN
    assert expr.simplify(expr.cast(expr.cast(a, "float32"), "float64")).operands[0].dtype == "float32"
    assert expr.simplify(expr.cast(expr.cast(i, "float32"), "int64")) is not i  # 24 bits only


@pytest.mark.parametrize(
    ("e", "dtype"),
    [
        (i + 1, "int64"),
        (i + 0.5, "float64"),
        (f32 + 0.5, "float32"),
        (f32 + 1, "float32"),
        (f32 + i, "float32"),
        (f32 + a, "float64"),
        (p + q, "int64"),
        (i / 2, "float64"),
        (expr.exp(i), "float64"),
        (i < 3, "bool"),
        (expr.where(p, i, f32), "float32"),
        (expr.where(p, 1, f32), "float32"),
        (i**3, "int64"),
        (a**0, "float64"),
    ],
)
def test_types(e, dtype):
    assert e.dtype == dtype


def test_type_errors():
    with pytest.raises(TypeMismatchError, match="needs integers or truth values, and float64 and bool are"):
        _ = a & p
    with pytest.raises(TypeMismatchError, match="condition of `where` is float64"):
        expr.where(a, a, b)
    with pytest.raises(TypeMismatchError, match="type str"):
        _ = a + "x"
    with pytest.raises(TypeMismatchError, match="no truth value"):
        bool(a)
    with pytest.raises(TypeMismatchError, match="did you mean 'logaddexp'"):
        expr.apply("logadexp", a, b)
    with pytest.raises(TypeMismatchError, match="takes 2 operands, 1"):
        expr.apply("add", a)
    with pytest.raises(TypeMismatchError, match="does not fit int64"):
        expr.Constant(2**63, "int64")
    with pytest.raises(TypeMismatchError, match="'complex128' is not a scalar type"):
        expr.Argument(0, complex)  # type: ignore[arg-type]


def branches(x, y):
    if x < y:
        return x
    return y


def test_a_value_dependent_branch_is_refused_with_its_line():
    with pytest.raises(UnsupportedError) as caught:
        expr.trace(branches, 2)
    error = caught.value
    assert "decides on the value of `x < y`" in error.message
    assert "where(condition, a, b)" in (error.hint or "")
    assert (error.source or "").endswith("test_expr.py")
    assert error.line_text == "    if x < y:"
    assert error.span is not None
    assert error.span.line == branches.__code__.co_firstlineno + 1
    assert error.line_text[error.span.column - 1 :][: error.span.length] == "x < y"


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: max(x, y),
        lambda x, y: x and y,
        lambda x, y: not x,
        lambda x, y: y if x == y else x,
        lambda x, y: 1.0 < x < 2.0,
    ],
)
def test_hidden_branches_are_refused(function):
    with pytest.raises(UnsupportedError, match="replace `if`"):
        expr.trace(function, 2)


@pytest.mark.parametrize(
    "function", [lambda x: math.exp(x), lambda x: float(x), lambda x: int(x), lambda x: [0, 1][x], lambda x: round(x)]
)
def test_leaving_the_trace_is_refused(function):
    with pytest.raises(UnsupportedError, match="as a Python number"):
        expr.trace(function, 1)


def test_other_misuse_of_tracing():
    with pytest.raises(UnsupportedError, match="takes `x` apart"):
        expr.trace(lambda x: x[0], 1)
    with pytest.raises(UnsupportedError, match=r"np\.add with reduce"):
        expr.trace(lambda x: np.add.reduce(x), 1)
    with pytest.raises(UnsupportedError, match=r"np\.sort cannot be traced"):
        expr.trace(lambda x: np.sort(x), 1)
    with pytest.raises(TypeMismatchError, match="returns a value of type str"):
        expr.trace(lambda x: "no", 1)
    with pytest.raises(TypeMismatchError, match="2 argument"):
        expr.trace(lambda x: x, 2)


def test_numpy_functions_are_recorded():
    (e,) = expr.trace(lambda x, y: np.where(np.greater(x, y), np.exp(x), np.logaddexp(x, -y)), 2)
    assert str(e) == "where(y < x, exp(x), logaddexp(x, -y))"


def test_tuples_are_flattened():
    compose = expr.trace(
        lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), [("float32", "float32"), ("float32", "float32")]
    )
    assert expr.to_text(compose) == "(f_0 * g_0, f_1 * g_0 + g_1)"
    assert [e.dtype for e in compose] == ["float32", "float32"]


def test_the_same_argument_twice_stays_two_arguments():
    (e,) = expr.trace(lambda x, y: x * y, 2)
    assert len(expr.arguments_of(e)) == 2


def test_constant_results_take_the_type_of_the_arguments():
    assert expr.trace(lambda x: 1, ["float32"])[0] is expr.Constant(1, "float32")
    assert expr.trace(lambda x: 1, ["int64"])[0] is expr.Constant(1, "int64")


@pytest.mark.parametrize("route", ["interpret", "numba"])
def test_corners(route):
    def value(e, *values):
        if route == "interpret":
            return expr.interpret(e, values)
        return expr.compile_numba(e, expr.arguments_of(e))(*values)

    largest, smallest = expr.maximum(a, b), expr.minimum(a, b)
    # A tie goes to the first argument, all of it.
    for e in (largest, smallest):
        gradient = (differentiate(e, a), differentiate(e, b))
        assert tuple(value(gradient, 2.0, 2.0)) == (1, 0)
        assert np.isnan(value(e, math.nan, 1.0))
        assert np.isnan(value(e, 1.0, math.nan))
    total = expr.logaddexp(a, b)
    gradient = (differentiate(total, a), differentiate(total, b))
    assert value(total, -math.inf, -math.inf) == -math.inf
    assert value(total, math.inf, 1.0) == math.inf
    assert np.isnan(value(total, math.nan, 1.0))
    assert tuple(value(gradient, -math.inf, -math.inf)) == (0, 0)
    assert tuple(value(gradient, -math.inf, 1.0)) == (0, 1)
    assert tuple(value(gradient, math.inf, 1.0)) == (1, 0)
    assert tuple(value(gradient, -2000.0, 2000.0)) == (0, 1)
    curvature = differentiate(gradient, a)
    assert tuple(value(curvature, -math.inf, -math.inf)) == (0, 0)
    assert value(curvature, 5000.0, -5000.0)[0] == 0
    assert value(differentiate(expr.log1mexp(a), a), 0.0) == -math.inf
    assert value(differentiate(expr.log1mexp(a), a), -800.0) == 0
    assert value((i // j, i % j), 7, 0) == (0, 0)
    assert value((i // j, i % j), -7, 2) == (-4, 1)
    assert value((i // j, i % j), 7, -2) == (-4, -1)
    assert value((a // b, a % b), -7.5, 2.0) == (-4.0, 0.5)
    assert value((a // b, a % b), 7.5, -2.0) == (-4.0, -0.5)
    assert value((a // b, a % b), 6.0, 2.0) == (3.0, 0.0)
    assert value(a / b, 1.0, 0.0) == math.inf
    assert value(expr.log(a), 0.0) == -math.inf
    assert np.isnan(value(expr.sqrt(a), -1.0))
    assert value(expr.exp(a), 1000.0) == math.inf
    assert np.isnan(value(expr.sign(a), math.nan))
    assert value((expr.sign(a), expr.floor(a), expr.ceil(a)), -1.5) == (-1, -2, -1)
    assert value(expr.cast(a, "int64"), -2.7) == -2
    assert value(i * i, 2**62) == 0
    assert value(expr.logical_xor(p, q), True, False)
    assert value(differentiate(expr.abs(a), a), 0.0) == 0
    assert value(differentiate(expr.power(a, b), a), 0.0, 0.0) == 0
    assert value(differentiate(expr.power(a, b), b), 0.0, 2.0) == 0


def test_products_are_zero_safe():
    product = a * b * (a + b)
    assert expr.interpret(differentiate(product, a), (0.0, 3.0)) == 9


def test_derivative_by_an_integer_is_refused():
    with pytest.raises(UnsupportedError, match="is int64, which has no derivative"):
        differentiate(expr.cast(i, "float64") * 2, i)


def test_differentiating_a_deep_expression_does_not_recurse():
    e = a
    for _ in range(3000):
        e = e * b + 1
    d = differentiate(e, a)
    assert float(expr.interpret(d, (1.0, 1.0))) == 1.0
    assert len(expr.to_text(d)) > 3000


def test_python_numbers_stay_python_numbers():
    assert functions.maximum(3, 5) == 5
    assert type(functions.maximum(3, 5)) is int
    assert type(functions.exp(0.0)) is float
    assert functions.logical_or(False, True) is True
    assert functions.maximum(2**100, 1) == 2**100
    assert np.array_equal(functions.where(np.array([True, False]), 1.0, 2.0), [1.0, 2.0])
    with pytest.raises(TypeMismatchError, match="does not take"):
        functions.exp("x")


def test_values_missing():
    with pytest.raises(Exception, match="has index 1, 1 values are given"):
        expr.interpret(a + b, (1.0,))


def test_generated_modules_are_files_shared_by_processes(tmp_path):
    code = (
        "from derivable.algebra import expr\n"
        "from derivable.core.cache import cache_directory\n"
        "e, = expr.trace(lambda x, y: expr.exp(x) * y + 12345, 2)\n"
        "f = expr.compile_numba(e, expr.arguments_of(e), 'shared')\n"
        "print(f(0.0, 2.0), sum(f.stats.cache_hits.values()))\n"
    )
    environment = dict(os.environ, DERIVABLE_CACHE_DIR=str(tmp_path))
    pair = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    assert [child.communicate()[0].split()[0] for child in pair] == ["12347.0"] * 2
    assert len(list(tmp_path.glob("derivable_shared_*.py"))) == 1
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert again.stdout.split() == ["12347.0", "1"]


def test_a_damaged_generated_file_is_written_anew(tmp_path):
    environment = dict(os.environ, DERIVABLE_CACHE_DIR=str(tmp_path))
    code = "from derivable.algebra.expr.generated import load_generated; print(load_generated('x = 5\\n').x)"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        assert done.stdout == "5\n"
        (file,) = tmp_path.glob("*.py")
        file.write_text("x = ")


def test_an_unwritable_cache_falls_back(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    environment = dict(os.environ, DERIVABLE_CACHE_DIR=str(blocked / "below"))
    code = (
        "from derivable.core.cache import cache_directory\n"
        "print(cache_directory().is_dir(), cache_directory(), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    usable, directory = done.stdout.split()
    assert usable == "True"
    assert not os.path.exists(directory)


def test_the_same_text_is_one_module():
    assert load_generated("y = 1\n") is load_generated("y = 1\n")
    assert load_generated("y = 1\n") is not load_generated("y = 2\n")
