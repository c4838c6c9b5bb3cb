"""Engines compute columns by the column program; their own gathers and sums by index stand in a list, with reasons."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "derivable"
ENGINES = ("circuit", "datalog", "nn", "tensor")
# The engines that lower to the column program; a further one is added with its first use.
CUSTOMERS = ("circuit", "datalog", "tensor")
# Methods of tensors that gather rows, or add to them.
METHODS = ("index_add", "index_select", "scatter_add", "scatter_reduce")
OWN = {
    "circuit/learn/probabilistic_module.py": "a softmax by node in a torch module, which owns its parameters",
    "datalog/aggregates/totals.py": "sums of Python integers, which no column holds",
    "datalog/aggregates/selection.py": "the least waiting time of each group, a draw on the host",
    "datalog/kernels/device_bits.py": "matrices of bits, whose rows are no scalars",
    "datalog/kernels/device_proofs.py": "sets of proofs, whose sums and products are no scalar expressions",
    "datalog/tags/proof_lanes.py": "words of proofs, on the host, that bits are put into",
    "nn/automaton.py": "a step for each argument, thousands in a fold: a program of columns would have as many",
    "nn/batch.py": "choices of one batch: a program of columns would be used once",
    "nn/derived.py": "gathers along the last axis; columns have rows on the first",
    "nn/inference.py": "gathers along the last axis; columns have rows on the first",
    "nn/proof_polynomial.py": "polynomials of one batch: a program of columns would be used once",
    "tensor/call/tracked.py": "a sparse result of JAX as a dense one, with its own axes",
}


def own_operations(source: str) -> list[str]:
    """Gathers by methods of torch, `np.add.at(...)` and the like, and `x.at[...]` of JAX."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.rstrip("_") in METHODS:
            found.append(node.attr)
        match node:
            case ast.Call(func=ast.Attribute(attr="at", value=ast.Attribute(value=ast.Name(id="np")))):
                found.append("at")
            case ast.Subscript(value=ast.Attribute(attr="at")):
                found.append("at")
    return found


def test_only_listed_files_have_gathers_and_sums_of_their_own():
    files = {path.relative_to(PACKAGE).as_posix(): path for e in ENGINES for path in (PACKAGE / e).rglob("*.py")}
    assert {name for name, path in files.items() if own_operations(path.read_text())} == set(OWN)


@pytest.mark.parametrize("engine", CUSTOMERS)
def test_engines_lower_to_the_column_program(engine):
    assert any("from derivable.parallel.program" in path.read_text() for path in (PACKAGE / engine).rglob("*.py"))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("y = x.index_select(0, rows)", ["index_select"]),
        ("x.index_add_(0, rows, y)", ["index_add_"]),
        ("torch.scatter_reduce(x, 0, rows, y, 'amax')", ["scatter_reduce"]),
        ("np.add.at(x, rows, y)", ["at"]),
        ("x = x.at[rows].add(y)", ["at"]),
        ("x = self.at(rows)[0]", []),
    ],
)
def test_the_check_finds(source, found):
    assert own_operations(source) == found
