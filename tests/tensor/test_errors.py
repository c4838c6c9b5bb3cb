"""Every user error of tensors: its report, byte for byte, in tests/golden/tensor/."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sparse
import torch

import golden_files
from derivable.core.diagnostics import DerivableError
from derivable.tensor import Coordinates, Format, Function, compile, einsum, gradient, index, parse, variable
from derivable.tensor.formats.held import hold
from derivable.tensor.language.types import array
from derivable.tensor.values.matrix_market import parse_matrix_market
from derivable.tensor.values.values import coordinates

# What small programs say is the same in Python, which need not be compiled for it.
TYPES = {
    "A": 2,
    "B": 2,
    "X": 1,
    "Y": 1,
    "s": 0,
    "c": "bool",
    "n": "int",
    "pos": array("int"),
    "idx": array("int"),
    "val": "{ dense_int -> real }",
}
TEXTS = {
    "bracket_not_closed": "sum(<i, r> in A",
    "brace_not_closed": "{ 1 ->\n  s",
    "sum_over_one_name": "sum(<i> in A) 1",
    "sum_without_brackets": "sum(i, r in A) r",
    "sum_without_parenthesis": "sum <i, a> in X a",
    "sum_misspelt": "smu(<i, r> in A) 2",
    "let_misspelt": "lte x = 2 in x",
    "let_without_in": "let x = A\nsum(<i, r> in x) r",
    "let_with_colon": "let x := 2 in x",
    "let_of_too_many": "let <a, b> = <1, 2, 3> in a",
    "then_misspelt": "if s < 1 thn 2",
    "arrow_missing": "{ n > 2 }",
    "expression_missing": "s + ",
    "operator_missing": "A B",
    "comparison_chained": "s < 1 < 2",
    "bracket_too_many": "A)",
    "square_brackets": "X[1]",
    "at_sign": "A @ B",
    "comment_open": "s /* and so on",
    "empty": "  # nothing",
    "keyword_as_name": "sum(<in, a> in X) a",
    "function_as_name": "sum(<exp, a> in X) a",
    "function_as_value": "exp + 1",
    "function_unknown_of_others": "sum(<i, x> in X) frobnicate(x)",
    "not_a_character": "s\nX.c",
    "name_bound_twice": "sum(<i, i> in X) 1",
    "name_unknown": "sum(<i, row> in A) ro(i)",
    "name_unknown_several": "Z(1) + sum(<i, a> in X) q * a",
    "function_unknown": "tanhh(s)",
    "underscore": "_ + 1",
    "integer_too_large": "99999999999999999999",
    "order_of_lookup": "A(1)(2)(3)",
    "order_of_sum": "A + X",
    "order_of_range": "sum(<i, a> in s) a",
    "key_is_real": "X(1.5)",
    "key_is_tensor": "X(A)",
    "integer_times_real": "sum(<i, a> in X) i * a",
    "let_integer": "let m = 2 in m * A",
    "condition_is_real": "if s then A",
    "condition_as_value": "{ 1 -> s < 2 }",
    "function_of_tensor": "exp(A)",
    "operands": "exp(s, s)",
    "xor_is_no_power": "s ^ 2",
    "part_of_tensor": "sum(<i, a> in X(0:n)) a",
    "conditions_doubled": "if s < 1 && s < 2 then A",
    "dictionary_of_two": "{ 1 -> s, 2 -> s }",
    "truth_in_capitals": "if True then A",
    "power_of_tensor": "X ** 2",
    "far_into_a_line": "s + " * 60 + "q + s",
}

A, x, k = variable("A", order=2), variable("x", order=1), variable("k", type=index)
M, V = np.eye(3), np.ones(3)
HEAD = "%%MatrixMarket matrix coordinate real general\n"
CALLS = {
    "einsum_sizes": lambda: einsum("ij,jk->ik", M, np.ones((2, 3))),
    "einsum_axes": lambda: einsum("ij,j->i", M, M),
    "einsum_count": lambda: einsum("ij,j->i", M),
    "einsum_result_unknown": lambda: einsum("ij->k", M),
    "einsum_result_twice": lambda: einsum("ij->ii", M),
    "einsum_letter": lambda: einsum("i1->i", M),
    "einsum_ellipses": lambda: einsum("i......->i", M),
    "einsum_ellipsis_in_result": lambda: einsum("i...->i", M),
    "einsum_output": lambda: einsum("ij->ji", M, output="scipy_cst"),
    "einsum_semiring": lambda: einsum("ij->ji", M, semiring="min_pluss"),
    "value_index_outside": lambda: Coordinates.of((3, 3), [[0, 1], [0, 7]], [1.0, 2.0], name="A"),
    "value_index_nan": lambda: Coordinates.of((3,), [[0.0, np.nan]], [1.0, 2.0], name="A"),
    "value_lengths": lambda: Coordinates.of((3,), [[0, 1]], [1.0], name="A"),
    "value_ragged_dictionary": lambda: coordinates({0: {1: 2.0}, 3: 4.0}, name="A"),
    "value_key": lambda: coordinates({0: {"one": 2.0}}, name="A"),
    "value_without_shape": lambda: coordinates({}, name="A"),
    "value_order": lambda: coordinates(V, order=2, name="A"),
    "value_shape": lambda: coordinates(V, shape=(4,), name="A"),
    "value_no_tensor": lambda: coordinates(object(), name="A"),
    "value_complex": lambda: coordinates(V * 1j, name="A"),
    "value_ragged_list": lambda: coordinates([[1.0], [1.0, 2.0]], name="A"),
    "value_gradient": lambda: coordinates(torch.ones(3, requires_grad=True), name="A"),
    "value_fill": lambda: coordinates(sparse.COO.from_numpy(M, fill_value=1.0), name="A"),
    "value_outside_semiring": lambda: coordinates([0.5, 1.5], semiring="godel", name="A"),
    "value_form_of_order": lambda: coordinates(V).to("csr"),
    "value_form_unknown": lambda: coordinates(V).to("torch_cso"),
    "file_banner": lambda: parse_matrix_market("3 3 0\n", "a.mtx"),
    "file_field": lambda: parse_matrix_market(HEAD.replace("real", "reel") + "1 1 0\n", "a.mtx"),
    "file_sizes": lambda: parse_matrix_market(HEAD + "% a comment\n3 3\n", "a.mtx"),
    "file_entry": lambda: parse_matrix_market(HEAD + "3 3 2\n1 1 1.0\n2 two 1.0\n", "a.mtx"),
    "file_cut_off": lambda: parse_matrix_market(HEAD + "3 3 2\n1 1 1.0\n", "a.mtx"),
    "file_index_outside": lambda: parse_matrix_market(HEAD + "3 3 2\n1 1 1.0\n4 1 1.0\n", "a.mtx"),
    "file_missing": lambda: coordinates("no/such/file.mtx"),
    "program_input_missing": lambda: (A @ x)(A=M),
    "program_input_unknown": lambda: (A @ x)(A=M, x=V, xx=V),
    "program_input_order": lambda: (A @ x)(A=V, x=V),
    "program_input_integer": lambda: A[k](A=M, k=1.5),
    "program_stage": lambda: A.explain("logicl"),
    "program_input_name": lambda: variable("sum", order=1),
    "program_place_outside": lambda: parse("real(idx(n)) * s", {name: TYPES[name] for name in ("idx", "n", "s")})(
        idx=[1, 2], n=7, s=1.0
    ),
    "program_array": lambda: parse("real(idx(0))", {"idx": array("int")})(idx=V),
    "expression_orders": lambda: A + x,
    "expression_quotient": lambda: x / A,
    "expression_number": lambda: A + 1,
    "expression_array": lambda: A @ V,
    "expression_axis": lambda: A.sum(axis=2),
    "expression_slice": lambda: A[1:],
    "expression_types": lambda: A.sum() + variable("A", order=1) @ x,
    "expression_function": lambda: A.map(lambda i, a: a),
    "expression_trace": lambda: x.trace(),
}

X1, FAR = parse("X", {"X": 1}), Coordinates.of((10**17,), [[1]], [1.0])
PLACES = np.arange(3)
OWN = "sum(<_, i> in (0:n0)) { i -> val(i) }"
PLAIN = "sum(<p, i> in idx(0:n0)) { i -> val(p) }"


def mine(definition, pack=None, kind="int"):
    """The result of a program with a vector in a format of one's own."""
    made = Format("mine", 1, definition, {"val": "real", "idx": kind}, lambda entries, zero: pack)
    return compile(X1, {"X": made})(X=V)


def damaged(**arrays):
    matrix = scipy.sparse.csr_array(M)
    for name, values in arrays.items():
        setattr(matrix, name, np.array(values, np.int32))
    return compile(parse("A", {"A": 2}), {"A": "csr"})(A=matrix)


CALLS |= {
    "format_unknown": lambda: compile(X1, {"X": "cou"}),
    "format_of_no_input": lambda: compile(X1, {"Y": "coo"}),
    "format_order": lambda: compile(X1, {"X": "csr"}),
    "format_held": lambda: compile(X1, {"X": "coo"})(X=hold(V, "csf", 1)),
    "format_memory": lambda: compile(X1, {"X": "dense"})(X=FAR),
    "format_places": lambda: compile(parse("A", {"A": 2}), {"A": "hashed"})(
        A=Coordinates.of((10**10, 10**10), [[1], [1]], [1.0])
    ),
    "format_definition_text": lambda: mine("sum(<p, i> in idx(0:n0) { i -> val(p) }"),
    "format_definition_name": lambda: mine("sum(<p, i> in idx(0:n0)) { i -> vla(p) }"),
    "format_definition_order": lambda: mine("sum(<p, i> in idx(0:n0)) val(p)"),
    "format_pack_missing": lambda: mine(PLAIN, {"val": V}),
    "format_pack_list": lambda: mine(PLAIN, {"val": V, "idx": [0, 1, 2]}),
    "format_pack_dtype": lambda: mine(PLAIN, {"val": V, "idx": V}),
    "format_pack_length": lambda: mine(PLAIN, {"val": V[:2], "idx": PLACES}),
    "format_pack_offsets": lambda: mine("sum(<p, i> in idx(0:n0 + 1)) { i -> val(p) }", {"val": V, "idx": PLACES}),
    "format_pack_negative": lambda: mine("sum(<_, i> in (0:n0)) { i -> val(idx(i)) }", {"val": V, "idx": PLACES - 1}),
    "format_pack_loses": lambda: mine(PLAIN.replace("n0", "2"), {"val": V, "idx": PLACES}),
    "format_pack_moves": lambda: mine(PLAIN, {"val": np.array([1.0, 2.0, 3.0]), "idx": np.array([0, 2, 2])}),
    "format_pack_index": lambda: mine(PLAIN, {"val": V, "idx": np.array([0, 1, 7])}),
    "rows_index_outside": lambda: damaged(indices=[0, 9, 2]),
    "rows_offsets": lambda: damaged(indptr=[0, 2, 1, 3]),
    "result_memory": lambda: compile(X1, {"X": "coo"}, output="dense")(X=FAR),
    "result_scipy_memory": lambda: Coordinates.of((10**17, 3), [[1], [1]], [1.0]).to("csr"),
    "result_places": lambda: compile(parse("A", {"A": 2}), {"A": "coo"})(
        A=Coordinates.of((10**10, 10**10), [[1], [1]], [1.0])
    ),
    "result_outside": lambda: compile(parse("sum(<i, a> in X) { i + 1 -> a }", {"X": 1}), shape=(3,))(X=V),
    "result_unknown_size": lambda: compile(parse("sum(<i, a> in X) { i + 1 -> a }", {"X": 1}))(X=V),
    "result_shape": lambda: compile(X1, shape=(4,))(X=V),
    "result_shape_order": lambda: compile(X1, shape=(3, 3))(X=V),
    "result_shape_size": lambda: compile(X1, shape=(-1,))(X=V),
    "result_format_order": lambda: compile(X1, output="dcsr"),
    "result_form_unknown": lambda: compile(X1, output="csrr"),
    "compile_text": lambda: compile("X"),
    "sizes_differ": lambda: (A @ x)(A=M, x=np.ones(4)),
    "value_text": lambda: compile(X1)(X=np.array(["a", "b"])),
    "value_no_axes": lambda: (A @ x)(A=np.float64(3.0), x=V),
    "program_integer_too_large": lambda: A[k](A=M, k=10**20),
    "file_sizes_negative": lambda: parse_matrix_market(HEAD + "3 -3 1\n1 1 1.0\n", "a.mtx"),
    "file_index_nan": lambda: parse_matrix_market(HEAD + "3 3 1\n1 nan 1.0\n", "a.mtx"),
    "value_masked": lambda: coordinates(np.ma.array(V, mask=[0, 1, 0]), name="A"),
    "value_object": lambda: coordinates(np.array([1.0, None]), name="A"),
    "value_key_too_large": lambda: coordinates({10**30: 1.0}, name="A"),
    "value_not_in_order": lambda: einsum("ij->", Coordinates((3, 3), np.array([[2, 0], [0, 1]]), V[:2])),
    "value_outside_of_coordinates": lambda: (A @ x)(A=Coordinates((3, 3), np.array([[0, 7], [0, 1]]), V[:2]), x=V),
    "value_shape_none": lambda: Coordinates.of(None, [[0]], [1.0]),
    "value_transposed": lambda: coordinates(M).transposed((0, 0)),
    "rows_offsets_few": lambda: damaged(indptr=[0, 3]),
    "rows_values": lambda: damaged(indptr=[0, 1, 2, 9]),
    "rows_of_torch": lambda: (A @ x)(
        A=torch.sparse_csr_tensor([0, 3, 1, 3], [0, 1, 2], V, (3, 3), check_invariants=False), x=torch.ones(3)
    ),
    "held_order": lambda: (A @ x)(A=M, x=hold(M, "csr", 2)),
    "held_semiring": lambda: compile(X1, semiring="min_plus")(X=hold(coordinates(V), "dense", 1)),
    "format_kind": lambda: mine(PLAIN, kind="sort"),
    "format_pack_fails": lambda: compile(X1, {"X": Format("mine", 1, OWN, {"val": "real"}, lambda entries: {})})(X=V),
    "format_pack_not_sorted": lambda: mine(PLAIN, {"val": V, "idx": PLACES[::-1]}, "sorted"),
    "format_pack_twice": lambda: mine(PLAIN.replace("i ->", "unique(i) ->"), {"val": V, "idx": PLACES * 0}),
    "format_pack_offsets_fall": lambda: mine(PLAIN, {"val": V, "idx": PLACES[::-1]}, "offsets"),
    "format_pack_table": lambda: mine(PLAIN, {"val": V, "idx": PLACES}, "hashed"),
    "format_pack_table_wrong": lambda: mine(
        "sum(<p, i> in idx(0:16)) if 0 <= i then { i -> val(p) }",
        {"val": np.ones(16), "idx": np.append(2, np.full(15, -1))},
        "hashed",
    ),
    "file_both_triangles": lambda: parse_matrix_market(
        HEAD.replace("general", "symmetric") + "2 2 2\n1 2 1.0\n2 1 1.0\n", "a.mtx"
    ),
    "file_too_many": lambda: parse_matrix_market(HEAD + "3 3 1\n1 1 1.0\n2 1 1.0\n", "a.mtx"),
    "compile_formats": lambda: compile(X1, "coo"),
    "compile_passes": lambda: compile(X1, passes=["fusion"]),
    "literal_outside_semiring": lambda: parse("sum(<i, a> in X) a * 1.5", {"X": 1})(X=V, semiring="godel"),
    "literal_outside_integers": lambda: parse("sum(<i, a> in X) a * 1.5", {"X": 1})(X=V, semiring="counting"),
    "result_of_two_ranges": lambda: parse(
        "(sum(<_, i> in (0:n)) { i -> 1 }) + (sum(<_, i> in (0:m)) { i -> 2 })", {"n": "int", "m": "int"}
    )(n=5, m=3),
    "result_of_a_range_and_a_vector": lambda: parse("X + sum(<_, i> in (0:n)) { i -> 1 }", {"X": 1, "n": "int"})(
        X=V, n=2
    ),
    "gradient_text": lambda: gradient("X", "X"),
    "gradient_inputs": lambda: gradient(X1, ["X"]),
    "gradient_size_missing": lambda: gradient(parse("sum(<i, r> in A) sum(<j, a> in r) a", {"A": 2}), "A")(),
    "expression_iterated": lambda: list(x),
    "expression_compared": lambda: A.where(A < 1),
    "expression_index": lambda: A.map(lambda i, j, a: i),
    "function_sparse": lambda: Function(X1)(X=torch.ones(3).to_sparse()),
    "function_index": lambda: Function(parse("X(n)", {"X": 1, "n": "int"}))(X=torch.ones(3), n=torch.tensor(1)),
    "function_libraries": lambda: Function(A @ x)(A=torch.eye(3), x=jnp.ones(3)),
    "gradient_input": lambda: gradient(X1, "Y"),
    "gradient_in_a_semiring": lambda: gradient(
        parse("sum(<i, a> in X) exp(a)", {"X": 1}), "X", semiring="min_plus", formal=True
    ),
    "gradient_of_truth": lambda: gradient(X1, "X", semiring="boolean"),
    "gradient_run_elsewhere": lambda: gradient(X1, "X", semiring="min_plus")(X=V, semiring="min_plus"),
}


def check_report(name, call):
    with pytest.raises(DerivableError) as caught:
        call()
    golden_files.compare(f"tensor/{name}", str(caught.value))


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    check_report(name, lambda: parse(TEXTS[name], TYPES))


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    check_report(name, CALLS[name])


def test_no_file_is_left_over():
    assert golden_files.names("tensor") >= {*TEXTS, *CALLS}
