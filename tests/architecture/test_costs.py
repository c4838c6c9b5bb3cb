"""The numbers that decide which way a run takes stand in one file, `datalog/policy/costs.py`."""

import ast
from pathlib import Path

import pytest

DATALOG = Path(__file__).parents[2] / "src" / "derivable" / "datalog"
STAGES = "run", "fused", "tables", "machine", "shortcuts"
# Layouts of words, bits and kernels, codes, bounds of types, and texts for people.
LAYOUT = {
    "fused/emit.py": {"ONE"},
    "fused/emit_distinct.py": {"REMEMBERED", "MOST_KEYS"},
    "fused/emit_insert.py": {"PAUSED"},
    "fused/emit_intersection.py": {"VALUES_A_WORD"},
    "machine/merges.py": {"ENDLESS", "ONE"},
    "run/demand_facts.py": {"POSSIBLE"},
    "run/foreign_join.py": {"MOST"},
    "run/orders.py": {"LEAST_WORD"},
    "run/profile.py": {"SHOWN", "_LAST"},
    "shortcuts/bit_kernels.py": {"WORD"},
    "shortcuts/bit_rows.py": {"MOST_ROWS"},
    "shortcuts/condensed.py": {"_UNIT_BITS"},
    "shortcuts/emit_best.py": {"EXACT"},
    "tables/index.py": {"MOST_CHAINED"},
    "tables/packing.py": {"WORD_BITS"},
    "tables/scan.py": {"LEAST_BITS", "MORE_BITS", "MOST_BITS"},
    "tables/sets.py": {"MAX_FIRST"},
    "tables/trie.py": {"WORDS", "MORE_WORDS", "FEW_WORDS"},
}


def numbers_of(text: str) -> set[str]:
    """The names of a module that are bound to numbers, or to tuples of them."""
    found = set()
    for node in ast.parse(text).body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets if value is not None else ():
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(value, ast.Tuple) else [value] * len(names)
            found |= {name.id for name, one in zip(names, values) if isinstance(name, ast.Name) and _is_number(one)}
    return found


def _is_number(node: ast.expr) -> bool:
    parts = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
    return all(isinstance(part, (ast.Constant, ast.BinOp, ast.UnaryOp)) for part in parts) and all(
        type(part.value) in (int, float) for part in parts if isinstance(part, ast.Constant)
    )


FILES = [path for stage in STAGES for path in sorted((DATALOG / stage).glob("*.py")) if path.name != "words.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(DATALOG).as_posix())
def test_thresholds_stand_in_one_file(path):
    assert numbers_of(path.read_text()) == LAYOUT.get(path.relative_to(DATALOG).as_posix(), set())


def test_the_check_can_fail():
    assert numbers_of("A = 1 << 12\nB, C = 3, -0.5\nD = range(3)\nE = 'x'\nF = f(1)\nG: int = 7") == {
        "A",
        "B",
        "C",
        "G",
    }
