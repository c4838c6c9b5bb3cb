"""Every code block of every page runs and prints what the page says; every relative link leads somewhere."""

import code
import os
import re
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


# Packages of an extra that not all who develop have.
NEEDED = {"cluster.md": ("pysail", "pyspark")}


@pytest.mark.parametrize("page", EXECUTABLE, ids=name_of)
def test_page_runs_as_printed(page, tmp_path, forked):
    """In a process of its own: what a page registers, seeds or imports stays with it."""
    for module in NEEDED.get(page.name, ()):
        pytest.importorskip(module)
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_fits_the_page(page):
    """A window of 1366 pixels shows 115 columns. What a program prints is longer at times, and is wrapped."""
    assert [
        f"line {block.line + number}: {len(line)} columns"
        for block in blocks_of(page.read_text())
        for number, line in enumerate(block.code.split("\n"))
        if len(line) > 115 and (block.language != "text" or block.title)
    ] == []


def test_pages_use_the_words_of_the_field():
    """Rules demand rows, runs are compared, databases are queried: the house avoids these words for all of that."""
    words = re.compile(r"\b(told|tells?|asked|asks?|anew|beside|so many|entered)\b", re.IGNORECASE)
    pages = [page for page in PAGES if page.parent == ROOT / "docs"]
    pages.append(ROOT / "README.md")
    found = [
        f"{name_of(page)}:{number}: {line.strip()}"
        for page in pages
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert found == []


def console_errors(text: str) -> list[str]:
    """What Python's console says while the lines are typed, apart from blank lines within definitions."""
    found: list[str] = []

    class Console(code.InteractiveConsole):
        def runcode(self, code):
            pass

        def showsyntaxerror(self, *_, **__):
            found.append(str(sys.exc_info()[1]))

    console = Console()
    for line in [*re.sub(r"\n+(?=\n[ \t]+\S)", "", text).split("\n"), ""]:
        console.push(line)
    return found


@pytest.mark.parametrize("page", EXECUTABLE, ids=name_of)
def test_code_can_be_typed_into_the_console(page):
    """A blank line ends a loop or a definition there; without it the next statement is a SyntaxError."""
    blocks = [block for block in blocks_of(page.read_text()) if block.language == "python" and block.title is None]
    assert [(block.line, *found) for block in blocks if (found := console_errors(block.code))] == []


def test_nothing_on_a_page_scrolls_sideways():
    style = (ROOT / "docs" / "stylesheets" / "pages.css").read_text()
    assert "white-space: pre-wrap" in style
    assert "extra_css: [stylesheets/pages.css]" in (ROOT / "mkdocs.yml").read_text()


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


def test_pages_are_found_by_their_names_in_the_navigation():
    """The search looks at titles first: the words of the name are in the headings of the page."""
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    named = re.findall(r"- (.*): (\S+\.md)$", navigation, re.MULTILINE)
    assert len(named) > 30
    missing = []
    for name, page in named:
        text = (ROOT / "docs" / page).read_text()
        headings = "\n".join(re.findall(r"^#+ .*", text, re.MULTILINE)).lower()
        words = [word for word in re.findall(r"\w+", name.lower()) if word not in headings]
        if not page.endswith("index.md") and words:
            missing.append((name, words))
    assert missing == []


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
