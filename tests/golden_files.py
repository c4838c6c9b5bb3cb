"""Texts that are compared byte for byte with the files of tests/golden/. UPDATE_GOLDEN=1 writes the files."""

import os
from pathlib import Path

GOLDEN = Path(__file__).with_name("golden")


def compare(name: str, text: str) -> None:
    """Raise unless tests/golden/NAME.txt holds this text, which ends there with a line break."""
    path = GOLDEN / f"{name}.txt"
    text = text if text.endswith("\n") else text + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def names(folder: str) -> set[str]:
    """The names of the files of a folder of tests/golden/, without those of its own folders."""
    return {path.stem for path in (GOLDEN / folder).glob("*.txt")}
