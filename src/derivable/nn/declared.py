"""What a layer or a function is declared with: a program, its inputs and its outputs, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from derivable.core.diagnostics import BindingError, DomainError, ShapeError
from derivable.core.registry import nearest
from derivable.datalog.api.program import Program
from derivable.datalog.facts.inputs import InputMapping, Varying, as_tuple, require_list

OutputMapping = Sequence[Any]


def program_of(program: str | os.PathLike | Program) -> Program:
    """The program of a text or a file. Raises DomainError for anything else."""
    if isinstance(program, Program):
        return program
    if isinstance(program, os.PathLike) or (
        isinstance(program, str) and program.endswith(".scl") and "\n" not in program
    ):
        return Program.from_file(Path(program))
    if isinstance(program, str):
        return Program(program)
    raise DomainError(f"a program is text, a Program or a path, not {type(program).__name__}")


def checked_inputs(inputs: Mapping[str, InputMapping | Varying]) -> dict[str, Any]:
    """The inputs by name. Raises DomainError for what is no input."""
    if not isinstance(inputs, Mapping):
        raise DomainError(
            f"inputs is a {type(inputs).__name__}", hint='map relations: inputs={"digit_1": dv.categorical(range(10))}'
        )
    for name, facts in inputs.items():
        _check_name(name)
        if isinstance(facts, Varying):
            continue
        if not isinstance(facts, InputMapping):
            raise DomainError(
                f"input {name!r} is given as {type(facts).__name__}",
                hint="dv.categorical(range(10)) for one choice, dv.independent([...]) for independent facts, "
                "dv.varying() for facts of each sample",
            )
        if facts.probabilities is not None:
            raise DomainError(
                f"input {name!r} has probabilities already",
                hint="leave them out: they are what the layer is called with",
            )
    return dict(inputs)


def with_evidence(inputs: dict[str, Any], evidence: Mapping[str, OutputMapping] | None) -> tuple[dict, dict]:
    """The inputs, with `evidence` behind them if there is any, and the tuples of each relation that may be observed."""
    if not evidence:
        return inputs, {}
    rows, _ = checked_outputs(evidence, "evidence")
    if "evidence" in inputs:
        raise BindingError("an input is called `evidence`, as what was observed is", hint="rename the relation")
    if None in rows.values():
        raise DomainError("evidence lists the tuples that may be observed", hint='evidence={"calls": ["Ada", "Bob"]}')
    items = [(name, *row) for name, tuples in rows.items() for row in tuples]
    return {**inputs, "evidence": InputMapping(tuple(items), is_exclusive=False)}, rows


def with_fact_axis(inputs: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given for each input, as [*batch, fact]: that of `dv.independent(())` has no axis for its one fact."""
    found = dict(given)
    for name, facts in inputs.items():
        if isinstance(facts, InputMapping) and facts.is_scalar and hasattr(given[name], "ndim"):
            found[name] = given[name][..., None]
    return found


def checked_outputs(
    outputs: Mapping[str, OutputMapping | None], kind: str = "outputs"
) -> tuple[dict[str, Any], frozenset[str]]:
    """The facts of each output relation, or of evidence, as tuples, and the relations that give no dimension."""
    if not isinstance(outputs, Mapping):
        raise DomainError(
            f"{kind} is a {type(outputs).__name__}",
            hint=f"map each relation to the facts wanted: {kind}="
            '{"path": [(0, 1), (0, 2)]}; '
            "`()` asks for the one fact of a relation without arguments",
        )
    if not outputs:
        raise DomainError("a layer needs outputs", hint='outputs={"sum_2": range(19)}')
    facts: dict[str, Any] = {}
    scalar = set()
    for name, wanted in outputs.items():
        _check_name(name)
        if wanted is None:
            facts[name] = None
            continue
        if isinstance(wanted, tuple) and wanted == ():
            facts[name] = [()]
            scalar.add(name)
            continue
        require_list(wanted, f"output {name!r} is")
        try:
            facts[name] = [as_tuple(value) for value in wanted]
        except TypeError:
            raise DomainError(
                f"output {name!r} is {wanted!r}, which lists no facts", hint="a range or a list of values or tuples"
            ) from None
        if not facts[name]:
            raise DomainError(
                f"output {name!r} lists no facts", hint="() asks for the fact of a relation without arguments"
            )
    return facts, frozenset(scalar)


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise DomainError(f"{name!r} is no name of a relation", hint='map names: {"digit_1": ...}')


def unfit_batches(shapes: Mapping[str, Sequence[int]]) -> ShapeError:
    """The error of inputs [*batch, fact] of these shapes, whose batch dimensions do not broadcast."""
    shown = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    return ShapeError(
        f"the batch dimensions do not fit together: {shown}", hint="all but the last dimension must be equal, or 1"
    )


def matched(
    inputs: Mapping[str, Any], positional: Sequence[Any], named: Mapping[str, Any], kind: str = "tensor"
) -> dict[str, Any]:
    """What is given for each input, by place or by name. Raises BindingError for one that is missing or unknown.

    kind  what is given, for messages
    """
    if len(positional) > len(inputs):
        raise BindingError(f"{len(positional)} {kind}s, but the inputs are {', '.join(inputs)}")
    given = dict(zip(inputs, positional))
    for name, value in named.items():
        if name not in inputs:
            close = nearest(name, list(inputs))
            raise BindingError(
                f"no input relation {name!r}{f'; did you mean {close!r}?' if close else ''}",
                hint=f"the inputs are {', '.join(inputs)}",
            )
        if name in given:
            raise BindingError(f"input {name!r} is given twice, by place and by name")
        given[name] = value
    missing = [name for name in inputs if name not in given]
    if missing:
        raise BindingError(
            f"no {kind} for {', '.join(map(repr, missing))}",
            hint=f"call {'layer' if kind == 'tensor' else 'function'}({', '.join(f'{name}=...' for name in inputs)})",
        )
    return {name: given[name] for name in inputs}
