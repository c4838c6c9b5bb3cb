"""The house rule: a folder imports only from lower floors, and neighbours do not see each other.

Imports are those of import statements anywhere in a file, and modules named in a string, which something imports late.
"""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "derivable"
FLOOR = {
    "core": 0,
    "algebra": 1,
    "kernel": 2,
    "device": 3,
    "parallel": 4,
    "bridge": 5,
    "circuit": 6,
    "tensor": 6,
    "vsa": 6,
    "datalog": 7,
    "nn": 8,
    "accelerator": 8,
    "cli": 9,
    "compat": 9,
}
# Generated kernels import the substrate by name; the text is the device's, whatever floor prints it.
SUBSTRATE = "derivable.device.cpu"
MODULE = re.compile(r"derivable(\.\w+)+")
FILES = sorted(PACKAGE.glob("*/**/*.py"))


def _names_a_module(value: object) -> bool:
    return isinstance(value, str) and value != SUBSTRATE and MODULE.fullmatch(value) is not None


def imports_of(path: Path) -> list[tuple[int, str]]:
    """(line, folder) of each import of the library's own folders, nested and late imports included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "derivable" else [module]
            found += [(node.lineno, name) for name in names]
        elif isinstance(node, ast.Constant) and _names_a_module(node.value):
            found.append((node.lineno, node.value))
    own = [(line, name.split(".")) for line, name in found if name.split(".")[0] == "derivable"]
    return [(line, parts[1]) for line, parts in own if len(parts) > 1]


def violations(folder: str, imports: list[tuple[int, str]]) -> list[str]:
    return [
        f"line {line}: {folder} (floor {FLOOR[folder]}) imports {target}"
        for line, target in imports
        if target in FLOOR and target != folder and FLOOR[target] >= FLOOR[folder]
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path):
    assert violations(path.relative_to(PACKAGE).parts[0], imports_of(path)) == []


def test_every_folder_has_a_floor():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= set(FLOOR)


def test_names_of_modules_count_as_imports(tmp_path):
    path = tmp_path / "late.py"
    path.write_text('"""About derivable.nn."""\nimport importlib\nimportlib.import_module("derivable.nn.logic")\n')
    assert violations("circuit", imports_of(path)) == ["line 3: circuit (floor 6) imports nn"]


def test_the_device_names_no_engine():
    engines = {folder for folder, floor in FLOOR.items() if floor > FLOOR["device"]}
    for path in (PACKAGE / "device").rglob("*.py"):
        assert not {name for _, name in imports_of(path)} & engines


def test_the_check_can_fail():
    assert violations("circuit", [(3, "datalog")]) == ["line 3: circuit (floor 6) imports datalog"]
    assert violations("circuit", [(3, "tensor")])
    assert not violations("circuit", [(3, "parallel"), (4, "circuit")])
