"""The folders that hold the files which a text of somebody else may name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from derivable.core.files import followed


@dataclass(frozen=True)
class Roots:
    """Folders; `None` in place of them is all folders. Links are followed before a path is compared with them."""

    folders: tuple[Path, ...] | None = None

    @staticmethod
    def of(folders: Sequence[str | os.PathLike] | None) -> Roots:
        return Roots(None if folders is None else tuple(map(followed, folders)))

    def holds(self, path: str | os.PathLike) -> bool:
        if self.folders is None:
            return True
        target = followed(path)
        return any(target.is_relative_to(folder) for folder in self.folders)

    def refusal(self, path: str | os.PathLike, use: str) -> tuple[str, str]:
        """What an error says of a path that they do not hold, and its hint. use: "read" or "write"."""
        shown = " and ".join(map(str, dict.fromkeys(self.folders or ())))
        ways = {"read": "another folder with --root DIR", "write": "a folder with -o DIR"}
        return (
            f"the program may not {use} {followed(path)}{f', which is not in {shown}' if shown else ''}",
            f"allow {ways[use]}, or, if you trust the program, all files with --allow-files",
        )
