"""The kinds of and-or graphs have one set of numbers, written down in one file."""

import ast
from pathlib import Path

import pytest

from derivable.core import and_or

PACKAGE = Path(and_or.__file__).parents[1]
NAMES = {"FALSE", "TRUE", "LITERAL", "AND", "OR", "NOT"}
FILES = sorted(path for path in PACKAGE.glob("**/*.py") if path != Path(and_or.__file__))


def numbers_for_kinds(text: str) -> list[int]:
    """Lines that give such a name a number, take it from elsewhere, or compare an entry of `kind` with a number."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            parts = [part for part in parts if isinstance(part.ctx, ast.Store)]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            is_number = any(isinstance(value, ast.Constant) and type(value.value) is int for value in values)
            if is_number and NAMES & {part.id.strip("_") for part in parts}:
                lines.append(node.lineno)
        elif isinstance(node, ast.ImportFrom):
            # Constants of formulas and of scalar expressions have two of these names.
            homes = ("derivable.circuit.graph.circuit", "derivable.datalog", "derivable.device")
            taken = (node.module or "").startswith(homes)
            if taken and NAMES & {alias.name for alias in node.names}:
                lines.append(node.lineno)
        elif isinstance(node, ast.Compare):
            array = node.left.value if isinstance(node.left, ast.Subscript) else None
            other = node.comparators[0]
            if isinstance(array, ast.Name) and array.id == "kind" and isinstance(other, ast.Constant):
                lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_kind_codes_are_written_down_once(path):
    assert numbers_for_kinds(path.read_text()) == []


def test_the_check_can_fail():
    text = "AND, OR = 3, 4\n_TRUE = 1\nNOT: int = 5\nTRUE = Constant(True)\n"
    text += "if kind[n] == 2 or kind[n] == OR:\n    pass\n"
    text += "from derivable.circuit.graph.circuit import OR, Circuit\nfrom derivable.core.and_or import OR\n"
    assert sorted(numbers_for_kinds(text)) == [1, 2, 3, 5, 7]
    assert numbers_for_kinds(Path(and_or.__file__).read_text()) != []


def test_numbers_follow_the_rules_that_kernels_use():
    kinds = [getattr(and_or, name) for name in ("FALSE", "TRUE", "LITERAL", "AND", "OR", "NOT")]
    assert kinds == sorted(set(kinds))
    assert and_or.FALSE + and_or.TRUE == 1
    assert [and_or.KIND_NAMES[kind] for kind in kinds] == ["false", "true", "literal", "and", "or", "not"]
