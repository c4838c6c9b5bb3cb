"""What the package says about itself is true."""

import re
import tomllib
from pathlib import Path

import derivable

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(item for extra in PROJECT["optional-dependencies"].values() for item in extra),
]


def package_of(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()


PACKAGES = sorted({package_of(requirement) for requirement in REQUIREMENTS} - {"derivable"})


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text().split("\n")
    return {package_of(line) for line in lines if "==" in line}


def test_every_dependency_is_explained():
    named = {
        re.sub(r"[-_.]+", "-", name).lower()
        for name in re.findall(r"`([\w.-]+)`", (ROOT / "docs/dependencies.md").read_text())
    }
    assert [package for package in PACKAGES if package not in named] == []


def test_every_dependency_is_pinned():
    assert [package for package in PACKAGES if package not in pinned()] == []


def test_versions_agree():
    assert derivable.__version__ == PROJECT["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [PROJECT["version"]]


def test_types_are_announced():
    assert (ROOT / "src/derivable/py.typed").exists()
