"""`derivable compile FILE.cnf -o FILE`: knowledge compilation to a circuit file."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from derivable.circuit.compilation import COMPILERS
from derivable.cli.report import write_facts, write_json
from derivable.core.diagnostics import UnsupportedError
from derivable.core.files import STANDARD_INPUT, read_standard_input

if TYPE_CHECKING:
    from derivable.circuit.graph.circuit import Circuit

CNF_ENDINGS = (".cnf", ".dimacs")
# Ending -> the module and the name of the function (circuit, path) that writes the format.
WRITERS = {
    ".dvc": ("derivable.circuit.files.store", "save"),
    ".dot": ("derivable.circuit.show.dot", "to_dot"),
    ".nnf": ("derivable.circuit.files.nnf_file", "write_nnf"),
    ".sdd": ("derivable.circuit.files.sdd_file", "write_sdd"),
}
FORMATS = ".dvc (our compact format), .nnf (d-DNNF of D4), .sdd (its .vtree goes beside it) or .dot (Graphviz)"


STRICT = click.option(
    "--strict/--no-strict", default=True, show_default=True, help="Whether the header of a CNF must be right."
)


def compiled(
    file: str, compiler: str, time_limit: float | None, strict: bool = True, vtree: str | None = None
) -> Circuit:
    """The circuit of any known file, or of standard input for "-"; a CNF goes through the compiler named."""
    from derivable import circuit as circuits

    if file == "-":
        from derivable.circuit.compilation.load import parse
        from derivable.core.progress import Deadline, checked_time_limit

        deadline = Deadline(checked_time_limit(time_limit), "reading", "raise --time-limit")
        data = read_standard_input(deadline.remaining)
        left = deadline.remaining()
        options = {"time_limit": left, "compiler": cast(Any, compiler), "strict": strict, "vtree": vtree}
        return parse(data, STANDARD_INPUT, **options)
    if file.lower().removesuffix(".gz").endswith(CNF_ENDINGS):
        tree = "elimination" if vtree is None else Path(vtree)
        options = {"compiler": cast(Any, compiler), "time_limit": time_limit, "vtree": tree, "strict": strict}
        return circuits.compile(file, **options)
    return circuits.load(file, vtree=vtree, time_limit=time_limit, strict=strict)


@click.command("compile")
@click.argument("file", type=click.Path())
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    help=f"File to write: {FORMATS}.",
)
@click.option("--compiler", type=click.Choice(COMPILERS), default="sdd", show_default=True)
@click.option("--vtree", type=click.Path(), help="For a CNF and sdd: the .vtree file of the tree to keep.")
@click.option("--time-limit", type=float, metavar="SECONDS", help="Give up after this long.")
@STRICT
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the sizes.")
def compile_command(
    file: str, output: str, compiler: str, vtree: str | None, time_limit: float | None, strict: bool, as_json: bool
) -> None:
    """Compile the CNF in FILE (- for stdin) to a circuit and write it to OUTPUT, whole or not at all.

    FILE may also be a circuit already, which is then converted.
    """
    save = _writer(output)
    began = time.perf_counter()
    circuit = compiled(file, compiler, time_limit, strict, vtree)
    seconds = time.perf_counter() - began
    save(circuit, output)
    if as_json:
        sizes = {name: getattr(circuit, f"num_{name}") for name in ("variables", "nodes", "edges", "levels")}
        write_json({"file": file, "output": output, **sizes, "seconds": seconds})
        return
    write_facts(
        [
            ("circuit", f"{circuit.num_nodes:,} nodes, {circuit.num_edges:,} edges, {circuit.num_levels} levels"),
            ("variables", f"{circuit.num_variables:,}"),
            ("seconds", f"{seconds:.3f}"),
            ("written", output),
        ]
    )


def _writer(output: str):
    """The function that writes the format the name asks for; found before the work, so a typo costs nothing."""
    ending = Path(output).suffix.lower()
    found = WRITERS.get(ending)
    if found is not None:
        module, name = found
        return getattr(importlib.import_module(module), name)
    raise UnsupportedError(
        f"cannot tell the format of {output!r} from its ending {ending or '(none)'}",
        hint=f"end the name in {FORMATS}",
    )
