"""Real data kept outside the repository; a test that needs it is skipped where it is absent."""

import os
from pathlib import Path

import pytest

_FOLDERS = [
    *([Path(os.environ["DERIVABLE_DATA"])] if "DERIVABLE_DATA" in os.environ else []),
    Path(__file__).parents[1] / ".." / "shared" / "data",
    Path(__file__).parents[1] / ".." / ".." / "shared" / "data",
]


def data_path(name: str) -> Path:
    """The path of a data file such as "circuits/4-grid.sdd.gz"; skips the test if it is absent.

    Looked up in the folder that DERIVABLE_DATA names, then in shared/data beside the repository.
    """
    for folder in _FOLDERS:
        path = (folder / name).resolve()
        if path.exists():
            return path
    pytest.skip(f"data file {name} is absent; set DERIVABLE_DATA to the folder that has it")


def data_folder() -> Path | None:
    """The first of the folders of data that is there."""
    return next((folder.resolve() for folder in _FOLDERS if folder.is_dir()), None)
