"""The gallery's notebooks are its examples, executed; what they print is what the examples print today."""

import importlib.util
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "gallery"

spec = importlib.util.spec_from_file_location("gallery_make", FOLDER / "make.py")
assert spec
assert spec.loader
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


def written(name: str) -> tuple[dict, str]:
    """(a notebook, what it printed)."""
    made = json.loads((FOLDER / f"{name}.ipynb").read_text())
    (stream,) = made["cells"][-1]["outputs"]
    return made, "".join(stream["text"])


@pytest.mark.parametrize("name", make.NAMES + make.TASKS)
def test_a_notebook_is_its_example(name):
    made, output = written(name)
    assert made == make.notebook(name, *make.cells_of(name), output)
    assert output.strip()


@pytest.mark.parametrize("name", make.NAMES + make.TASKS)
def test_the_page_shows_the_picture_and_the_notebook(name):
    page = (ROOT / "docs" / "gallery.md").read_text()
    assert f"(gallery/{name}.svg)" in page
    assert f"(gallery/{name}.ipynb)" in page
    assert f"`{make.path_of(name).relative_to(ROOT)}`" in page
    path = FOLDER / f"{name}.svg"
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert path.stat().st_size < 30_000


def test_every_example_is_in_the_gallery():
    assert list(make.NAMES) == sorted(path.stem for path in make.EXAMPLES.glob("*.py"))
    tasks = {path.stem for path in (make.EXAMPLES / "tasks").glob("*.py")} - {"experiment", "extras"}
    assert list(make.TASKS) == sorted(tasks)


@pytest.mark.parametrize("name", ["bayesian_network", "count_models", "points_to"])
def test_a_notebook_prints_what_it_shows(name):
    assert make.output_of(make.cells_of(name)[1]) == written(name)[1]
