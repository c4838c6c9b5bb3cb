"""Every code block of every page runs and prints what the page says; every relative link leads somewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documentation import OutputDiffers, blocks_of, broken_links, commands_of, links_of, output_matches, run_page

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


EXECUTABLE = [
    page for page in PAGES if any(block.language in ("python", "console") for block in blocks_of(page.read_text()))
]


@pytest.mark.usefixtures("tier_of_users")
@pytest.mark.parametrize("page", EXECUTABLE, ids=name_of)
def test_page_runs_as_printed(page, tmp_path, forked):
    """In a process of its own: what a page registers, seeds or imports stays with it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    script = ROOT / "tests" / "documentation.py"
    if "sys.modules" in page.read_text():
        command = [sys.executable, script, page, tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    else:
        done = forked.run(script, page, tmp_path, cwd=ROOT, env=environment)
    assert done.returncode == 0, f"{name_of(page)}:\n{done.stderr[-6000:]}"
    assert int(done.stdout.split()[0]) > 0


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_are_marked_as_such(page):
    """A block in a disguised language would not be executed."""
    assert not {block.language for block in blocks_of(page.read_text())} & {"py", "python3", "pycon", "ipython"}


def test_navigation_is_complete():
    """Every page of docs/ is in the navigation of mkdocs.yml, and every entry exists."""
    text = (ROOT / "mkdocs.yml").read_text()
    listed = {
        line.split(":")[-1].strip().removeprefix("- ").strip()
        for line in text.split("\nnav:")[1].split("\n\n")[0].split("\n")
        if line.rstrip().endswith(".md")
    }
    present = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    assert listed == present


# The checks themselves


PAGE = """# A page

```scl title="facts.scl"
rel a = {1}
```

```python
x = 1
print(x, open("facts.scl").read().strip())
```

```text
1 rel a = {1}
```

- in a list:

    ```python
    print(x + 1)
    ```

    ```text
    2
    ```
"""


def test_a_true_page_passes(tmp_path):
    assert run_page(PAGE, "page.md", tmp_path) == 2


def test_a_false_output_is_found(tmp_path):
    with pytest.raises(OutputDiffers, match=r"page\.md:23"):
        run_page(PAGE.replace("    2\n", "    3\n"), "page.md", tmp_path)


def test_a_raising_block_is_found(tmp_path):
    with pytest.raises(NameError):
        run_page(PAGE.replace("x = 1", "y = 1"), "page.md", tmp_path)


def test_text_that_does_not_follow_directly_is_not_output(tmp_path):
    assert run_page("```python\nprint(1)\n```\n\nAnd a file:\n\n```text\n2\n```\n", "page.md", tmp_path) == 1


def test_output_matching():
    assert output_matches("a\nb\n", "a  \nb\n\n")
    assert output_matches("took ... seconds", "took 1.5 seconds")
    assert not output_matches("took ... seconds", "took 1.5 minutes")
    assert not output_matches("a.c", "abc")
    assert not output_matches("a", "a b")


def test_commands_of():
    assert commands_of("$ derivable count a.cnf\n3\n$ derivable x\n") == [
        ("derivable count a.cnf", "3\n"),
        ("derivable x", "\n"),
    ]


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "[a](page.md) [b](missing.md#part) [c](https://example.org) [d](#here)\n```\n[e](nowhere.md)\n```\n"
    )
    assert links_of(page.read_text()) == ["page.md", "missing.md#part", "https://example.org", "#here"]
    assert broken_links(page) == ["missing.md#part"]


def test_docstrings_become_markdown():
    pytest.importorskip("griffe")
    import importlib.util

    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs" / "extensions" / "docstrings.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = "Fold.\n\nvalues   [edge, *batch] in `a*b`\nreturns  zero\n         or one\n\n>>> 1 + 1\n2\n\nA law."
    assert module.to_markdown(text) == (
        "Fold.\n\n- `values`: \\[edge, \\*batch\\] in `a*b`\n- `returns`: zero or one\n\n"
        "```pycon\n>>> 1 + 1\n2\n```\n\nA law."
    )
