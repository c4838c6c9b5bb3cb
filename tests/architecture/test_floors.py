"""The house rules: a folder imports only from lower floors, and neighbours do not see each other; inside an engine, a
subfolder is a stage, and imports only from earlier stages.

Imports are those of import statements anywhere in a file, late ones and those for types alone among them, and modules
named in a string, which something imports late. (Types count because an annotation says who knows whom: where a stage
wants to name a type of a later one, the record belongs in the earlier one.)
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
# The stages of each engine, in the order of the data.
STAGES = {
    "circuit": ("kernels", "graph", "formulas", "files", "compilation", "fold", "show", "queries", "learn", "rtl"),
    "tensor": (
        "language",
        "analysis",
        "values",
        "formats",
        "optimisation",
        "derivative",
        "lower",
        "call",
        "write",
        "show",
    ),
    "datalog": (
        "policy",
        "kernels",
        "values",
        "tables",
        "tags",
        "foreign",
        "scalars",
        "aggregates",
        "syntax",
        "problog",
        "rules",
        "types",
        "desugar",
        "ram",
        "facts",
        "fused",
        "shortcuts",
        "machine",
        "run",
        "apm",
        "exact",
        "souffle",
        "reasons",
        "distribution",
        "api",
    ),
    "accelerator": ("operators", "trace", "numbers", "explore", "kernels", "machine", "lower", "hardware", "designs"),
}
# The class of an engine that users hold, where it is defined below what its methods do: it alone may name later stages,
# inside its methods and for types.
FACES = ("circuit/graph/circuit.py", "tensor/language/program.py")
# Generated kernels import the substrate by name; the text is the device's, whatever floor prints it.
SUBSTRATE = "derivable.device.cpu"
MODULE = re.compile(r"derivable(\.\w+)+")
FILES = sorted(PACKAGE.glob("*/**/*.py"))


def _names_a_module(value: object) -> bool:
    return isinstance(value, str) and value != SUBSTRATE and MODULE.fullmatch(value) is not None


def modules_of(path: Path) -> list[tuple[int, list[str], bool]]:
    """(line, parts of the name, whether the import runs with the file) of each import of the library's own modules."""
    tree = ast.parse(path.read_text())
    late = {node for inner in ast.walk(tree) if _runs_later(inner) for node in ast.walk(inner)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and _names_a_module(node.value):
            names = [node.value]
        else:
            continue
        found += [(node.lineno, name.split("."), node not in late) for name in names]
    return [(line, parts, is_early) for line, parts, is_early in found if parts[0] == "derivable" and len(parts) > 1]


def _runs_later(node: ast.AST) -> bool:
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return is_for_types or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def imports_of(path: Path) -> list[tuple[int, str]]:
    """(line, folder) of each import of the library's own folders."""
    return [(line, parts[1]) for line, parts, _ in modules_of(path)]


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


# Stages

STAGED = sorted(path for engine in STAGES for path in (PACKAGE / engine).glob("*/**/*.py"))


def stage_violations(path: Path, root: Path = PACKAGE) -> list[str]:
    """Imports of later stages, and those of its own engine that name no stage."""
    engine, stage, *_ = path.relative_to(root).parts
    order, is_face = STAGES[engine], path.relative_to(root).as_posix() in FACES
    found = []
    for line, parts, is_early in modules_of(path):
        if parts[1] != engine or (is_face and not is_early):
            continue
        target = parts[2] if len(parts) > 2 else "the engine itself"
        if target not in order or order.index(target) > order.index(stage):
            found.append(f"line {line}: {engine}/{stage} imports {target}")
    return found


@pytest.mark.parametrize("path", STAGED, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_stages_import_from_earlier_ones(path):
    assert stage_violations(path) == []


@pytest.mark.parametrize("engine", STAGES)
def test_every_subfolder_is_a_stage(engine):
    folders = {path.name for path in (PACKAGE / engine).iterdir() if path.is_dir() and path.name != "__pycache__"}
    modules = {path.name for path in (PACKAGE / engine).glob("*.py")}
    assert folders == set(STAGES[engine])
    assert modules == {"__init__.py"}


@pytest.mark.parametrize("engine", STAGES)
def test_the_page_has_the_stages_and_names_files_that_exist(engine):
    page = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text()
    table = page.split(f"### `{engine}/`")[1].split("\n#")[0]
    rows = re.findall(r"^\| `(\w+)/` \| (.*) \| .*\|$", table, re.MULTILINE)
    assert tuple(stage for stage, _ in rows) == STAGES[engine]
    named = [PACKAGE / engine / stage / name for stage, text in rows for name in re.findall(r"`(\w+\.py)`", text)]
    assert named
    assert [path for path in named if not path.exists()] == []


@pytest.mark.parametrize("face", FACES)
def test_faces_need_to_be_faces(face):
    """A file that names no later stage any more is no longer an exception."""
    engine, stage, *_ = Path(face).parts
    order = STAGES[engine]
    targets = [parts[2] for _, parts, is_early in modules_of(PACKAGE / face) if parts[1] == engine and not is_early]
    assert any(order.index(target) > order.index(stage) for target in targets)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from derivable.datalog.values.values import fits", []),
        ("from derivable.datalog.ram import nodes", []),
        ("from derivable.datalog.run.execute import Executor", ["line 1: datalog/ram imports run"]),
        ("from derivable.datalog import api", ["line 1: datalog/ram imports api"]),
        ("def f():\n    from derivable.datalog.run import execute", ["line 2: datalog/ram imports run"]),
        ("if TYPE_CHECKING:\n    import derivable.datalog.api.program", ["line 2: datalog/ram imports api"]),
        ('later("derivable.datalog.fused.emit")', ["line 1: datalog/ram imports fused"]),
        ("from derivable.datalog import Program", ["line 1: datalog/ram imports Program"]),
        ("import derivable.datalog", ["line 1: datalog/ram imports the engine itself"]),
        ("from derivable.circuit.queries import count", []),
    ],
)
def test_the_check_of_stages_can_fail(tmp_path, text, found):
    path = tmp_path / "datalog" / "ram" / "nodes.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert stage_violations(path, tmp_path) == found


def test_a_face_imports_late_only(tmp_path):
    path = tmp_path / "circuit" / "graph" / "circuit.py"
    path.parent.mkdir(parents=True)
    late = "from derivable.circuit.queries import count"
    path.write_text(f"def f():\n    {late}\n")
    assert stage_violations(path, tmp_path) == []
    path.write_text(late)
    assert stage_violations(path, tmp_path) == ["line 1: circuit/graph imports queries"]
