"""Every pass can be switched off without another result, and every stage can be looked at."""

import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume
from hypothesis import strategies as st

from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.tensor import compile, gradient, hessian, jvp, matrix, optimise, parse, scalar, vector, vjp
from derivable.tensor.derivative.derivative import MODES, PATTERNS
from derivable.tensor.formats.format import format_of
from derivable.tensor.formats.held import hold
from derivable.tensor.language.binding import alpha_equal
from derivable.tensor.language.check import check
from derivable.tensor.language.interpret import interpret
from derivable.tensor.language.program import Program
from derivable.tensor.optimisation.optimisation import optimised
from derivable.tensor.optimisation.passes import PASSES, Setting, run_passes, switched
from derivable.tensor.show.explain import STAGES, effects
from drawn import examples
from tensor.random_programs import INPUTS, inputs, is_same, programs
from tensor.test_gradient import REALS, SMOOTH, drawn, run

SWITCHES = st.dictionaries(st.sampled_from(sorted(PASSES)), st.booleans())
OFF = st.dictionaries(st.sampled_from(sorted(PASSES)), st.just(False))
LOSS = parse("sum(<i, r> in A) exp(sum(<j, a> in r) a * X(j))", {"A": matrix, "X": vector})
BATAX = parse(
    "sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> s * a * b * X(k) }",
    {"A": matrix, "X": vector, "s": scalar},
)
A = sp.csr_array(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]))


@examples(25, 60, data=st.data())
def test_derivatives_do_not_depend_on_switches(data):
    program, values = drawn(data, SMOOTH)
    wrt, mode = data.draw(st.sampled_from(["s", "X", "A"])), data.draw(st.sampled_from(MODES))
    pattern = data.draw(st.sampled_from(PATTERNS))
    try:
        expected = gradient(program, wrt, mode, pattern)
    except UnsupportedError:
        assume(False)
    found = gradient(program, wrt, mode, pattern, passes=data.draw(OFF))
    assert found.type == expected.type
    assert is_same(run(found, values), run(expected, values), keeps_zeros=False)


@examples(15, 30, data=st.data())
def test_directions_do_not_depend_on_switches(data):
    program, values = drawn(data, SMOOTH)
    differentiate, passes = data.draw(st.sampled_from([jvp, vjp])), data.draw(OFF)
    try:
        expected = differentiate(program, "X")
    except UnsupportedError:
        assume(False)
    found = differentiate(program, "X", passes=passes)
    last = list(expected.inputs)[-1]
    seed = data.draw(inputs({last: expected.inputs[last]}, is_bounded=True))
    assert is_same(run(found, {**values, **seed}), run(expected, {**values, **seed}), keeps_zeros=False)


# One function saturates before and after.
@pytest.mark.parametrize("name", [name for name, each in PASSES.items() if each.run and each.is_on])
@examples(6, 15, data=st.data())
def test_every_pass_keeps_type_and_entries(name, data):
    node, values = data.draw(programs(depths=(2, 5), functions=SMOOTH)), data.draw(inputs())
    steps = []
    after = run_passes(node, [name], Setting(INPUTS, frozenset([name])), steps)
    assert [(step.name, step.before, step.after) for step in steps] == [(name, node, after)]
    assert check(after, INPUTS) in (check(node, INPUTS), None)
    # Sums run over zeros that are stored, as they do in the programs with guards that passes are for.
    left, right = (interpret(each, values, REALS, is_guarded=True) for each in (node, after))
    assert is_same(left, right, tolerance=1e-6)


@examples(8, 20, node=programs(depths=(2, 5)), values=inputs(), passes=SWITCHES)
def test_optimised_programs_do_not_depend_on_switches(node, values, passes):
    found = optimise(Program(node, INPUTS), passes=passes)
    left, right = (interpret(each, values, REALS) for each in (node, found.node))
    assert is_same(left, right, keeps_zeros=False, tolerance=1e-6)


@pytest.mark.parametrize("name", [None, *PASSES])
def test_kernels_do_not_depend_on_switches(name):
    passes = {} if name is None else {name: not PASSES[name].is_on}
    found = compile(gradient(BATAX, "X", passes=passes), {"A": "csr"}, passes=passes)(A=A, s=2.0, X=np.ones(3))
    np.testing.assert_allclose(found.to_numpy(), 2 * (A.T @ A).toarray())
    rows = parse("sum(<i, r> in A) (sum(<j, a> in r) a * { i -> a }) * r", {"A": matrix})
    expected = [[0.0, 8.0, 0.0], [10.0, 0.0, 30.0]]
    np.testing.assert_allclose(compile(rows, passes=passes)(A=A).to_numpy(), expected)
    outer = compile(parse("X * X", {"X": vector}), passes=passes, output="numpy")(X=np.array([1.0, 2.0]))
    np.testing.assert_allclose(outer, [[1.0, 2.0], [2.0, 4.0]])


def test_without_destinations_inner_tensors_are_made():
    rows = parse("sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> a * a } }", {"A": matrix})
    plain, made = (compile(rows, passes={"destinations": on}).explain("loops", A=A) for on in (True, False))
    assert "space0_keys" not in plain
    assert "space0_keys" in made


def test_without_factors_outer_products_are_entries():
    outer = parse("X * X", {"X": vector})
    assert type(compile(outer)(X=np.ones(2))).__name__ == "Factored"
    np.testing.assert_allclose(compile(outer, passes={"factors": False})(X=np.ones(2)), np.ones((2, 2)))


def test_unknown_passes():
    for call in (lambda p: gradient(BATAX, "X", passes=p), lambda p: compile(BATAX, passes=p)):
        with pytest.raises(DomainError, match=r"no pass 'fusoin'\n.*did you mean `fusion`"):
            call({"fusoin": False})
    assert switched(None) == switched({"fusion": True})


# Stages


def test_stages_of_a_derivative():
    found = gradient(LOSS, "X")
    assert found.explain("logical") == LOSS.explain("logical") != found.explain("optimised")
    # `exp` is its own slope.
    assert found.explain("differentiated") == (
        "sum(<_, r> in A)\n"
        "  if r != {} then\n"
        "    let t_1 = sum(<j, a> in r) let t = X(j) in a * t in\n"
        "    let t_2_1 = exp(t_1) in\n"
        "    let t_1_bar = t_2_1 * one in sum(<j_1, a_1> in r) let t_bar = a_1 * t_1_bar in { j_1 -> t_bar }"
    )
    assert found.explain("fusion") == str(found)
    assert found.explain("optimised") == (
        "sum(<_, r> in A) let s = exp(sum(<j, a> in r) a * X(j)) in s * r\n# about 6.2e+05 operations, before 7.2e+05"
    )
    assert found.explain("physical").endswith(found.explain("optimised").partition("\n# ")[0])
    assert "let A = sum(<_, i> in (0:A_n0))" in found.explain("physical")
    assert found.explain("loops").startswith("kernel tensor_program(A_pos")
    assert "@llvm.exp.f64(" in found.explain("source")
    whole = found.explain()
    headings = [line[2:] for line in whole.splitlines() if line[2:] in STAGES]
    assert headings == ["logical", "differentiated", "optimised", "physical", "loops", "source"]


def test_stages_of_a_second_derivative():
    found = hessian(LOSS, "X")
    assert found.explain("logical") == LOSS.explain("logical")
    first, second = found.explain("differentiated").split("\n\n")
    assert first == gradient(LOSS, "X").explain("differentiated")
    assert "X_dot" in second


def test_stages_of_a_program():
    assert "# differentiated" not in LOSS.explain()
    with pytest.raises(UnsupportedError, match="no derivative"):
        LOSS.explain("differentiated")
    with pytest.raises(UnsupportedError, match="part of the lowering"):
        LOSS.explain("destinations")
    with pytest.raises(UnsupportedError, match="did not run"):
        LOSS.explain("gathering")
    with pytest.raises(DomainError, match="did you mean 'physical'"):
        LOSS.explain("phisical")


def test_stages_go_by_the_sizes_that_are_given():
    dot = parse("sum(<i, x> in X) x * Y(i)", {"X": vector, "Y": vector})
    sparse = sp.coo_array(([1.0], ([3],)), shape=(50,))
    assert "in X)" in dot.explain("optimised")
    assert "in Y)" in dot.explain("optimised", X=np.ones(50), Y=sparse)
    assert "Y_idx" in dot.explain("source", X=np.ones(50), Y=sparse)


def test_a_kernel_is_explained_without_a_call():
    kernel = compile(gradient(BATAX, "X"), {"A": "hashed"})
    assert "A_places" in kernel.explain("loops")
    assert not kernel.is_final
    kernel(A=A, s=1.0)
    assert kernel.explain("optimised").startswith(str(kernel.staged))


@pytest.mark.parametrize(
    "text",
    [
        "sum(<i, x> in X) { i + 1 -> x }",
        "sum(<i, x> in X) { 7 -> x }",
        "X * X",
        "sum(<_, i> in (0:n)) { i -> X(i) }",
        "{}",
    ],
)
def test_everything_can_be_explained(text):
    program = parse(text, {"X": vector, **({"n": "int"} if "n)" in text else {})})
    assert "# source" in program.explain()


def test_definitions_of_formats_are_programs_too():
    csr = format_of("csr", 2)
    program = Program(csr.node, csr.types)
    assert program.explain().startswith("pos: { dense_int -> int }")


def test_effects():
    kernel = compile(gradient(BATAX, "X"))
    found = effects(kernel, {})
    names = [effect.name for effect in found]
    assert names == ["anf", "differentiation", "sparsity", "products", "fusion", "gathering", "fusion",
                     "sparsity", "saturation", "sharing"]  # fmt: skip
    assert all(effect.seconds >= 0 for effect in found)
    for first, second in itertools.pairwise(found):
        assert (first.operations[1], first.cost[1]) == (second.operations[0], second.cost[0])
    assert found[-1].cost[1] < found[0].cost[0] / 4
    table = kernel.explain("passes").splitlines()
    assert [line.split()[0] for line in table] == ["pass", *names, "#", "#"]
    assert table[-1] == "# switched off: presaturation"


def test_saturation_before_finds_what_saturation_after_does():
    for program, wrt in ((BATAX, "X"), (LOSS, "X")):
        late, early = (optimise(gradient(program, wrt, passes={"presaturation": on})) for on in (False, True))
        assert alpha_equal(late.node, early.node)


def test_what_happened_stays_with_a_program():
    found = pickle.loads(pickle.dumps(gradient(LOSS, "X")))
    assert found.explain("logical") == LOSS.explain("logical")
    assert found.steps
    assert optimised(found, None, None, switched(None)).program.origin == LOSS


def test_held_inputs_are_shown_as_they_are():
    found = compile(BATAX).explain("physical", A=hold(A, "csc", 2), X=np.ones(3), s=1.0)
    assert "A_n1" in found.splitlines()[0]
