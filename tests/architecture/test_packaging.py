"""What the package says about itself is true."""

import re
import subprocess
import tomllib
from pathlib import Path

import derivable
from derivable.core import version

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
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


def test_versions_of_jax_that_end_in_a_segmentation_fault_are_left_out():
    """0.7.0 and 0.8.0 did."""
    least = [re.search(r">=(\d+)\.(\d+)\.(\d+)", item) for item in REQUIREMENTS if package_of(item) == "jax"]
    assert least
    assert all(found and tuple(map(int, found.groups())) >= (0, 8, 1) for found in least)


def test_versions_agree():
    """The citation is of a release: between two of them, of the next one."""
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [version.VERSION.partition(".dev")[0]]
    assert derivable.__version__.partition("+")[0] == version.VERSION


def test_builds_of_torch_have_an_extra_and_an_index():
    uv = SETTINGS["tool"]["uv"]
    indexes = {index["name"] for index in uv["index"]}
    builds = {source["extra"]: source["index"] for source in uv["sources"]["torch"]}
    assert set(builds.values()) == indexes
    assert [{"extra": extra} for extra in builds] == uv["conflicts"][0]
    extras = PROJECT["optional-dependencies"]
    assert all(extras[extra] == extras["torch"] for extra in builds)


def test_a_clone_names_its_commit(tmp_path, monkeypatch):
    module = tmp_path / "src/derivable/core/version.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    monkeypatch.setattr(version, "__file__", str(module))
    assert version.full_version() == version.VERSION
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    subprocess.run([*git, "tag", "v9"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert version.full_version() == f"{version.VERSION}+g{commit[:9]}"
    module.write_text("changed")
    assert version.full_version() == f"{version.VERSION}+g{commit[:9]}.dirty"


def test_types_are_announced():
    assert (ROOT / "src/derivable/py.typed").exists()
