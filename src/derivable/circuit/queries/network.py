"""Networks of discrete variables, from the files of other systems: their circuits, and posteriors of all variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from derivable.circuit.compilation.factors import from_factors
from derivable.circuit.files.bif_file import parse_bif
from derivable.circuit.files.network import NetworkTables
from derivable.circuit.files.uai_file import parse_uai, parse_uai_evidence
from derivable.circuit.files.xmlbif_file import parse_xmlbif
from derivable.circuit.graph.circuit import Circuit
from derivable.core.diagnostics import DomainError, ParseError
from derivable.core.files import read_bytes
from derivable.core.graph import offsets_of

READERS = {".bif": parse_bif, ".xmlbif": parse_xmlbif, ".xbif": parse_xmlbif, ".xml": parse_xmlbif, ".uai": parse_uai}
Evidence = Mapping[str, Any]
# As the language writes them.
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"})


class Network:
    """A Bayesian network, or a Markov random field, of a file.

    tables  its variables, their values, and its tables of numbers
    """

    def __init__(self, tables: NetworkTables):
        self.tables = tables

    def __repr__(self) -> str:
        entries = sum(table.size for _, table in self.tables.factors)
        return f"Network({len(self.tables.names)} variables, {entries} entries)"

    @property
    def names(self) -> tuple[str, ...]:
        """[variable] as in the file; numbers from 0 in UAI's format."""
        return self.tables.names

    @property
    def states(self) -> dict[str, tuple[str, ...]]:
        """Variable -> the names of its values."""
        return dict(zip(self.tables.names, self.tables.states))

    @cached_property
    def circuit(self) -> Circuit:
        """The circuit of `from_factors`, whose first variables are called `rain=yes`, `rain=no`, ..."""
        tables = self.tables
        names = [f"{name}={state}" for name, states in zip(tables.names, tables.states) for state in states]
        return from_factors(tables.factors, tables.cardinalities, names=names)

    def posteriors(self, evidence: Evidence | None = None) -> dict[str, dict[str, float]]:
        """Variable -> value -> its probability, given what was observed, besides the evidence of a file.

        evidence  variable -> the name of its value, or its number

        Raises DomainError for a variable or value that there is not, and for evidence of probability zero.
        """
        positive, negative = self._weights(evidence)
        self._require_possible(positive, negative)
        marginals = np.ravel(self.circuit.marginals(positive, negative))
        found, start = {}, 0
        for name, states in zip(self.tables.names, self.tables.states):
            row = marginals[start : start + len(states)]
            start += len(states)
            found[name] = dict(zip(states, (row / row.sum()).tolist()))
        return found

    def probability(self, evidence: Evidence | None = None) -> float:
        """That of what was observed; of a Markov random field the sum of all products, its partition function."""
        return float(np.ravel(self.circuit.weighted_count(*self._weights(evidence)))[0])

    def _require_possible(self, positive: np.ndarray, negative: np.ndarray) -> None:
        if not np.ravel(self.circuit.weighted_count(positive, negative))[0] > 0:
            raise DomainError(
                "the evidence is impossible: no assignment that fits it has a positive product",
                hint="remove an item of it",
                source=self.tables.source,
            )

    def _weights(self, evidence: Evidence | None) -> tuple[np.ndarray, np.ndarray]:
        weights = self.circuit.weights
        assert weights is not None
        positive, negative = weights[0].copy(), weights[1]
        starts = offsets_of(self.tables.cardinalities)
        observed = dict(self.tables.evidence)
        for name, state in (evidence or {}).items():
            variable = self.tables.variable(name)
            value = self.tables.state(variable, state)
            if observed.setdefault(variable, value) != value:
                message = (
                    f"{name!r} was observed to be {self.tables.states[variable][observed[variable]]!r} and {state!r}"
                )
                raise DomainError(message, hint="remove one of them", source=self.tables.source)
        for variable, value in observed.items():
            low, high = int(starts[variable]), int(starts[variable + 1])
            keep = positive[low + value]
            positive[low:high] = 0.0
            positive[low + value] = keep
        return positive, negative

    def program(self) -> str:
        """A program in this library's language: `value(variable, state)` has the posteriors, and takes evidence.

        A choice for each row of each table, so it is for small networks; `posteriors` are the fast way. Raises
        DomainError for a Markov random field, whose tables are no choices.
        """
        if not self.tables.is_bayesian:
            raise DomainError("the tables of a Markov random field are no choices", hint="use `posteriors`")
        lines = ["type value(variable: String, state: String)"]
        for number, (scope, table) in enumerate(self.tables.factors):
            *parents, child = scope
            lines.append(f"type row_{number}({', '.join(['String'] * len(scope))})")
            for place in np.ndindex(*table.shape[:-1]):
                given = [_text(self.tables.states[p][i]) for p, i in zip(parents, place)]
                total = float(table[place].sum())
                choices = [
                    f"{float(p) / max(total, 1.0)!r}::({', '.join([*given, _text(state)])})"
                    for state, p in zip(self.tables.states[child], table[place])
                ]
                lines.append(f"rel row_{number} = {{{'; '.join(choices)}}}")
            names = [f"v{i}" for i in range(len(parents))]
            body = [f"value({_text(self.tables.names[p])}, {v})" for p, v in zip(parents, names)]
            body.append(f"row_{number}({', '.join([*names, 's'])})")
            lines.append(f"rel value({_text(self.tables.names[child])}, s) = {', '.join(body)}")
        return "\n".join([*lines, "query value"]) + "\n"


def _text(value: str) -> str:
    return f'"{value.translate(_ESCAPED)}"'


def load_network(path: str | os.PathLike, *, evidence: str | os.PathLike | None = None) -> Network:
    """The network of a file: BIF (.bif), XMLBIF (.xmlbif, .xbif, .xml) or UAI's format (.uai), gzipped or not.

    evidence  a file of evidence in UAI's format

    Raises ParseError, DomainError and UnsupportedError with their place in the file.
    """
    name = os.fspath(path)
    ending = Path(name.lower().removesuffix(".gz")).suffix
    if ending not in READERS:
        hint = "known are BIF (.bif), XMLBIF (.xmlbif, .xbif, .xml) and UAI's format (.uai)"
        raise ParseError(f"cannot tell the format of {name!r} from its ending", hint=hint)
    return _network(READERS[ending](_text_of(path), name), evidence)


def _network(tables: NetworkTables, evidence: str | os.PathLike | None = None) -> Network:
    if evidence is not None:
        observed = parse_uai_evidence(_text_of(evidence), tables, os.fspath(evidence))
        tables = replace(tables, evidence=observed)
    return Network(tables)


def _text_of(path: str | os.PathLike) -> str:
    data = read_bytes(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def from_bif(path: str | os.PathLike) -> Circuit:
    """The circuit of a Bayesian network in BIF or XMLBIF, by variable elimination: see `from_factors`.

    Its first variables are called `rain=yes`, `rain=no`, ..., one for each value of each variable, in the order of the
    file; so `circuit.condition(["rain=yes"]).marginals()` has all posteriors. Raises as `load_network`.
    """
    text = _text_of(path)
    parse = parse_xmlbif if "<BIF" in text[:4096].upper() else parse_bif
    return Network(parse(text, os.fspath(path))).circuit


def from_uai(path: str | os.PathLike, *, evidence: str | os.PathLike | None = None) -> Circuit:
    """The circuit of a graphical model in UAI's format, by variable elimination: see `from_factors`.

    evidence  a file of evidence: the circuit is that of the product where it holds

    Its first variables are called `0=0`, `0=1`, `1=0`, ... Raises as `load_network`.
    """
    network = _network(parse_uai(_text_of(path), os.fspath(path)), evidence)
    observed = network.tables.evidence.items()
    return network.circuit.condition([f"{variable}={value}" for variable, value in observed])
