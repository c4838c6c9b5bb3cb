"""Facts: those of the program and those passed from Python, as columns of words.

Python facts of a relation may be
    [(0, 1), (1, 2)]                      certain tuples (scalars for unary relations)
    [(0.9, (0, 1)), (0.4, (1, 2))]        (probability, tuple): independent random facts
    {(0, 1): 0.9, (1, 2): 0.4}            the same
    np.array([[0, 1], [1, 2]])            certain tuples, [row, column]; no Python tuple is built
    scipy.sparse.csr_array(...)           a sparse tensor of any library, `dv.tensor.Coordinates`, or a relation of
                                          integers of another run: a tuple of the indices of each entry, with its value
                                          as the tag: an element of the semiring, or a probability
    {"from": [0, 1], "to": [1, 2]}        certain tuples by columns; so are pandas, polars and Arrow frames. Columns are
                                          taken by name where these are the declared ones, else in order; one column
                                          more, `tag` or `probability`, makes them independent random facts
    dv.independent(tuples, probabilities) independent random facts
    dv.categorical(values, probabilities) one choice among the values
    pathlib.Path("edges.csv")             a file, see `derivable.datalog.fact_files`
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

from derivable.core.diagnostics import BindingError, DerivableError, DomainError, ShapeError, TypeMismatchError
from derivable.core.registry import suggestion
from derivable.datalog.inputs import TAG_NAMES, Columns, InputMapping, Texts
from derivable.datalog.moments import FIRST, LAST
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.random_facts import RandomFacts
from derivable.datalog.rules.nodes import Relation, Rules
from derivable.datalog.terms import Entity
from derivable.datalog.values import (
    DATETIME,
    DURATION,
    TENSOR,
    SymbolTable,
    ValueType,
    fits,
    plain_array,
    show_value,
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

    symbols: SymbolTable = field(default_factory=SymbolTable)
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
    store = FactStore(random=random or RandomFacts())
    if ram.constructors:
        from derivable.datalog.entities import EntityStore

        store.symbols.entities = EntityStore(ram.constructors, store.symbols)
    return store


def add_terms(ram: Ram | Rules, store: FactStore) -> None:
    """Enter the terms in the facts so far, and the terms in them, into their constructors' relations."""
    entities = store.symbols.entities
    if entities is None or not entities.size:
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
                from derivable.datalog.fact_files import read_declared

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
            tagged = np.array([tag is not None for tag in facts.tags])
            probabilities = np.array([tag for tag in facts.tags if tag is not None], dtype=np.float64)
            add = store.random.add_choice if facts.exclusive else store.random.add
            variables[tagged] = add(probabilities)
        store.add(facts.relation, columns, variables)


def check_choices(ram: Ram | Rules) -> None:
    """Exclusive facts are one choice for a provenance of probabilities; raises DomainError if they are more."""
    for facts in ram.facts:
        total = sum(tag for tag in facts.tags or () if tag is not None)
        # Probabilities are often written with six digits.
        if facts.exclusive and total > 1 + 1e-5:
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
    Raises BindingError for an unknown relation, TypeMismatchError with row, column and expected type for a bad value.
    """
    for name, rows in facts.items():
        _load(known_relation(ram, name, f"facts for an unknown relation `{name}`", ram.source), rows, store)
    add_terms(ram, store)
    for relation in ram.relations.values():
        if relation.is_input and relation.name not in facts and relation.name not in given:
            known = [n for n, other in ram.relations.items() if not other.is_input and not n.startswith("#")]
            raise BindingError(
                f"unknown relation `{relation.name}`: it has no declaration, no rule and no facts",
                hint=suggestion(relation.name, known, f'pass `facts={{"{relation.name}": [...]}}`, or declare it'),
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
        from derivable.datalog.fact_files import read_facts

        _load(relation, read_facts(given, relation.name, relation.types, relation.column_names), store)
    elif isinstance(given, Columns):
        given = _with_tags(relation, given)
        columns = named_columns(relation, given, store.symbols)
        variables = certain(len(given))
        if given.probabilities is not None:
            variables = store.random.add(given.probabilities, given.has_values)
        store.add(relation.name, columns, variables)
    elif isinstance(given, Mapping):
        rows, tags = list(given.keys()), list(given.values())
        _in_parts(len(rows), store, lambda part: _load_tuples(relation, rows[part], tags[part], store))
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
        _in_parts(len(rows), store, lambda part: _load_rows(relation, rows[part], store))


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


def _load_rows(relation: Relation, rows: list[Any], store: FactStore) -> None:
    columns = _plain_columns(relation, rows)
    if columns is not None:
        words = [_object_words(relation, c, column, store.symbols) for c, column in enumerate(columns)]
        store.add(relation.name, words, certain(len(rows)))
        return
    tags: list[Any] = [None] * len(rows)
    for i, row in enumerate(rows):
        if isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], tuple):
            tags[i], rows[i] = row
    _load_tuples(relation, rows, tags, store)


def _with_tags(relation: Relation, given: Columns) -> Columns:
    """The columns with that of the probabilities, if there is one more than the relation has, apart."""
    names = [str(name) for name in given.names]
    tagged = [i for i, n in enumerate(names) if n in TAG_NAMES and n not in relation.column_names]
    if given.probabilities is not None or len(names) != len(relation.types) + 1 or not tagged:
        return given
    column = given.arrays[tagged[-1]]
    try:
        if isinstance(column, Texts):
            raise TypeError
        probabilities = np.asarray(column, dtype=np.float64)
        bad = np.flatnonzero(~((probabilities >= 0) & (probabilities <= 1)))
    except (TypeError, ValueError):
        raise TypeMismatchError(
            f"facts for `{relation.name}`: the column {names[tagged[-1]]!r} is not one of probabilities"
        ) from None
    if len(bad):
        raise DomainError(
            f"facts for `{relation.name}`, row {bad[0]}: the tag {probabilities[bad[0]]:g} is not a probability",
            hint="tags are numbers in [0, 1]",
        )
    kept = [i for i in range(len(names)) if i != tagged[-1]]
    arrays = tuple(given.arrays[i] for i in kept)
    return Columns(tuple(given.names[i] for i in kept), arrays, probabilities, len(probabilities))


def _plain_columns(relation: Relation, rows: list[Any]) -> list[list[Any]] | None:
    """Columns of certain tuples of the right length; None if some are something else."""
    if len(relation.types) == 1 and {*map(type, rows)} <= _PLAIN:
        return [rows]
    if set(map(type, rows)) != {tuple} or set(map(len, rows)) != {len(relation.types)} or not relation.types:
        return None
    columns = [list(map(itemgetter(c), rows)) for c in range(len(relation.types))]
    return None if len(columns) == 2 and tuple in set(map(type, columns[1])) else columns


def _load_mapping(relation: Relation, given: InputMapping, store: FactStore) -> None:
    if given.probabilities is None:
        raise DomainError(
            f"the facts for `{relation.name}` have no probabilities",
            hint="give them as the second argument: `dv.categorical(values, probabilities)`",
        )
    columns = tuple_columns(relation, list(given.tuples), store.symbols)
    probabilities = np.asarray(given.probabilities, dtype=np.float64)
    add = store.random.add_choice if given.is_exclusive else store.random.add
    store.add(relation.name, columns, add(probabilities))


def _load_tuples(relation: Relation, rows: list[Any], tags: list[Any], store: FactStore) -> None:
    columns = tuple_columns(relation, rows, store.symbols)
    variables = np.full(len(rows), -1, dtype=np.int64)
    random = np.array([tag is not None for tag in tags], dtype=bool)
    if random.any():
        probabilities = []
        for i, tag in enumerate(tags):
            if tag is None:
                continue
            if isinstance(tag, (bool, np.bool_)) or not isinstance(tag, numbers.Real) or not 0.0 <= float(tag) <= 1.0:
                raise DomainError(
                    f"facts for `{relation.name}`, row {i}: the tag {tag!r} is not a probability",
                    hint="tags are numbers in [0, 1]",
                )
            probabilities.append(float(tag))
        variables[random] = store.random.add(np.array(probabilities))
    store.add(relation.name, columns, variables)


def tuple_columns(relation: Relation, rows: Sequence[Any], symbols: SymbolTable) -> list[np.ndarray]:
    """Word columns of Python tuples (scalars for unary relations), every value checked."""
    types = relation.types
    arity = len(types)
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
    if symbols.entities is None:
        raise TypeMismatchError(
            f"facts for `{relation.name}`, column {c}: the program has no data types, so it has no terms",
            hint="declare one: `type Tree = Leaf() | Node(i32, Tree)`",
        )
    try:
        return symbols.entities.intern_all(values, t)
    except DerivableError:
        for i, value in enumerate(values):
            try:
                symbols.entities.intern(value, t)
            except DerivableError as error:
                raise TypeMismatchError(
                    f"facts for `{relation.name}`, row {i}, column {c}: {error.message}", hint=error.hint
                ) from None
        raise


def _bad_value(relation: Relation, row: int, column: int, value: Any, t: ValueType) -> NoReturn:
    shown = show_value(value) if isinstance(value, (str, bool, int, float)) else repr(value)
    hint = None
    if t.is_integer and isinstance(value, int) and not isinstance(value, bool):
        hint = t.range_text()
    elif isinstance(value, str) and relation.is_input:
        hint = f"declare the column types: `type {relation.name}(...)`"
    raise TypeMismatchError(
        f"facts for `{relation.name}`, row {row}, column {column}: expected {t},"
        f" found {shown} ({type(value).__name__})",
        hint=hint,
    )


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
    """Word columns of named columns: by name if they are named as the relation declares, else in order."""
    arrays, names = given.arrays, [str(name) for name in given.names]
    if len(arrays) != len(relation.types):
        raise ShapeError(
            f"facts for `{relation.name}`: {len(arrays)} columns ({', '.join(names)}) for {len(relation.types)}",
            hint=f"select those of `{relation.name}({', '.join(map(str, relation.types))})`, without an index",
        )
    if len(set(names)) == len(names) and set(names) == set(relation.column_names):
        arrays = [arrays[names.index(str(name))] for name in relation.column_names]
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
        raise TypeMismatchError(
            f"facts for `{relation.name}`, column {c}: expected {t}, found an array of dtype {values.dtype}",
            hint=f"convert it: `array.astype(np.{t.dtype})`" if t.is_number else None,
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


def hints_from(facts: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Type families of the columns of facts (`inputs.taken`), for relations that the program does not declare."""
    hints: dict[str, tuple[str, ...]] = {}
    families = {"f": "float", "i": "integer", "u": "integer", "b": "bool", "M": "datetime", "m": "duration"}
    for name, given in facts.items():
        row: Any = None
        if isinstance(given, os.PathLike):
            continue
        if isinstance(given, Columns):
            hints[name] = tuple(
                "text" if isinstance(a, Texts) else families.get(a.dtype.kind) or (_family(a[0]) if len(a) else "any")
                for a in given.arrays
            )
        elif isinstance(given, np.ndarray):
            if given.ndim in (1, 2) and given.dtype.kind in families:
                hints[name] = (families[given.dtype.kind],) * (given.shape[1] if given.ndim == 2 else 1)
            elif given.ndim and len(given):
                row = given[0]
                row = tuple(row.tolist()) if isinstance(row, np.ndarray) else row
        elif isinstance(given, InputMapping):
            row = given.tuples[0] if given.tuples else None
        elif isinstance(given, Mapping):
            row = next(iter(given), None)
        else:
            row = next(iter(given), None)
            if isinstance(row, InputMapping):
                row = row.tuples[0] if row.tuples else None
            if isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], tuple):
                row = row[1]
        if row is not None:
            values = row if isinstance(row, (tuple, list)) else (row,)
            hints[name] = tuple(map(_family, values))
    return hints


def _family(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Entity):
        return "entity"
    for t in (DATETIME, DURATION, TENSOR):
        if fits(value, t):
            return t.family
    if isinstance(value, (float, np.floating)):
        return "float"
    return "integer" if isinstance(value, (int, np.integer)) else "any"
