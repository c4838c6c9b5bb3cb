"""Item memories: named vectors, and which of them a vector is like."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from derivable.bridge.torch import is_observed, refuse_capture
from derivable.core import html
from derivable.core.arguments import integer, several
from derivable.core.diagnostics import DerivableError, DomainError, ParseError, ShapeError
from derivable.core.files import atomic_write, checked_path
from derivable.core.locks import OwnLock
from derivable.core.registry import nearest
from derivable.vsa.arguments import check_vectors, described, generator_of
from derivable.vsa.model import Model
from derivable.vsa.models import get
from derivable.vsa.operations import cleanup, random, similarities

_FORMAT = "derivable item memory 1"
# Names that a notebook shows.
_SHOWN_NAMES = 20


@dataclass(frozen=True)
class Matches:
    """The items nearest to queries, the nearest first.

    names      nested lists [*batch, k]
    indices    [*batch, k] int64, numbers of items in the order in which they were added
    similarity [*batch, k] real
    """

    names: Any
    indices: Tensor
    similarity: Tensor


class ItemMemory(nn.Module):
    """Named vectors of a model, as a module: its vectors are a buffer, which moves and is saved with a network.

    shape  of one vector, such as (4, 256) for block codes
    model  a name or a record
    dtype, device, distribution, generator  of vectors that are made for names without one

    Threads may share a memory: one at a time adds and removes items, the others wait.

    >>> colours = ItemMemory((4, 64), generator=0).add("red").add("green")
    >>> colours.nearest(colours["green"]).names
    ['green']
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        model: str | Model = "block",
        distribution: str | None = None,
        generator: torch.Generator | int | None = None,
        dtype: torch.dtype | None = None,
        device: Any = None,
    ):
        super().__init__()
        self.model = get(model)
        self.distribution = distribution
        self.generator = generator_of(generator, device)
        shape = tuple(several(shape, "shape", "(4, 64)", "the sizes of one vector"))
        # Nothing is drawn for no items: this checks the arguments.
        none = random(0, *shape, distribution=distribution, dtype=dtype, device=device, model=self.model)
        if none.dim() != self.model.rank + 1:
            raise ShapeError(
                f"one vector of the model {self.model.name!r} is [{', '.join(self.model.axes)}], not {list(shape)}"
            )
        self.register_buffer("_kept", none)
        self._added: list[Tensor] = []
        self._numbers: dict[Hashable, int] = {}
        self._lock = OwnLock()

    def _repr_html_(self) -> str:
        """The model, and the first names, for notebooks."""
        names = self.names
        rows = [(number, repr(name)) for number, name in enumerate(names[:_SHOWN_NAMES])]
        rest = len(names) - len(rows)
        more = f"<div>… {rest:,} more {'item' if rest == 1 else 'items'}</div>" if rest else ""
        shape = list(self._kept.shape[1:])
        title = f"<b>ItemMemory</b>, model {self.model.name}, {len(names):,} vectors {shape}"
        return f"<div>{title}</div>{html.table(('', 'name'), rows)}{more}"

    @property
    def names(self) -> list:
        """The names, in the order in which they were added."""
        # A copy is made in one step, which no other thread comes between.
        return list(self._numbers)

    @property
    def vectors(self) -> Tensor:
        """All vectors, [item, *vector]."""
        if self._added and is_observed():
            # What is made inside of a transformation or a graph belongs to it.
            return torch.cat((self._kept, *self._added))
        if self._added:
            with self._lock:
                self._join()
        return self._kept

    def _join(self) -> None:
        # One by one they would be copied again for every item that is added.
        self._kept = torch.cat((self._kept, *self._added))
        self._added = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator:
        return iter(self._numbers)

    def add(self, name: Hashable, vector: Tensor | None = None) -> ItemMemory:
        """Store a vector [*vector] under a name, a random one if none is given; returns the memory itself.

        Raises DomainError for a name that is there, ShapeError for a vector that does not fit.
        """
        if vector is not None:
            vector = check_vectors(vector, "the vector", self.model).unsqueeze(0)
        return self.add_all([name], vector)

    def add_all(self, names: Iterable[Hashable], stacked: Tensor | None = None) -> ItemMemory:
        """Store vectors [item, *vector] under names, random ones if none are given; returns the memory itself."""
        with self._lock:
            return self._store(list(names), stacked)

    def _store(self, names: list[Hashable], stacked: Tensor | None) -> ItemMemory:
        new: set[Hashable] = set()
        for name in names:
            if not isinstance(name, (str, int)) or isinstance(name, bool):
                raise DomainError(f"the name {name!r} is neither a text nor an integer")
            if name in self._numbers or name in new:
                raise DomainError(f"the name {name!r} is taken", hint="`remove` forgets an item")
            new.add(name)
        shape, kept = self._kept.shape[1:], self._kept
        if stacked is None:
            stacked = random(
                len(names),
                *shape,
                distribution=self.distribution,
                generator=self.generator,
                dtype=kept.dtype,
                device=kept.device,
                model=self.model,
            )
        else:
            check_vectors(stacked, "the vectors", self.model, items=1)
            if stacked.shape != (len(names), *shape):
                raise ShapeError(
                    f"names [item={len(names)}] and vectors {described(stacked, self.model, 1)} for a memory of "
                    f"vectors {self._of_vectors()}"
                )
        self._added.append(stacked.detach().to(kept))
        for name in names:
            self._numbers[name] = len(self._numbers)
        return self

    def remove(self, name: Hashable) -> None:
        """Forget an item. Raises DomainError for a name that is not there."""
        with self._lock:
            number = self._number(name)
            keep = torch.arange(len(self), device=self._kept.device) != number
            self._kept = self.vectors[keep]
            self._numbers = {other: k for k, other in enumerate(other for other in self._numbers if other != name)}

    def __getitem__(self, names: Hashable | list) -> Tensor:
        """The vector [*vector] of a name, or those [item, *vector] of a list of names."""
        if isinstance(names, list):
            numbers = [self._number(name) for name in names]
            return self.vectors[torch.tensor(numbers, dtype=torch.int64, device=self._kept.device)]
        return self.vectors[self._number(names)]

    def similarities(self, queries: Tensor) -> Tensor:
        """[*batch, *vector] -> [*batch, item]: how alike each query is to each item."""
        return similarities(queries, self.vectors, model=self.model)

    def nearest(self, queries: Tensor, k: int = 1) -> Matches:
        """The `k` items most like each query [*batch, *vector]; of equally near ones any.

        Raises DomainError if there are fewer items.
        """
        refuse_capture("`nearest`, which gives names,")
        k = integer(k, "k", 1)
        with self._lock:
            vectors, names = self.vectors, self.names
        if k > len(names):
            raise DomainError(f"the memory has {len(names)} items, fewer than k = {k}", hint="add items, or lower k")
        found, indices = similarities(queries, vectors, model=self.model).topk(k, -1)

        def named(part: Any) -> Any:
            return [named(inner) for inner in part] if isinstance(part, list) else names[part]

        return Matches(named(indices.tolist()), indices, found)

    def forward(self, queries: Tensor, temperature: float | None = None) -> Tensor:
        """Cleanup: the nearest item of each query [*batch, *vector], or at a temperature the soft choice of all.

        The soft choice has gradients, and goes over to the nearest item as the temperature goes to zero.
        Raises DomainError for an empty memory.
        """
        if not len(self):
            raise DomainError("the memory has no items", hint="`add` puts them in")
        return cleanup(queries, self.vectors, temperature=temperature, model=self.model)

    def save(self, path: str | os.PathLike) -> None:
        """Write names and vectors to a file, whole or not at all. Raises DerivableError if it cannot be written."""
        content = {"format": _FORMAT, "model": self.model.name, "names": self.names, "vectors": self.vectors.cpu()}
        with atomic_write(path, "wb") as file:
            torch.save(content, file)

    @classmethod
    def load(cls, path: str | os.PathLike, *, model: str | Model | None = None, device: Any = None) -> ItemMemory:
        """The memory that `save` wrote. Nothing in the file is executed.

        model  a record, where its name is not registered; None for the registered one
        Raises ParseError for a file that is missing, damaged or of another kind.
        """
        place = checked_path(path)
        try:
            # torch does not look at the checksums.
            with zipfile.ZipFile(place) as archive:
                changed = archive.testzip()
            content = torch.load(place, map_location=device, weights_only=True)
        except OSError as error:
            raise ParseError(
                f"cannot read the file: {error.strerror or error}", source=str(place), hint="check the path"
            ) from None
        except Exception:
            content = changed = None  # The unpickler has errors of many types for what is no such file.
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ParseError("this is no item memory", source=str(place), hint="`ItemMemory.save` writes them")
        if changed is not None:
            hint = "save it again"
            raise ParseError(
                f"the item memory is damaged: `{changed}` has another checksum", source=str(place), hint=hint
            )
        names, vectors, saved = (content.get(key) for key in ("names", "vectors", "model"))
        if not isinstance(names, list) or not isinstance(vectors, Tensor) or not isinstance(saved, str):
            raise ParseError(
                "the item memory is damaged: its names are no list, its vectors no tensor, or its model no name",
                source=str(place),
                hint="save it again",
            )
        record = get(model or saved)
        try:
            memory = cls(vectors.shape[1:], model=record, dtype=vectors.dtype, device=device)
            return memory.add_all(names, vectors)
        except (DerivableError, TypeError, IndexError, RuntimeError) as error:
            reason = error.message if isinstance(error, DerivableError) else str(error)
            hint = error.hint if isinstance(error, DerivableError) else "save it again"
            raise ParseError(f"the item memory is damaged: {reason}", source=str(place), hint=hint) from None

    def get_extra_state(self) -> dict[str, Any]:
        return {"names": self.names}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._numbers = {name: k for k, name in enumerate(state["names"])}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        _ = self.vectors  # what was added last is part of it
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        found = state_dict.get(f"{prefix}_kept")
        if isinstance(found, Tensor) and found.shape[1:] == self._kept.shape[1:]:
            self._added = []
            self._kept = self._kept.new_empty(found.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        _ = self.vectors
        return super()._apply(fn, recurse)

    def extra_repr(self) -> str:
        return f"{len(self)} items {self._of_vectors()}, model={self.model.name!r}"

    def _of_vectors(self) -> str:
        return described(self._kept.new_empty(self._kept.shape[1:]), self.model)

    def _number(self, name: Hashable) -> int:
        if name not in self._numbers:
            close = nearest(name, map(str, self._numbers))
            raise DomainError(
                f"there is no item {name!r} among {len(self)}", hint=f"did you mean {close!r}?" if close else None
            )
        return self._numbers[name]
