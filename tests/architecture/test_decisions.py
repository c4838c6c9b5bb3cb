"""Pages about decisions name files that exist; a page of something that is gone says so without a path."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs" / "decisions").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"]
FOLDERS = [ROOT / name for name in ("src", "tests", "docs", "benchmarks", "examples", ".ci")]
FILES = ["/" + path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in folder.rglob("*.*")]


def missing(text: str) -> list[str]:
    """The backticked paths that are no end of the path of a file."""
    named = re.findall(r"`([\w./-]+\.(?:py|scl|sv))`", text)
    return [name for name in named if not any(path.endswith("/" + name) for path in FILES)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_page_names_exist(page):
    assert missing(page.read_text(encoding="utf-8")) == []


def test_the_check_can_fail():
    assert missing("`fused/fast.py`, `record.py` and `aggregates/record.py`") == ["fused/fast.py"]
