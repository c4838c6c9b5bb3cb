"""Knowledge compilation: a CNF, a file or a Python formula to a circuit on which counting is linear."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any
from typing import Literal as OneOf

import numpy as np

from derivable.circuit.compilation import COMPILERS
from derivable.circuit.compilation.compile_sdd import VTREES
from derivable.circuit.compilation.long_clauses import (
    cnf_graph,
    decided_clauses,
    long_clauses_alone,
    with_short_clauses,
)
from derivable.circuit.formulas.cnf import Cnf, checked_weights, cnf_from_clauses, without_repeats
from derivable.circuit.formulas.dimacs import cnf_of
from derivable.circuit.formulas.formula import Formula, as_clauses, names_of, to_nnf
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.elimination_circuit import described
from derivable.circuit.graph.vtree import Vtree
from derivable.core.and_or import AND, FALSE, LITERAL, TRUE
from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.names import FreshNames
from derivable.core.progress import Deadline, checked_time_limit


def compile(
    source: str | os.PathLike | Iterable[Sequence[int]] | np.ndarray | Cnf | Formula,
    compiler: OneOf["auto", "elimination", "sdd", "d4"] = "sdd",
    *,
    num_variables: int | None = None,
    weights: tuple | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    progress: bool | None = None,
    vtree: str | os.PathLike | Vtree | Any = "elimination",
    minimise: bool = True,
    strict: bool = True,
) -> Circuit:
    """Compile to a decomposable, deterministic circuit with one root.

    source         path of a DIMACS CNF file (gzipped or not); clauses as lists of signed variables, or an
                   integer array [clause, literal] padded with 0; a `Cnf`; or a `Formula`
    compiler       "sdd": PySDD, a canonical circuit with origin "sdd"; "d4": D4, a d-DNNF with origin
                   "decision", faster on most formulas (needs the extra `derivable[d4]`); "elimination": variable
                   elimination, of origin "decision", for formulas of small width, such as Bayesian networks;
                   "auto": the one that suits the formula, which `circuit.explain("compilation")` says
    num_variables  default: what the file's header says, the largest variable of the clauses, or all names of
                   the formula; a variable that is never mentioned is free and doubles the model count
    weights        (positive, negative), each [variable]; default: those of the file, kept in `circuit.weights`
    time_limit     seconds; then CompileTimeout is raised
    memory_limit   bytes of the compiler; then OutOfMemory is raised. None: what the machine has
    progress       a bar on stderr after a second; None: only if stderr is a terminal
    vtree          for "sdd", the tree to start from: "elimination" (see `derivable.circuit.compilation.elimination`),
                   "balanced" or "right"; or the tree to keep, which is `circuit.vtree` then and is not minimised: the
                   path of a .vtree file, a `Vtree`, or one of PySDD
    minimise       for "sdd", whether to minimise the vtree while compiling and at the end

    strict         whether the header of a file must be right: see `derivable.circuit.formulas.dimacs.parse_dimacs`

    Ctrl-C stops the compiler. The circuit is neither smooth nor does it mention variables that do not matter.

    Raises ParseError (file), DomainError (clauses, formula), CompileTimeout, CompilerError (the compiler
    crashed), MissingDependencyError.
    """
    if compiler not in COMPILERS:
        raise DomainError(f"no compiler {compiler!r}", hint="compiler is 'auto', 'elimination', 'sdd' or 'd4'")
    time_limit = checked_time_limit(time_limit)
    if isinstance(source, Circuit):
        raise DomainError("this is a circuit already", hint="pass a path, clauses, or a formula")
    if compiler == "d4":
        from derivable.circuit.compilation.compile_d4 import require_d4

        require_d4()
    # What comes before the compiler's own process counts too, the reading first.
    deadline = Deadline(time_limit, "compilation", "raise time_limit")
    if memory_limit is not None:
        memory_limit = integer(memory_limit, "memory_limit", 1)
    options: dict[str, Any] = {"deadline": deadline, "progress": progress, "memory_limit": memory_limit}
    tree = _checked_vtree(vtree)
    if compiler == "sdd":
        options |= {"vtree": tree, "minimise": minimise}
    elif not isinstance(tree, str):
        raise DomainError(f"{compiler!r} has no vtree", hint="leave vtree out, or give compiler='sdd'")
    kept = tree if isinstance(tree, Vtree) else None
    if isinstance(source, Formula):
        return described(_compile_formula(source, compiler, num_variables, weights, options), vtree=kept)
    cnf = cnf_of(source, num_variables, weights, deadline.remaining, strict)
    return described(_compile_cnf(cnf, compiler, options), weights=cnf.weights, vtree=kept)


def _checked_vtree(vtree: Any) -> str | Vtree:
    """One of the names, or a tree. Raises DomainError, ParseError for a file."""
    if isinstance(vtree, Vtree) or (isinstance(vtree, str) and vtree in VTREES):
        return vtree
    is_path = isinstance(vtree, os.PathLike) or (isinstance(vtree, str) and (os.sep in vtree or "." in vtree))
    if is_path or hasattr(vtree, "save"):
        from derivable.circuit.files.sdd_file import saved
        from derivable.circuit.files.vtree_file import load_vtree, parse_vtree

        return load_vtree(vtree) if is_path else parse_vtree(saved(vtree), "<live vtree>")
    hint = f"there are {', '.join(map(repr, VTREES))}, paths of .vtree files, and trees"
    raise DomainError(f"no vtree {vtree!r}", hint=hint)


def _constant(value: bool, num_variables: int, origin: str) -> Circuit:
    graph = AndOrGraph.of([TRUE if value else FALSE], [0], [()], [0])
    return circuit_from_arrays(*graph.arrays, num_variables, origin=origin)


def _compile_cnf(cnf: Cnf, compiler: str, options: dict[str, Any]) -> Circuit:
    origin = "sdd" if compiler == "sdd" else "decision"
    clean = without_repeats(cnf, options["deadline"].remaining)
    if clean.num_clauses == 0:
        return _constant(True, cnf.num_variables, origin)
    if (np.diff(clean.offsets) == 0).any():
        return _constant(False, cnf.num_variables, origin)
    alone = long_clauses_alone(clean) & isinstance(options.get("vtree", ""), str)
    if alone.any():
        clauses = clean.clauses()
        rest = cnf_from_clauses([clauses[number] for number in np.flatnonzero(~alone)], cnf.num_variables)
        others = [_compile_cnf(rest, compiler, options)] if rest.num_clauses else []
        return decided_clauses([clauses[number] for number in np.flatnonzero(alone)], others, cnf.num_variables)
    return compile_by(compiler, clean, options)


def compile_by(compiler: str, cnf: Cnf, options: dict[str, Any]) -> Circuit:
    """A CNF without repeats and empty clauses, by the compiler named."""
    if compiler == "auto":
        from derivable.circuit.compilation.planner import compile_planned

        return compile_planned(cnf, options)
    if compiler == "elimination":
        from derivable.circuit.compilation.clause_tables import compile_elimination

        return compile_elimination(cnf, options["deadline"], options["memory_limit"])
    if compiler == "sdd":
        from derivable.circuit.compilation.compile_sdd import compile_sdd

        return compile_sdd(cnf_graph(cnf), cnf.num_variables, **options)
    from derivable.circuit.compilation.compile_d4 import compile_d4

    return without_definitions(compile_d4(with_short_clauses(cnf), **options), cnf.num_variables)


def _compile_formula(formula: Formula, compiler: str, num_variables, weights, options: dict[str, Any]) -> Circuit:
    names = names_of(formula)
    wanted = len(names) if num_variables is None else integer(num_variables, "num_variables", 0, 2**31 - 1)
    if wanted < len(names):
        raise ShapeError(f"num_variables is {wanted}, and the formula has {len(names)} variables: {', '.join(names)}")
    fresh = FreshNames(names)
    names = names + tuple(fresh(f"x{number}") for number in range(len(names) + 1, wanted + 1))
    pair = checked_weights(weights, wanted)
    clauses = as_clauses(formula)
    if clauses is not None:
        circuit = _compile_cnf(cnf_from_clauses(clauses, wanted), compiler, options)
    elif compiler == "sdd":
        from derivable.circuit.compilation.compile_sdd import compile_sdd

        circuit = compile_sdd(to_nnf(formula), wanted, **options)
    else:
        extended = definitions(to_nnf(formula), wanted)
        circuit = without_definitions(_compile_cnf(extended, compiler, options), wanted)
    return described(circuit, weights=pair, names=names)


def definitions(graph: AndOrGraph, num_variables: int) -> Cnf:
    """A CNF of a graph as `to_nnf` gives it, with a further variable equivalent to each inner node (Tseitin 1968).

    Both directions are written, so every model of the formula extends to exactly one model of the CNF,
    and leaving the further variables out of a d-DNNF of it (`without_definitions`) keeps it deterministic.
    """
    offsets, children = graph.offsets.tolist(), graph.children.tolist()
    name: list[int] = []
    clauses: list[list[int]] = []
    fresh = num_variables
    last = graph.num_nodes - 1
    for node, (kind, literal) in enumerate(zip(graph.kind.tolist(), graph.literal.tolist())):
        if kind == LITERAL:
            name.append(literal)
            if node == last:
                clauses.append([literal])
            continue
        row = [name[child] for child in children[offsets[node] : offsets[node + 1]]]
        sign = 1 if kind in (AND, TRUE) else -1
        if node == last:
            clauses += [[one] for one in row] if sign > 0 else [row]
            name.append(0)
            continue
        fresh += 1
        name.append(fresh)
        # and: fresh -> each, all -> fresh; or: the same with every sign turned
        clauses += [[-sign * fresh, sign * one] for one in row]
        clauses.append([sign * fresh, *(-sign * one for one in row)])
    return cnf_from_clauses(clauses, fresh)


def without_definitions(circuit: Circuit, num_variables: int) -> Circuit:
    """Replace the literals of variables beyond `num_variables` by true."""
    if circuit.num_variables == num_variables:
        return circuit
    kind = np.where(np.abs(circuit.literal) > num_variables, TRUE, circuit.kind)
    shorter = circuit_from_arrays(*circuit.with_kinds(kind).arrays, num_variables, origin=circuit.origin)
    return described(shorter, compilation=circuit.compilation)
