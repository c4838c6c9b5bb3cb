"""Reference pages: lists of docstrings stay lists, and names are those that users type."""

import ast
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True, scope="module")
def extensions():
    """The folder of the extensions of MkDocs, to be imported from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs" / "extensions")
        yield
    for name in ("docstrings", "public_names", "search_order"):
        sys.modules.pop(name, None)


# Docstrings


@pytest.fixture(scope="module")
def docstrings():
    """The extension of mkdocstrings that makes our docstrings into Markdown."""
    pytest.importorskip("griffe")
    return importlib.import_module("docstrings")


def test_docstrings_become_markdown(docstrings):
    text = "Fold.\n\nvalues   [edge, *batch] in `a*b`\nreturns  zero\n         or one\n\n>>> 1 + 1\n2\n\nA law."
    assert docstrings.to_markdown(text) == (
        "Fold.\n\n- `values`: \\[edge, \\*batch\\] in `a*b`\n- `returns`: zero or one\n\n"
        "```pycon\n>>> 1 + 1\n2\n```\n\nA law."
    )


def test_lists_of_docstrings_with_long_names_and_text_around(docstrings):
    """One space behind the longest name, a name longer than its column, no blank line before or after."""
    text = (
        "Draw.\n\na        [row]\nexponent a number\ntuple_limit, round_limit\n         as for `run`\n"
        'stage    "raw"  as it\n                is\n         "low"  lowered\nRaises DomainError.'
    )
    assert docstrings.to_markdown(text) == (
        "Draw.\n\n- `a`: \\[row\\]\n- `exponent`: a number\n- `tuple_limit, round_limit`: as for `run`\n"
        '- `stage`:\n\n    - `"raw"`: as it is\n    - `"low"`: lowered\n\nRaises DomainError.'
    )


def test_nothing_in_docstrings_is_a_link_or_emphasis_by_chance(docstrings):
    assert docstrings.to_markdown("[axis][row] of [*a] and [*b], size**3, `x[i][j]`") == (
        "\\[axis\\]\\[row\\] of \\[\\*a\\] and \\[\\*b\\], size\\*\\*3, `x[i][j]`"
    )
    assert docstrings.to_markdown("For a loss:\n\n    x[i][j]\n    y") == "For a loss:\n\n```python\nx[i][j]\ny\n```"


def parameters(node: ast.AST) -> set[str]:
    """What a list in the docstring of a function or a class can be of."""
    if isinstance(node, ast.ClassDef):
        fields = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        makers = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        return fields.union(*map(parameters, makers))
    if isinstance(node, ast.FunctionDef):
        return {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)} | {"returns"}
    return set()


def test_no_list_of_parameters_runs_together(docstrings):
    """In HTML, no two lines of one paragraph begin with parameters, and no paragraph has aligned columns."""
    markdown = pytest.importorskip("markdown").Markdown(extensions=["fenced_code"])
    wrong = []
    for path in sorted(ROOT.glob("src/derivable/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            text = ast.get_docstring(node)
            if text is None or "\n" not in text:
                continue
            names = parameters(node)
            html = markdown.reset().convert(docstrings.to_markdown(text))
            for paragraph in re.findall(r"<p>(.*?)</p>", html, flags=re.DOTALL):
                lines = paragraph.split("\n")
                begun = [
                    line for line in lines if re.match(r"(\w*),? +\S", line) and line.split(" ")[0].strip(",") in names
                ]
                if len(begun) > 1 or any(re.match(r"\S.*?\S {2,}\S", line) for line in lines):
                    wrong.append(f"{path.relative_to(ROOT)}: {node.name}: {begun}")
    assert wrong == []


# Names


@pytest.fixture(scope="module")
def public_names():
    pytest.importorskip("griffe")
    return importlib.import_module("public_names")


def test_headings_are_names_as_users_type_them(public_names):
    page = (
        "# `dv.nn`\n\n::: dv.nn.Logic\n\n## Queries\n\n::: derivable.circuit.queries.sample.sample as circuit.sample\n"
    )
    assert re.findall(r"^::: .*|    options.*", public_names.with_headings(page), re.MULTILINE) == [
        "::: derivable.nn.logic.Logic",
        '    options: {heading: "dv.nn.Logic", toc_label: "Logic", heading_level: 2}',
        "::: derivable.circuit.queries.sample.sample",
        '    options: {heading: "circuit.sample", toc_label: "sample", heading_level: 3}',
    ]
    kept = "::: derivable.parallel.reference\n    options: {heading_level: 3}\n"
    assert public_names.with_headings(kept) == kept


def test_names_are_found_where_they_are_defined(public_names):
    assert public_names.defined_at("dv.parallel.scan") == "derivable.bridge.folds.scan"
    assert public_names.defined_at("dv.Program") == public_names.defined_at("dv.datalog.Program")
    assert public_names.defined_at("dv.vsa.models.get") == "derivable.vsa.models.get"


def test_every_public_function_and_class_has_its_description(public_names):
    """On a reference page, under a heading of its own. Functions of scalars are rows of the index, as constants are."""
    documented = public_names.documented_paths(ROOT / "docs" / "reference")
    missing = []
    for package, names in public_names.public_names().items():
        for name in names:
            value = getattr(importlib.import_module(package), name)
            path = public_names.defined_at(public_names.typed(package, name))
            is_constant = isinstance(value, ModuleType) or not callable(value) or package == "derivable"
            if not is_constant and path not in documented:
                missing.append(public_names.typed(package, name))
    assert missing == []
    for path in documented:
        module, _, name = path.rpartition(".")
        if module != "derivable" and not (ROOT / "src" / path.replace(".", "/")).with_suffix(".py").exists():
            assert hasattr(importlib.import_module(module), name), path


def test_the_index_has_every_public_name(public_names):
    table = public_names.tables(public_names.documented_paths(ROOT / "docs" / "reference"))
    rows = dict(re.findall(r"^\| (?:\[`|`)([\w.]+)`.* \| (.*) \|$", table, re.MULTILINE))
    expected = {
        public_names.typed(package, name) for package, names in public_names.public_names().items() for name in names
    }
    assert set(rows) == expected
    assert all(re.fullmatch(r"\S.+\.", text) for text in rows.values())
    assert rows["dv.less"] == "a &lt; b."
    assert rows["dv.tensor.matrix"] == "The type `tensor 2`."


def test_a_class_shows_the_signature_that_makes_it():
    """`dv.nn.Logic` has no docstring at `__init__`: its parameters' defaults stand at the class."""
    assert re.search(r"^ +merge_init_into_class: true$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)


# Search


def test_the_search_shows_pages_for_users_first():
    """The index has one entry for a section. A word of a title weighs a thousand times as much as one of a text."""
    order = importlib.import_module("search_order")
    for path in (ROOT / "docs").rglob("*.md"):
        name = str(path.relative_to(ROOT / "docs"))
        page = SimpleNamespace(meta={}, file=SimpleNamespace(src_uri=name))
        assert order.on_page_markdown("# A page", page, None, None) == "# A page"
        boost = page.meta["search"]["boost"]
        if name.startswith(("decisions/", "benchmarks/", "changelog")):
            assert 1000 * boost < 1, name
        else:
            assert boost >= 0.5 or name == "dependencies.md", name
