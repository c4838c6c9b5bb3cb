"""Facts that are passed from Python. Those of a relation may be
    [(0, 1), (1, 2)]                      certain tuples (scalars for unary relations)
    [(0.9, (0, 1)), (0.4, (1, 2))]        (tag, tuple): independent random facts. A tag is a probability, or where the
                                          provenance is no probability a value of its carrier: a length, a score
    {(0, 1): 0.9, (1, 2): 0.4}            the same
    np.array([[0, 1], [1, 2]])            certain tuples, [row, column]; no Python tuple is built
    torch.tensor([[0, 1], [1, 2]])        the same; where the run is on a device, integers on that device stay there
    scipy.sparse.csr_array(...)           a sparse tensor of any library, `dv.tensor.Coordinates`, or a relation of
                                          integers of another run: a tuple of the indices of each entry, with its value
                                          as the tag: an element of the semiring, or a probability
    {"from": [0, 1], "to": [1, 2]}        certain tuples by columns; so are pandas, polars and Arrow frames. Columns are
                                          taken by name where these are the declared ones, in order where none is, and
                                          refused where some are; one column more, `tag` or `probability`, makes them
                                          independent random facts
    dv.independent(tuples, probabilities) independent random facts
    dv.categorical(values, probabilities) one choice among the values
    pathlib.Path("edges.csv")             a file, see `derivable.datalog.facts.fact_files`;
                                          `dv.datalog.FactFile("edges.csv", header=True)` says more about its form
or an iterable of tuples, gone through once, or of such `independent` and `categorical` objects. A pair (number, tuple)
is never ambiguous, because no column holds a tuple.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from derivable.core.arrays import as_floats
from derivable.core.diagnostics import BindingError, DerivableError, DomainError, ShapeError, TypeMismatchError, warn
from derivable.core.registry import is_one_letter_off, similar, suggestion
from derivable.datalog.facts.column_names import TAG_NAMES, listed, positions_by_name
from derivable.datalog.facts.inputs import Columns, Elsewhere, InputMapping, Texts
from derivable.datalog.facts.store import FactStore, add_terms
from derivable.datalog.facts.words import checked_words
from derivable.datalog.foreign.other_names import written_here
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Relation, Rules
from derivable.datalog.tags.random_facts import Origin
from derivable.datalog.values.symbols import SymbolTable

# What stands for a tuple of one value without more ado.
_PLAIN = {int, str, float, bool}


def load_python_facts(ram: Ram | Rules, facts: Mapping[str, Any], store: FactStore, loaded: Iterable[str] = ()) -> None:
    """Add facts passed from Python, as `inputs.taken` hands them on; see the module's docstring for the forms.

    `loaded` names the relations whose facts are there already (the inputs of compile_exact).
    A relation that the program only reads, and that nothing gives facts, is empty: a DerivableWarning says so, or
    BindingError where its name is that of another relation but for a letter. Raises BindingError for facts of an
    unknown relation, TypeMismatchError with row, column and expected type for a bad value.
    """
    for name, rows in facts.items():
        load_relation(known_relation(ram, name, f"facts for an unknown relation `{name}`", ram.source), rows, store)
    if ram.constructors:
        add_terms(ram, store)
    for relation in ram.relations.values():
        if relation.is_input and relation.name not in facts and relation.name not in loaded:
            _without_facts(ram, relation)


def _without_facts(ram: Ram | Rules, relation: Relation) -> None:
    """Say that a relation has no declaration, no rule and no facts, unless `rel s = {}` says so."""
    name = relation.name
    if relation.is_emptied:
        return
    known = [n for n, other in ram.relations.items() if not other.is_input and not n.startswith("#")]
    close = similar(name, known)
    if close is not None and is_one_letter_off(name, close):
        raise BindingError(
            f"unknown relation `{name}`: it has no declaration, no rule and no facts",
            hint=f"did you mean `{close}`? If not, declare `type {name}(...)`",
            source=ram.source,
            text=ram.text,
            span=relation.span,
        )
    here = written_here(name, [])
    meant = f"{here}; or " if here else "" if close is None else f"did you mean `{close}`? If not, "
    warn(
        f"`{name}` is empty: it has no declaration, no rule and no facts",
        hint=f'{meant}pass `facts={{"{name}": [...]}}` (on the command line `--facts DIR`, with DIR/{name}.csv), or '
        f"write `rel {name} = {{}}` if it is to be empty",
        source=ram.source,
        text=ram.text,
        span=relation.span,
    )


def known_relation(ram: Ram | Rules, name: str, message: str, source: str | None = None) -> Relation:
    """The relation of that name. Raises BindingError with this message if the program has none that users know."""
    if name not in ram.relations or name.startswith("#"):
        known = [n for n in ram.relations if not n.startswith("#")]
        hint = suggestion(name, known, f"the relations are {', '.join(known)}")
        raise BindingError(message, hint=hint, source=source)
    return ram.relations[name]


def load_relation(relation: Relation, facts: Any, store: FactStore) -> None:
    """Add facts of one relation, in one of the forms of `inputs.taken`."""
    if isinstance(facts, InputMapping):
        _load_mapping(relation, facts, store)
    elif isinstance(facts, np.ndarray):
        store.add(relation.name, array_columns(relation, facts, store.symbols), count=len(facts))
    elif isinstance(facts, Elsewhere):
        columns = _columns_elsewhere(relation, facts.tensor)
        if columns is None or (store.random.carrier is not None and store.random.carrier.numbers_all):
            load_relation(relation, facts.on_host(), store)
        else:
            store.elsewhere.setdefault(relation.name, []).append(columns)
    elif isinstance(facts, os.PathLike):
        from derivable.datalog.facts.fact_files import read_facts
        from derivable.datalog.facts.file_forms import AS_IT_IS, FactFile

        form = facts.form if isinstance(facts, FactFile) else AS_IT_IS
        target = relation.name, relation.types, relation.column_names, form
        load_relation(relation, read_facts(facts, *target, store.look), store)
    elif isinstance(facts, Columns):
        facts, origin = _with_tags(relation, facts), _origin(relation, facts.location)
        columns = named_columns(relation, facts, store.symbols)
        variables = None
        if facts.probabilities is not None:
            kind = "value" if facts.has_values else "tag"
            variables = store.random.add(facts.probabilities, kind, origin)
        store.add(relation.name, columns, variables, facts.count)
    elif isinstance(facts, Mapping):
        rows, tags = list(facts.keys()), list(facts.values())
        _in_parts(len(rows), store, lambda part: _load_tuples(relation, rows[part], tags[part], store, part.start))
    else:
        rows = list(facts)
        if any(issubclass(kind, InputMapping) for kind in {*map(type, rows)}):
            for i, row in enumerate(rows):
                if not isinstance(row, InputMapping):
                    raise TypeMismatchError(
                        f"facts for `{relation.name}`: element {i} is not an `independent` or `categorical` object"
                    )
                _load_mapping(relation, row, store)
            return
        _in_parts(len(rows), store, lambda part: _load_rows(relation, rows[part], store, part.start))


def _origin(relation: Relation, location: Callable[[int], dict[str, Any]] | None = None, first: int = 0) -> Origin:
    """Where the tags of facts from Python or a file are: the row, from `first` on, or the location in a file."""

    def origin(number: int) -> tuple[str, dict[str, Any]]:
        if location is not None:
            return f"a fact of `{relation.name}`", location(number)
        return f"row {first + number} of the facts for `{relation.name}`", {}

    return origin


def _in_parts(count: int, store: FactStore, load: Callable[[slice], None]) -> None:
    """Load so many rows some at a time; between them the limits of the run are checked."""
    step = policy().chunk
    for start in range(0, max(count, 1), step):
        if start and store.look is not None:
            store.look()
        try:
            load(slice(start, start + step))
        except DerivableError:
            if start:
                # All rows before, so that the error counts them.
                load(slice(0, start + step))
            raise


def _load_rows(relation: Relation, rows: list[Any], store: FactStore, first: int = 0) -> None:
    columns = _plain_columns(relation, rows)
    if columns is not None:
        store.add(relation.name, checked_words(relation, columns, store.symbols))
        return
    tags: list[Any] = [None] * len(rows)
    if _are_tuples(rows, 2) and {*map(type, map(itemgetter(1), rows))} == {tuple}:
        tags, rows = list(map(itemgetter(0), rows)), list(map(itemgetter(1), rows))
    else:
        for i, row in enumerate(rows):
            if isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], tuple):
                tags[i], rows[i] = row
    _load_tuples(relation, rows, tags, store, first)


def _with_tags(relation: Relation, columns: Columns) -> Columns:
    """The columns with that of the tags, if there is one more than the relation has, apart."""
    names = [str(name) for name in columns.names]
    tagged = [i for i, n in enumerate(names) if n in TAG_NAMES and n not in relation.column_names]
    # Beside a column that is called `tag` that of the tags is `tag_1`.
    tagged += [i for i, n in enumerate(names) if n == "tag_1" and "tag" in names and n not in relation.column_names]
    if columns.probabilities is not None or len(names) != len(relation.types) + 1 or not tagged:
        return columns
    column = columns.arrays[tagged[-1]]
    try:
        if isinstance(column, Texts):
            raise TypeError
        tags = as_floats(column, "a tag")
    except (TypeError, ValueError):
        raise TypeMismatchError(
            f"facts for `{relation.name}`: the column {names[tagged[-1]]!r} is not one of numbers"
        ) from None
    if len(bad := np.flatnonzero(np.isnan(tags))):
        raise DomainError(
            f"facts for `{relation.name}`, row {bad[0]}: the tag is missing",
            hint="a tag is a number; drop such rows first",
        )
    others = [i for i in range(len(names)) if i != tagged[-1]]
    arrays = tuple(columns.arrays[i] for i in others)
    return Columns(tuple(columns.names[i] for i in others), arrays, tags, len(tags))


def _plain_columns(relation: Relation, rows: list[Any]) -> list[list[Any]] | None:
    """Columns of certain tuples of the right length; None if some are something else."""
    if len(relation.types) == 1 and {*map(type, rows)} <= _PLAIN:
        return [rows]
    if not relation.types or not _are_tuples(rows, len(relation.types)):
        return None
    columns = [list(map(itemgetter(c), rows)) for c in range(len(relation.types))]
    return None if len(columns) == 2 and tuple in set(map(type, columns[1])) else columns


def _are_tuples(rows: Sequence[Any], width: int) -> bool:
    """Whether all rows, at least one, are tuples of this length."""
    return {*map(type, rows)} == {tuple} and {*map(len, rows)} == {width}


def _load_mapping(relation: Relation, mapping: InputMapping, store: FactStore) -> None:
    if mapping.probabilities is None:
        raise DomainError(
            f"the facts for `{relation.name}` have no probabilities",
            hint="give them as the second argument: `dv.categorical(values, probabilities)`",
        )
    origin = _origin(relation)
    columns = tuple_columns(relation, list(mapping.tuples), store.symbols)
    probabilities = np.asarray(mapping.probabilities, dtype=np.float64)
    add = store.random.add_choice if mapping.is_exclusive else store.random.add
    store.add(relation.name, columns, add(probabilities, kind="tag", origin=origin))


def _load_tuples(relation: Relation, rows: list[Any], tags: list[Any], store: FactStore, first: int = 0) -> None:
    origin, columns = _origin(relation, first=first), tuple_columns(relation, rows, store.symbols)
    carrier = store.random.carrier
    takes_anything = carrier is not None and carrier.takes_anything
    is_plain = not takes_anything and {*map(type, tags)} <= {int, float}
    if is_plain and not np.isnan(values := as_floats(tags, "a tag")).any():
        store.add(relation.name, columns, store.random.add(values, "tag", origin))
        return
    variables = np.full(len(rows), -1, dtype=np.int64)
    random = [i for i, tag in enumerate(tags) if tag is not None]
    if takes_anything:
        variables[random] = store.random.add_objects([tags[i] for i in random])
    elif random:
        for i in random:
            tag = tags[i]
            if isinstance(tag, (bool, np.bool_)) or not isinstance(tag, numbers.Real) or tag != tag:
                raise DomainError(
                    f"facts for `{relation.name}`, row {first + i}: the tag {tag!r} is not a number",
                    hint="a tag is a number of Python or NumPy: `float(tag)`"
                    if hasattr(tag, "__float__")
                    else "a tag is a probability in [0, 1], or a value of the semiring that the program runs in",
                )
        values = as_floats([tags[i] for i in random], "a tag")
        variables[random] = store.random.add(values, "tag", lambda number: origin(random[number]))
    store.add(relation.name, columns, variables if random else None, len(rows))


def tuple_columns(relation: Relation, rows: Sequence[Any], symbols: SymbolTable) -> list[np.ndarray]:
    """Word columns of Python tuples (scalars for unary relations), every value checked."""
    types = relation.types
    arity = len(types)
    if _are_tuples(rows, arity):
        return checked_words(relation, [list(map(itemgetter(c), rows)) for c in range(arity)], symbols)
    tuples = [row if isinstance(row, tuple) else (tuple(row) if isinstance(row, list) else (row,)) for row in rows]
    for i, row in enumerate(tuples):
        if len(row) != arity:
            raise TypeMismatchError(
                f"facts for `{relation.name}`, row {i}: {len(row)} value{'s' if len(row) != 1 else ''}"
                f" for {arity} column{'s' if arity != 1 else ''}",
                hint="an array in a list of facts is one value; many facts are one array [row, column]: "
                "`np.stack(rows)`, or `np.stack(columns, axis=1)`"
                if arity > 1 and getattr(rows[i], "ndim", 0)
                else f"`{relation.name}` has the columns ({', '.join(map(str, types))})",
            )
    return checked_words(relation, [[row[c] for row in tuples] for c in range(arity)], symbols)


def array_columns(relation: Relation, array: np.ndarray, symbols: SymbolTable) -> list[np.ndarray]:
    """Word columns of an array [row, column] (or [row] for a unary relation); nothing is built per row."""
    arity = len(relation.types)
    if array.ndim == 1 and arity == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] != arity:
        raise ShapeError(
            f"facts for `{relation.name}`: an array of shape {array.shape} for {arity} columns",
            hint=f"pass an array [row, column] with {arity} columns",
        )
    return checked_words(relation, [array[:, c] for c in range(arity)], symbols)


def _columns_elsewhere(relation: Relation, tensor: Any) -> list[Any] | None:
    """The columns [row] of a tensor of integers that all fit; None if the host is to look at the facts."""
    types = relation.types
    if not types or any(not t.is_integer or t.bits > 64 for t in types) or tensor.dtype.is_floating_point:
        return None
    table = tensor[:, None] if tensor.ndim == 1 else tensor
    if tensor.dtype.is_complex or str(tensor.dtype) == "torch.bool" or table.shape[1] != len(types):
        return None
    table = table.detach().long()
    if len(table) and any(t.bits < 64 or t.family == "unsigned" for t in types):
        ends = zip(table.amin(0).tolist(), table.amax(0).tolist())
        if any(low < t.limits[0] or high > t.limits[1] for (low, high), t in zip(ends, types)):
            return None
    return list(table.unbind(1))


def named_columns(relation: Relation, columns: Columns, symbols: SymbolTable) -> list[np.ndarray]:
    """Word columns of named columns: by name if they are named as the relation declares, else in order.

    Raises ShapeError for another number of columns, and for names that fit the declaration in part.
    """
    arrays, names = columns.arrays, [str(name) for name in columns.names]
    if len(arrays) != len(relation.types):
        raise ShapeError(
            f"facts for `{relation.name}`: {len(arrays)} column{'s' if len(arrays) != 1 else ''} ({', '.join(names)})"
            f" for {len(relation.types)}",
            hint=f"select those of `{relation.name}({', '.join(map(str, relation.types))})`"
            if len(arrays) > len(relation.types)
            else "give all columns of the relation; `frame.reset_index()` makes the index of a frame a column",
        )
    try:
        positions = positions_by_name(names, relation.column_names)
    except ValueError:
        raise ShapeError(
            f"facts for `{relation.name}`: the columns are named {listed(names)}, and the declared ones"
            f" {listed(relation.column_names)}",
            hint="rename them to the declared names, or give the values without names, as an array [row, column]",
        ) from None
    if positions is not None:
        arrays = tuple(map(arrays.__getitem__, positions))
    return checked_words(relation, arrays, symbols)
