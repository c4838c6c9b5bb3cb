"""Compiles the kernels when the package is built: for this machine, or for the processors that the environment names.

DERIVABLE_PROCESSORS  names of LLVM, such as "x86-64-v2 x86-64-v3", for a wheel that others install; "none" compiles
                      nothing, and the first kernel that is used has all compiled, if Numba is there
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "DERIVABLE_PROCESSORS"
FOLDER = "derivable/device/cpu/compiled"
# Not by PYTHONPATH: where an editable install is there already, pip's environments for building take its folder away.
BUILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from derivable.device.cpu.building.build_kernels import build
build(Path(sys.argv[2]), *sys.argv[3:])
"""


class KernelHook(BuildHookInterface):
    """The files are in the source tree of an editable install, else in the wheel, which is then one of a platform."""

    folder = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get(VARIABLE, "native").split()
        if self.target_name != "wheel" or wanted == ["none"]:
            return
        sources = Path(self.root) / "src"
        if version == "editable":
            self.compile(sources, sources / FOLDER, wanted)
            return
        self.folder = tempfile.mkdtemp()
        for path in self.compile(sources, Path(self.folder), wanted):
            build_data["force_include"][str(path)] = f"{FOLDER}/{path.name}"
            build_data["pure_python"], build_data["tag"] = False, f"py3-none-{platform(wanted)}"

    def compile(self, sources: Path, folder: Path, wanted: list[str]) -> list[Path]:
        """One file for a processor."""
        made = []
        for processor in wanted:
            file = folder / f"{processor}.objects"
            arguments = [str(sources), str(file), *([] if processor == "native" else [processor])]
            subprocess.run([sys.executable, "-c", BUILD, *arguments], check=True)
            made.append(file)
        return made

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def platform(wanted: list[str]) -> str:
    """The platform of a wheel. The kernels call the C library alone, and nothing of it that is new."""
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return name.replace("linux_", "manylinux_2_17_") if wanted != ["native"] else name
