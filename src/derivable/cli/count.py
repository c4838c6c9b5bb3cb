"""`derivable count FILE`: exact and weighted model counts."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, Decimal, localcontext
from fractions import Fraction
from typing import Any, cast

import click
import numpy as np

from derivable.circuit.compilation import COMPILERS
from derivable.cli.compile import CNF_ENDINGS, STRICT, compiled
from derivable.cli.report import write_facts, write_json
from derivable.core.diagnostics import UnsupportedError

# A file of a line may announce two billion variables. So many digits take seconds.
MOST_DIGITS = 10_000_000


@click.command("count")
@click.argument("file", type=click.Path())
@click.option(
    "--compiler",
    type=click.Choice([*COMPILERS, "tididi"]),
    help="For a CNF; tididi counts without a circuit.  [default: tididi if it is installed, else sdd]",
)
@click.option("--time-limit", type=float, metavar="SECONDS", help="Give up reading and compiling after this long.")
@STRICT
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mcc"]),
    default="text",
    show_default=True,
    help="mcc: the lines of the model counting competitions.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document; the count is a string of digits.")
def count_command(
    file: str, compiler: str | None, time_limit: float | None, strict: bool, form: str, as_json: bool
) -> None:
    """The exact number of models of FILE over all its variables, and the weighted one if it has weights.

    FILE (- for stdin) is a DIMACS CNF (weights in `c p weight` lines), an SDD, a d-DNNF, or a circuit of ours,
    gzipped or not. The count is an integer of any size. A CNF with `c p show` lines is counted over the variables that
    these show: how many of their assignments extend to a model.
    """
    began = time.perf_counter()
    counted = _by_tididi(file, compiler, time_limit, strict)
    if counted is not None:
        cnf, count, weighted = counted
        result = _Counted([count], None if weighted is None else [weighted], cnf.num_variables, cnf.shown is not None)
    else:
        result = _by_circuit(file, compiler or "sdd", time_limit, strict, began)
    _write(file, result, time.perf_counter() - began, form, as_json)


@dataclass(frozen=True)
class _Counted:
    """What was counted, of each root.

    circuit          that it was counted in, None without one, and
    compile_seconds  until that was there
    """

    counts: list[int]
    weighted: list[float] | None
    num_variables: int
    is_projected: bool
    circuit: Any = None
    compile_seconds: float = 0.0


def _by_circuit(file: str, compiler: str, time_limit: float | None, strict: bool, began: float) -> _Counted:
    projected = _projected(file, strict)
    hidden, num_variables = 0, None
    reduced = None if projected is not None else _reduced(file, compiler, time_limit, strict)
    if reduced is not None:
        num_variables, circuit, lift = reduced
        hidden = -lift
    elif projected is None:
        circuit = compiled(file, compiler, time_limit, strict)
    else:
        from derivable.circuit.compilation.projection import compile_projection

        circuit = compile_projection(projected, time_limit=time_limit)
        hidden = projected.num_variables - len(projected.shown or ())
    compile_seconds = time.perf_counter() - began
    counts = circuit.model_count()
    counts = counts if isinstance(counts, list) else [counts]
    counts = [count >> hidden if hidden > 0 else count << -hidden for count in counts]
    weighted = None
    if circuit.weights is not None:
        values = circuit.weighted_count(*circuit.weights)
        weighted = [float(value) for value in (values if getattr(values, "ndim", 0) else [values])]
    variables = circuit.num_variables if num_variables is None else num_variables
    return _Counted(counts, weighted, variables, projected is not None, circuit, compile_seconds)


def _reduced(file: str, compiler: str, time_limit: float | None, strict: bool) -> tuple[int, Any, int] | None:
    """(variables of a CNF, the circuit of what is left of it, the power of two that its count is short of), where that
    preprocessor is installed and the formula has no weights."""
    from derivable import circuit as circuits
    from derivable.circuit.compilation.compile_process import CompilerError
    from derivable.circuit.compilation.reduction import has_vitri, reduced
    from derivable.circuit.formulas.dimacs import read_dimacs
    from derivable.core.progress import Deadline, checked_time_limit

    if file == "-" or not file.lower().removesuffix(".gz").endswith(CNF_ENDINGS) or not has_vitri():
        return None
    deadline = Deadline(checked_time_limit(time_limit), "counting", "raise --time-limit")
    cnf = read_dimacs(file, deadline.remaining, strict=strict)
    if cnf.weights is not None or not cnf.num_clauses or (np.diff(cnf.offsets) == 0).any():
        return None
    # A header may announce two billion variables.
    mentioned, compact = cnf.compacted()
    try:
        rest, lift = reduced(compact, deadline)
    except CompilerError:
        return None
    circuit = circuits.compile(rest, cast(Any, compiler), time_limit=deadline.remaining())
    return cnf.num_variables, circuit, lift + cnf.num_variables - len(mentioned)


def _write(file: str, result: _Counted, seconds: float, form: str, as_json: bool) -> None:
    counts, weighted, circuit = result.counts, result.weighted, result.circuit
    if form == "mcc":
        _write_mcc(counts[0], None if weighted is None else weighted[0], result.is_projected)
        return
    if as_json:
        document = {
            "file": file,
            "variables": result.num_variables,
            "models": [*map(decimal_digits, counts)] if len(counts) > 1 else decimal_digits(counts[0]),
            "log10_models": [_log10(count) for count in counts] if len(counts) > 1 else _log10(counts[0]),
            "weighted": weighted if weighted is None or len(weighted) > 1 else weighted[0],
        }
        if circuit is not None:
            document |= {"nodes": circuit.num_nodes, "edges": circuit.num_edges}
            document["compile_seconds"] = result.compile_seconds
        write_json({**document, "seconds": seconds})
        return
    rows = []
    for root, count in enumerate(counts):
        suffix = f" of root {root + 1}" if len(counts) > 1 else ""
        rows.append((f"models{suffix}", _written(count)))
        if weighted is not None:
            rows.append((f"weighted count{suffix}", f"{weighted[root]:.17g}"))
    rows.append(("variables", f"{result.num_variables:,}"))
    if circuit is not None:
        rows.append(("circuit", f"{circuit.num_nodes:,} nodes, {circuit.num_edges:,} edges"))
    rows.append(("seconds", f"{seconds:.3f}"))
    write_facts(rows)


def _by_tididi(
    file: str, compiler: str | None, time_limit: float | None, strict: bool
) -> tuple[Any, int, float | None] | None:
    """(formula, count, weighted count) of a CNF, where that counter is named or installed."""
    from derivable.circuit.compilation.compile_process import CompilerError
    from derivable.circuit.compilation.count_tididi import count_by_tididi, has_tididi
    from derivable.circuit.formulas.dimacs import read_dimacs
    from derivable.core.progress import Deadline, checked_time_limit

    is_cnf = file.lower().removesuffix(".gz").endswith(CNF_ENDINGS)
    if compiler not in (None, "tididi") or (compiler is None and not (is_cnf and has_tididi())):
        return None
    if not is_cnf:
        raise UnsupportedError("tididi counts the models of a CNF", hint="leave --compiler out")
    deadline = Deadline(checked_time_limit(time_limit), "counting", "raise --time-limit")
    cnf = read_dimacs(file, deadline.remaining, strict=strict, projected=True)
    try:
        return cnf, *count_by_tididi(cnf, deadline)
    except CompilerError:
        if compiler is not None:
            raise
        return None


def _projected(file: str, strict: bool) -> Any:
    """The formula of a CNF that shows some of its variables only; None for any other file."""
    from derivable.circuit.formulas.dimacs import read_dimacs
    from derivable.core.files import read_bytes

    if not file.lower().removesuffix(".gz").endswith(CNF_ENDINGS):
        return None
    if re.search(rb"(?m)^c\s+(p\s+show|ind)\b", read_bytes(file)) is None:
        return None
    cnf = read_dimacs(file, strict=strict, projected=True)
    return None if cnf.shown is None else cnf


def _write_mcc(count: int, weighted: float | None, is_projected: bool) -> None:
    """The lines of the model counting competitions, of 2021 and later."""
    task = ("p" if is_projected else "") + ("mc" if weighted is None else "wmc")
    if weighted is None:
        log10 = _log10(count)
        exact = f"arb int {decimal_digits(count)}"
    else:
        log10 = math.log10(abs(weighted)) if weighted else None
        exact = f"double prec-sci {weighted:.17g}"
    click.echo(
        f"s {'SATISFIABLE' if count else 'UNSATISFIABLE'}\n"
        f"c s type {task}\n"
        f"c s log10-estimate {'-inf' if log10 is None else f'{log10:.12g}'}\n"
        f"c s exact {exact}"
    )


def decimal_digits(count: int) -> str:
    """The digits of a count of any size: Python's own conversion refuses more than 4,300, and takes their square."""
    if count.bit_length() < 10_000:
        return str(count)
    if (size := _log10(count)) and size > MOST_DIGITS:
        raise UnsupportedError(
            f"the count has {int(size) + 1:,} digits, and more than {MOST_DIGITS:,} are not written",
            hint=f"it is about 10^{size:.3f}; in Python `model_count` gives the integer",
        )
    powers: dict[int, Decimal] = {}

    def converted(number: int, bits: int) -> Decimal:
        if bits <= 1000:
            return Decimal(number)
        half = bits // 2
        high = number >> half
        if half not in powers:
            powers[half] = Decimal(2) ** half
        return converted(high, bits - half) * powers[half] + converted(number - (high << half), half)

    with localcontext() as context:
        context.prec, context.Emax = MAX_PREC, MAX_EMAX
        return format(converted(count, count.bit_length()), "f")


def _written(count: int) -> str:
    """All digits up to 60, beyond that the power of ten beside them."""
    digits = decimal_digits(count)
    return digits if len(digits) <= 60 else f"{digits} (about 10^{_log10(count):.3f})"


def _log10(count: int) -> float | None:
    return None if count == 0 else math.log10(Fraction(count)) if count.bit_length() < 1000 else _log10_of_large(count)


def _log10_of_large(count: int) -> float:
    shift = count.bit_length() - 64
    return math.log10(count >> shift) + shift * math.log10(2)
