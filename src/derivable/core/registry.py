"""Records by name: semirings, operators, aggregates, foreign functions, provenances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from derivable.core.diagnostics import DerivableError, DomainError

Record = TypeVar("Record")


def nearest(name: object, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known name that is most like `name`, None if none is alike enough: 1 is equal, 0 nothing in common."""
    import difflib

    close = difflib.get_close_matches(str(name), list(known), 1, least)
    return close[0] if close else None


def similar(name: object, known: Iterable[str]) -> str | None:
    """The known name that a name in a program may be a misspelling of, or None."""
    # Names in programs are short, and many are alike by chance.
    return nearest(name, known, 0.7)


def is_one_letter_off(name: str, other: str) -> bool:
    """Whether one letter is missing, too many or another one, or two neighbours are swapped; digits are no letters."""
    start = next((i for i, (a, b) in enumerate(zip(name, other)) if a != b), min(len(name), len(other)))
    left, right = name[start:], other[start:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    is_short = max(len(left), len(right)) == 1 or (len(left) == 2 and left == right[::-1])
    return is_short and (left + right).isalpha()


def suggestion(name: object, known: Iterable[str], otherwise: str, mark: str = "") -> str:
    """The hint for an unknown name in a program: the nearest known one after its mark, or what else helps."""
    close = similar(name, known)
    return f"did you mean `{mark}{close}`?" if close else otherwise


def one_letter_off(name: object, known: Iterable[str]) -> str | None:
    """The known name from which one letter tells `name`, which is another one, missing, too many or exchanged, or case:
    for names that are alike and mean different things. None if there is none."""
    given = str(name).lower()

    def without_one(text: str) -> set[str]:
        return {text[:i] + text[i + 1 :] for i in range(len(text))}

    def is_near(other: str) -> bool:
        if given == other:
            return True
        if len(given) == len(other):
            differ = [i for i, (a, b) in enumerate(zip(given, other)) if a != b]
            swapped = len(differ) == 2 and [given[i] for i in differ] == [other[i] for i in reversed(differ)]
            return len(differ) == 1 or swapped
        return given in without_one(other) or other in without_one(given)

    # One letter is much of a short name.
    return next((other for other in known if min(len(given), len(other)) > 3 and is_near(other.lower())), None)


class Registry(Generic[Record]):
    """A table of records, each under its name and perhaps under other names.

    >>> sizes = Registry("size", {"small": 1, "large": 9}, {"big": "large"})
    >>> sizes["big"], sizes.names(), "huge" in sizes
    (9, ('large', 'small'), False)

    what     what a record is, for messages: "there is no semiring 'reel'"
    aliases  other name -> name, here or in the parent
    parent   the registry to ask for names that are not found here
    more     how to add one, for messages
    error    what an unknown name raises
    close    (name, known names) -> the one that may be meant, or None
    """

    def __init__(
        self,
        what: str,
        records: Mapping[str, Record] | None = None,
        aliases: Mapping[str, str] | None = None,
        *,
        parent: Registry | None = None,
        more: str = "",
        error: type[DerivableError] = DomainError,
        close: Callable[[object, Iterable[str]], str | None] = nearest,
    ):
        self.what, self.more, self.error, self.parent, self.close = what, more, error, parent, close
        self._records: dict[str, Record] = dict(records or {})
        self._aliases = dict(aliases or {})

    def __getitem__(self, name: object) -> Record:
        """Raises `error` for an unknown name, with the nearest known one."""
        own = self._aliases.get(name, name) if isinstance(name, str) else None
        if own in self._records:
            return self._records[own]
        if self.parent is not None and own in self.parent:
            return self.parent[own]
        close = self.close(name, self.known())
        listed = ", ".join(self.known()) + (f"; {self.more}" if self.more else "")
        raise self.error(
            f"there is no {self.what} {name!r}", hint=f"did you mean {close!r}?" if close else f"known are {listed}"
        )

    def __contains__(self, name: object) -> bool:
        own = self.resolved(name) if isinstance(name, str) else name
        return own in self._records or (self.parent is not None and own in self.parent)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def resolved(self, name: str) -> str:
        """The name that an alias stands for; another name as it is."""
        return self._aliases.get(name, name)

    def names(self) -> tuple[str, ...]:
        """The names without aliases, sorted, those of the parent last."""
        return (*sorted(self._records), *(self.parent.names() if self.parent else ()))

    def aliases(self) -> dict[str, str]:
        return {**self._aliases, **(self.parent.aliases() if self.parent else {})}

    def known(self) -> tuple[str, ...]:
        """Every name that is found: names, then aliases."""
        return (*self.names(), *sorted(self.aliases()))

    def add(self, name: str, record: Record) -> Record:
        """Make a record known; adding an equal one again changes nothing. Raises DomainError if the name is taken."""
        if name in self:
            if self[name] == record:
                return self[name]
            raise DomainError(f"the {self.what} name {name!r} is taken", hint="choose another name")
        self._records[name] = record
        return record

    def remove(self, name: str) -> None:
        """Forget a record. Raises DomainError if the name is not one of this registry's own."""
        if name not in self._records:
            raise DomainError(f"{name!r} is not a {self.what} that was registered here")
        del self._records[name]
