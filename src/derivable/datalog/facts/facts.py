"""Facts: those of the program and those passed from Python, as columns of words.

Python facts of a relation may be
    [(0, 1), (1, 2)]                      certain tuples (scalars for unary relations)
    [(0.9, (0, 1)), (0.4, (1, 2))]        (tag, tuple): independent random facts. A tag is a probability, or where the
                                          provenance is no probability a value of its carrier: a length, a score
    {(0, 1): 0.9, (1, 2): 0.4}            the same
    np.array([[0, 1], [1, 2]])            certain tuples, [row, column]; no Python tuple is built
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
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np

from derivable.core.diagnostics import BindingError, DerivableError, DomainError, ShapeError, TypeMismatchError, warn
from derivable.core.registry import similar, suggestion
from derivable.datalog.facts.inputs import (
    MISSING_HINT,
    TAG_NAMES,
    Columns,
    InputMapping,
    Texts,
    listed,
    places_by_name,
)
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Facts, Relation, Rules
from derivable.datalog.syntax.terms import parse_term
from derivable.datalog.tables.entities import EntityStore
from derivable.datalog.tags.random_facts import Origin, RandomFacts
from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.datetimes import FIRST, LAST
from derivable.datalog.values.terms import show_value
from derivable.datalog.values.values import (
    SymbolTable,
    ValueType,
    fits,
    plain_array,
    terms_of,
    words_of,
    words_of_numbers,
)
from derivable.device.cpu.memory import contiguous, empty

# Python rows that are loaded at once.
PART = 1 << 16
_CERTAIN = np.int64(-1)
# What stands for a tuple of one value without more ado.
_PLAIN = {int, str, float, bool}


@dataclass
class FactColumns:
    """Facts of one relation: word columns [column][row] and the variable of each fact, -1 if it is certain.

    Columns of a caller's arrays stay what they are: words are then of a smaller integer type, and may have gaps.
    """

    columns: list[list[np.ndarray]] = field(default_factory=list)
    variables: list[np.ndarray] = field(default_factory=list)

    def joined(self, width: int) -> tuple[list[np.ndarray], np.ndarray]:
        """(columns [row] int64, variables) of all facts."""
        columns, variables = self.given(width)
        return [contiguous(column, np.int64) for column in columns], variables

    def given(self, width: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The same, with columns as they are."""
        if not self.variables:
            return [np.empty(0, dtype=np.int64) for _ in range(width)], np.empty(0, dtype=np.int64)
        if len(self.variables) == 1:
            return self.columns[0], self.variables[0]
        columns = [_concatenated([part[c] for part in self.columns]) for c in range(width)]
        if all(part.strides == (0,) for part in self.variables):
            return columns, certain(sum(map(len, self.variables)))
        return columns, np.concatenate(self.variables)


def certain(count: int) -> np.ndarray:
    """The variables [fact] of so many certain facts, all on one word of memory."""
    return np.broadcast_to(_CERTAIN, count)


def _concatenated(parts: list[np.ndarray]) -> np.ndarray:
    whole = empty(sum(map(len, parts)), np.result_type(*parts))
    return np.concatenate(parts, out=whole)


@dataclass
class FactStore:
    """All facts of a run.

    inputs  the variables of each Python fact, in the order given (compile_exact)
    look    who looks at the clock while there are many to load
    """

    symbols: SymbolTable = field(default_factory=lambda: _new_symbols({}))
    random: RandomFacts = field(default_factory=RandomFacts)
    relations: dict[str, FactColumns] = field(default_factory=dict)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    look: Callable[[], Any] | None = None

    def own(self) -> None:
        """Copy what may be arrays of the caller, who may write to them later."""
        for facts in self.relations.values():
            facts.columns = [[_concatenated([column]) for column in part] for part in facts.columns]

    def fork(self) -> FactStore:
        """The same facts; more of them are added to one of the two alone. Texts have the same numbers in both."""
        return FactStore(self.symbols, self.random, dict(self.relations), dict(self.inputs))

    def more(self, others: FactStore) -> dict[str, FactColumns]:
        """The facts of each relation here and there."""
        found = dict(self.relations)
        for name, facts in others.relations.items():
            known = found.get(name, FactColumns())
            found[name] = FactColumns([*known.columns, *facts.columns], [*known.variables, *facts.variables])
        return found

    def add(self, name: str, columns: list[np.ndarray], variables: np.ndarray) -> None:
        store = self.relations.setdefault(name, FactColumns())
        store.columns.append(columns)
        store.variables.append(variables)


def new_store(ram: Ram | Rules, random: RandomFacts | None = None) -> FactStore:
    """No facts yet, for a program."""
    return FactStore(_new_symbols(ram.constructors), random or RandomFacts())


def _new_symbols(constructors: Mapping[str, Constructor]) -> SymbolTable:
    symbols = SymbolTable()
    symbols.entities = EntityStore(constructors, symbols, parse_term)
    return symbols


def add_terms(ram: Ram | Rules, store: FactStore) -> None:
    """Enter the terms in the facts so far, and the terms in them, into their constructors' relations."""
    entities = store.symbols.entities
    if not isinstance(entities, EntityStore) or not entities.size:
        return
    own = {c.relation for c in ram.constructors.values()}
    words = [np.empty(0, np.int64)]
    for name, facts in store.relations.items():
        places = [c for c, t in enumerate(ram.relations[name].types) if t.family == "entity"]
        words += [part[c] for part in facts.columns for c in places if name not in own or c == 0]
    terms = entities.parts(np.concatenate(words))
    for name, constructor in ram.constructors.items():
        columns = entities.rows_of(name, terms)
        if len(columns[0]):
            store.add(constructor.relation, columns, certain(len(columns[0])))


def load_program_facts(ram: Ram | Rules, store: FactStore) -> None:
    """Enter the facts written in the program, and those of the files that `@file` names."""
    for relation in ram.relations.values():
        for attribute in relation.attributes:
            if attribute.name == "file":
                from derivable.datalog.facts.fact_files import read_declared

                columns = read_declared(relation, attribute, ram.source, ram.text)
                try:
                    _load(relation, columns, store)
                except TypeMismatchError as error:
                    # The lines of these values are not known any more.
                    place = {"source": ram.source, "text": ram.text, "span": attribute.span}
                    raise TypeMismatchError(error.message, hint=error.hint, **place) from None
    for facts in ram.facts:
        types = ram.relations[facts.relation].types
        columns = [words_of([row[c] for row in facts.rows], t, store.symbols) for c, t in enumerate(types)]
        variables = np.full(len(facts.rows), -1, dtype=np.int64)
        if facts.tags is not None:
            add = store.random.add_choice if facts.exclusive else store.random.add
            for kind in ("tag", "chance"):
                # A truth value is a probability wherever numbers are none.
                rows = [i for i, t in enumerate(facts.tags) if t is not None and isinstance(t, bool) == (kind != "tag")]
                if rows:
                    tags = np.array([facts.tags[i] for i in rows], dtype=np.float64)
                    variables[rows] = add(tags, kind=kind, origin=_written(ram, facts, rows))
        store.add(facts.relation, columns, variables)


def _written(ram: Ram | Rules, facts: Facts, rows: list[int]) -> Origin:
    """Where the tags of these rows of facts of a program are written."""

    def origin(number: int) -> tuple[str, dict[str, Any]]:
        row = rows[number]
        place = {"source": ram.source, "text": ram.text, "span": facts.places.get(row, facts.span)}
        shown = f"`{facts.relation}({', '.join(map(show_value, facts.rows[row]))})`"
        return "a rule" if facts.relation.startswith("#") else shown, place

    return origin


def _is_rounded(tags: Sequence[float]) -> bool:
    """Whether tags add up to more than one by no more than the rounding of the numbers that are written."""
    digits = max(len(repr(float(tag)).partition(".")[2]) for tag in tags)
    return sum(tags) - 1 <= max(5e-3, min(0.02, len(tags) * 0.5 * 10.0**-digits)) + 1e-9


def check_choices(ram: Ram | Rules) -> None:
    """Exclusive facts are one choice for a provenance of probabilities; raises DomainError if they are more.

    What rounding adds to one is taken away by `RandomFacts`.
    """
    for facts in ram.facts:
        tags = [float(tag) for tag in facts.tags or () if tag is not None]
        total = sum(tags)
        if facts.exclusive and all(0.0 <= tag <= 1.0 for tag in tags) and total > 1 and not _is_rounded(tags):
            raise DomainError(
                f"the probabilities of the {len(facts.rows)} exclusive facts of `{facts.relation}`"
                f" add up to {total:.10g}",
                hint="exclusive facts are one choice: their probabilities add up to at most 1",
                source=ram.source,
                text=ram.text,
                span=facts.span,
            )


def load_python_facts(ram: Ram | Rules, facts: Mapping[str, Any], store: FactStore, given: Iterable[str] = ()) -> None:
    """Enter facts passed from Python, as `inputs.taken` hands them on; see the module's docstring for the forms.

    `given` names the relations whose facts are there already (the inputs of compile_exact).
    A relation that the program only reads, and that nothing gives facts, is empty: a DerivableWarning says so, or
    BindingError where its name is nearly that of another relation. Raises BindingError for facts of an unknown
    relation, TypeMismatchError with row, column and expected type for a bad value.
    """
    for name, rows in facts.items():
        _load(known_relation(ram, name, f"facts for an unknown relation `{name}`", ram.source), rows, store)
    add_terms(ram, store)
    for relation in ram.relations.values():
        if relation.is_input and relation.name not in facts and relation.name not in given:
            _without_facts(ram, relation)


def _without_facts(ram: Ram | Rules, relation: Relation) -> None:
    """Say that a relation has no declaration, no rule and no facts, unless `rel s = {}` says so."""
    name = relation.name
    if relation.is_emptied:
        return
    known = [n for n, other in ram.relations.items() if not other.is_input and not n.startswith("#")]
    close = similar(name, known)
    if close is not None:
        raise BindingError(
            f"unknown relation `{name}`: it has no declaration, no rule and no facts",
            hint=f"did you mean `{close}`? If not, declare `type {name}(...)`",
            source=ram.source,
            text=ram.text,
            span=relation.span,
        )
    warn(
        f"`{name}` is empty: it has no declaration, no rule and no facts",
        hint=f'pass `facts={{"{name}": [...]}}` (on the command line `--facts DIR`, with DIR/{name}.csv), or write '
        f"`rel {name} = {{}}` if it is to be empty",
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


def _load(relation: Relation, given: Any, store: FactStore) -> None:
    if isinstance(given, InputMapping):
        _load_mapping(relation, given, store)
    elif isinstance(given, np.ndarray):
        columns, count = array_columns(relation, given, store.symbols)
        store.add(relation.name, columns, certain(count))
    elif isinstance(given, os.PathLike):
        from derivable.datalog.facts.fact_files import FactFile, FileForm, read_facts

        form = given.form if isinstance(given, FactFile) else FileForm()
        _load(relation, read_facts(given, relation.name, relation.types, relation.column_names, form), store)
    elif isinstance(given, Columns):
        given = _with_tags(relation, given)
        columns = named_columns(relation, given, store.symbols)
        variables = certain(len(given))
        if given.probabilities is not None:
            kind = "value" if given.has_values else "tag"
            variables = store.random.add(given.probabilities, kind, _given(relation, given.place))
        store.add(relation.name, columns, variables)
    elif isinstance(given, Mapping):
        rows, tags = list(given.keys()), list(given.values())
        _in_parts(len(rows), store, lambda part: _load_tuples(relation, rows[part], tags[part], store, part.start))
    else:
        rows = list(given)
        if any(isinstance(row, InputMapping) for row in rows):
            for i, row in enumerate(rows):
                if not isinstance(row, InputMapping):
                    raise TypeMismatchError(
                        f"facts for `{relation.name}`: element {i} is not an `independent` or `categorical` object"
                    )
                _load_mapping(relation, row, store)
            return
        _in_parts(len(rows), store, lambda part: _load_rows(relation, rows[part], store, part.start))


def _given(relation: Relation, place: Callable[[int], dict[str, Any]] | None = None, first: int = 0) -> Origin:
    """Where the tags of facts from Python or a file are: the row, from `first` on, or a place in a file."""

    def origin(number: int) -> tuple[str, dict[str, Any]]:
        if place is not None:
            return f"a fact of `{relation.name}`", place(number)
        return f"row {first + number} of the facts for `{relation.name}`", {}

    return origin


def _in_parts(count: int, store: FactStore, load: Callable[[slice], None]) -> None:
    """Load so many rows some at a time; between them there is time to look at the clock."""
    for start in range(0, max(count, 1), PART):
        try:
            load(slice(start, start + PART))
        except DerivableError:
            if start:
                # All rows before, so that the error counts them.
                load(slice(0, start + PART))
            raise
        if store.look is not None:
            store.look()


def _load_rows(relation: Relation, rows: list[Any], store: FactStore, first: int = 0) -> None:
    columns = _plain_columns(relation, rows)
    if columns is not None:
        words = [_object_words(relation, c, column, store.symbols) for c, column in enumerate(columns)]
        store.add(relation.name, words, certain(len(rows)))
        return
    tags: list[Any] = [None] * len(rows)
    if _are_tuples(rows, 2) and {*map(type, map(itemgetter(1), rows))} == {tuple}:
        tags, rows = list(map(itemgetter(0), rows)), list(map(itemgetter(1), rows))
    else:
        for i, row in enumerate(rows):
            if isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], tuple):
                tags[i], rows[i] = row
    _load_tuples(relation, rows, tags, store, first)


def _with_tags(relation: Relation, given: Columns) -> Columns:
    """The columns with that of the tags, if there is one more than the relation has, apart."""
    names = [str(name) for name in given.names]
    tagged = [i for i, n in enumerate(names) if n in TAG_NAMES and n not in relation.column_names]
    if given.probabilities is not None or len(names) != len(relation.types) + 1 or not tagged:
        return given
    column = given.arrays[tagged[-1]]
    try:
        if isinstance(column, Texts):
            raise TypeError
        tags = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeMismatchError(
            f"facts for `{relation.name}`: the column {names[tagged[-1]]!r} is not one of numbers"
        ) from None
    if len(bad := np.flatnonzero(np.isnan(tags))):
        raise DomainError(
            f"facts for `{relation.name}`, row {bad[0]}: the tag is missing",
            hint="a tag is a number; drop such rows first",
        )
    kept = [i for i in range(len(names)) if i != tagged[-1]]
    arrays = tuple(given.arrays[i] for i in kept)
    return Columns(tuple(given.names[i] for i in kept), arrays, tags, len(tags))


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


def _load_mapping(relation: Relation, given: InputMapping, store: FactStore) -> None:
    if given.probabilities is None:
        raise DomainError(
            f"the facts for `{relation.name}` have no probabilities",
            hint="give them as the second argument: `dv.categorical(values, probabilities)`",
        )
    columns = tuple_columns(relation, list(given.tuples), store.symbols)
    probabilities = np.asarray(given.probabilities, dtype=np.float64)
    add = store.random.add_choice if given.is_exclusive else store.random.add
    store.add(relation.name, columns, add(probabilities, kind="tag", origin=_given(relation)))


def _load_tuples(relation: Relation, rows: list[Any], tags: list[Any], store: FactStore, first: int = 0) -> None:
    columns, origin = tuple_columns(relation, rows, store.symbols), _given(relation, first=first)
    if {*map(type, tags)} <= {int, float} and not np.isnan(values := np.array(tags, np.float64)).any():
        store.add(relation.name, columns, store.random.add(values, "tag", origin))
        return
    variables = np.full(len(rows), -1, dtype=np.int64)
    random = [i for i, tag in enumerate(tags) if tag is not None]
    if random:
        for i in random:
            tag = tags[i]
            if isinstance(tag, (bool, np.bool_)) or not isinstance(tag, numbers.Real) or tag != tag:
                raise DomainError(
                    f"facts for `{relation.name}`, row {first + i}: the tag {tag!r} is not a number",
                    hint="a tag is a probability in [0, 1], or a value of the semiring that the program runs in",
                )
        values = np.array([float(tags[i]) for i in random])
        variables[random] = store.random.add(values, "tag", lambda number: origin(random[number]))
    store.add(relation.name, columns, variables)


def tuple_columns(relation: Relation, rows: Sequence[Any], symbols: SymbolTable) -> list[np.ndarray]:
    """Word columns of Python tuples (scalars for unary relations), every value checked."""
    types = relation.types
    arity = len(types)
    if _are_tuples(rows, arity):
        return [_object_words(relation, c, list(map(itemgetter(c), rows)), symbols) for c in range(arity)]
    tuples = [row if isinstance(row, tuple) else (tuple(row) if isinstance(row, list) else (row,)) for row in rows]
    for i, row in enumerate(tuples):
        if len(row) != arity:
            raise TypeMismatchError(
                f"facts for `{relation.name}`, row {i}: {len(row)} value{'s' if len(row) != 1 else ''}"
                f" for {arity} column{'s' if arity != 1 else ''}",
                hint=f"`{relation.name}` has the columns ({', '.join(map(str, types))})",
            )
    return [_object_words(relation, c, [row[c] for row in tuples], symbols) for c in range(arity)]


def _object_words(relation: Relation, c: int, values: Sequence[Any], symbols: SymbolTable) -> np.ndarray:
    """Words [row] of Python values in column `c`, every one checked."""
    t = relation.types[c]
    array = plain_array(values, t)
    if array is not None:
        return _array_words(relation, c, array, symbols)
    if t.family == "text" and {*map(type, values)} == {str}:
        return symbols.intern_all(values)
    for i, value in enumerate(values):
        if not fits(value, t):
            _bad_value(relation, i, c, value, t)
    if t.family == "entity":
        return _terms(relation, c, values, symbols)
    return words_of(values, t, symbols)


def _terms(relation: Relation, c: int, values: Sequence[Any], symbols: SymbolTable) -> np.ndarray:
    """Words [row] of terms in column `c`, or texts of terms."""
    t = relation.types[c]
    terms = terms_of(symbols)
    if not terms.constructors:
        raise TypeMismatchError(
            f"facts for `{relation.name}`, column {c}: the program has no data types, so it has no terms",
            hint="declare one: `type Tree = Leaf() | Node(i32, Tree)`",
        )
    try:
        return terms.intern_all(values, t)
    except DerivableError:
        for i, value in enumerate(values):
            try:
                terms.intern(value, t)
            except DerivableError as error:
                raise TypeMismatchError(
                    f"facts for `{relation.name}`, row {i}, column {c}: {error.message}", hint=error.hint
                ) from None
        raise


def _is_missing(value: Any) -> bool:
    # NaN and NaT alone are unlike themselves; pandas' NA is not even that.
    return value is None or type(value).__name__ == "NAType" or bool(np.all(value != value))


def _column(relation: Relation, c: int) -> str:
    """A column for messages, with its name if it has one."""
    name = relation.column_names[c] if relation.column_names else None
    return f"column {c} ({name})" if name else f"column {c}"


def _bad_value(relation: Relation, row: int, column: int, value: Any, t: ValueType) -> NoReturn:
    place = f"facts for `{relation.name}`, row {row}, {_column(relation, column)}"
    if _is_missing(value):
        raise TypeMismatchError(f"{place}: the value is missing ({value})", hint=MISSING_HINT)
    shown = show_value(value) if isinstance(value, (str, bool, int, float)) else repr(value)
    hint = None
    if t.is_integer and isinstance(value, int) and not isinstance(value, bool):
        hint = t.range_text()
    elif isinstance(value, str) and relation.is_input:
        hint = f"declare the column types: `type {relation.name}(...)`"
    elif isinstance(value, str) and t.is_number:
        hint = "convert the texts to numbers first (`pandas.to_numeric(column)`), or declare the column as String"
    raise TypeMismatchError(f"{place}: expected {t}, found {shown} ({type(value).__name__})", hint=hint)


def array_columns(relation: Relation, array: np.ndarray, symbols: SymbolTable) -> tuple[list[np.ndarray], int]:
    """(word columns, rows) of an array [row, column] (or [row] for a unary relation); nothing is built per row."""
    arity = len(relation.types)
    if array.ndim == 1 and arity == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] != arity:
        raise ShapeError(
            f"facts for `{relation.name}`: an array of shape {array.shape} for {arity} columns",
            hint=f"pass an array [row, column] with {arity} columns",
        )
    return [_array_words(relation, c, array[:, c], symbols) for c in range(arity)], len(array)


def named_columns(relation: Relation, given: Columns, symbols: SymbolTable) -> list[np.ndarray]:
    """Word columns of named columns: by name if they are named as the relation declares, else in order.

    Raises ShapeError for another number of columns, and for names that fit the declaration in part.
    """
    arrays, names = given.arrays, [str(name) for name in given.names]
    if len(arrays) != len(relation.types):
        raise ShapeError(
            f"facts for `{relation.name}`: {len(arrays)} column{'s' if len(arrays) != 1 else ''} ({', '.join(names)})"
            f" for {len(relation.types)}",
            hint=f"select those of `{relation.name}({', '.join(map(str, relation.types))})`"
            if len(arrays) > len(relation.types)
            else "give all columns of the relation; `frame.reset_index()` makes the index of a frame a column",
        )
    try:
        places = places_by_name(names, relation.column_names)
    except ValueError:
        raise ShapeError(
            f"facts for `{relation.name}`: the columns are named {listed(names)}, and the declared ones"
            f" {listed(relation.column_names)}",
            hint="rename them to the declared names, or give the values without names, as an array [row, column]",
        ) from None
    if places is not None:
        arrays = [arrays[place] for place in places]
    return [_array_words(relation, c, array, symbols) for c, array in enumerate(arrays)]


def _array_words(relation: Relation, c: int, values: np.ndarray | Texts, symbols: SymbolTable) -> np.ndarray:
    """Words [row] of a column `c` [row]."""
    t = relation.types[c]
    if isinstance(values, Texts):
        return _object_words(relation, c, values.texts, symbols)[values.places]
    kind = values.dtype.kind
    if t.family == "datetime" and kind == "M":
        found = values.astype("datetime64[us]").astype(np.int64)
        bad = np.flatnonzero(np.isnat(values) | (found < FIRST) | (found > LAST))
        if len(bad):
            _bad_value(relation, int(bad[0]), c, values[bad[0]], t)
        return np.ascontiguousarray(found)
    if t.family == "duration" and kind == "m":
        distinct, places = np.unique(values, return_inverse=True)
        return _object_words(relation, c, list(distinct), symbols)[places]
    if kind == "O" or t.family in ("text", "char", "entity", "tensor"):
        return _object_words(relation, c, values.astype(object).tolist(), symbols)
    wanted = {"bool": "b", "float": "fiu", "datetime": "M", "duration": "m"}.get(t.family, "iu")
    if kind not in wanted:
        if kind == "f" and np.isnan(values).any():
            # pandas has floats where integers are missing.
            _bad_value(relation, int(np.flatnonzero(np.isnan(values))[0]), c, float("nan"), t)
        raise TypeMismatchError(
            f"facts for `{relation.name}`, {_column(relation, c)}: expected {t}, found an array of dtype"
            f" {values.dtype}",
            hint=_conversion(kind, t),
        )
    if t.is_integer and len(values):
        low, high = t.limits
        all_values = np.iinfo(values.dtype)
        is_checked = low <= all_values.min and all_values.max <= high
        if not is_checked and (int(values.min()) < low or int(values.max()) > high):
            row = int(np.flatnonzero((values < low) | (values > high))[0])
            _bad_value(relation, row, c, int(values[row]), t)
    if t.family == "float":
        bad_rows = np.flatnonzero(np.isnan(values.astype(np.float64)))
        if len(bad_rows):
            _bad_value(relation, int(bad_rows[0]), c, float("nan"), t)
        values = values.astype(np.float32) if t.bits == 32 else values
    if t.is_integer and not t.is_wide and values.dtype.isnative:
        # Rows are packed from where they are.
        return values.view(np.int64) if values.dtype.itemsize == 8 else values
    return np.ascontiguousarray(words_of_numbers(values, t, symbols))


def _conversion(kind: str, t: ValueType) -> str | None:
    """How an array of this kind of dtype becomes one of a type, for a hint."""
    if kind in "Mm":
        return f"declare the column as {'DateTime' if kind == 'M' else 'Duration'}"
    if kind == "f" and t.is_integer:
        return f"declare the column as f64, or convert it: `array.astype(np.{t.dtype})`"
    return f"convert it: `array.astype(np.{t.dtype})`" if t.is_number else None
