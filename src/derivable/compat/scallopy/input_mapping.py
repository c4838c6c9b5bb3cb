"""Which fact each element of a tensor is the probability of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.registry import suggestion

if TYPE_CHECKING:
    import torch

_PRIMITIVES = (bool, int, float, str)
_STRATEGIES = ("top", "categorical")


class Counter:
    """Numbers of exclusions, each of which is given once."""

    def __init__(self, start: int = 0):
        self._next = start

    def get_and_increment(self) -> int:
        """The next number."""
        self._next += 1
        return self._next - 1


class InputMapping:
    """The facts of one relation that the elements of a tensor are probabilities of.

    mapping            a list or range of values or tuples, nested for tensors of more dimensions; a dict from each
                       dimension to its values, whose product the facts are; one value or tuple, for tensors without
                       dimensions; None for no mapping
    disjunctive        whether the facts of a sample exclude each other
    disjunctive_dim    the dimension along which they do
    retain_threshold   facts of a smaller probability are left out
    retain_k           how many facts are kept
    sample_dim         the dimension along which so many are kept for each index of the others; None for all together
    sample_strategy    "top" keeps the most probable, "categorical" draws by weight, with replacement
    supports_disjunctions  whether `process_tensor` gives facts with the numbers of their exclusions

    Raises DomainError or ShapeError for a mapping that is empty, ragged, or of tuples of several lengths.
    """

    def __init__(
        self,
        mapping: Any,
        disjunctive: bool = False,
        disjunctive_dim: int | None = None,
        retain_threshold: float | None = None,
        retain_k: int | None = None,
        sample_dim: int | None = None,
        sample_strategy: str = "top",
        supports_disjunctions: bool = False,
    ):
        if isinstance(mapping, InputMapping):
            mapping = mapping.mapping
        self.mapping = mapping
        self.kind, self.shape, self._tuples, self.is_singleton = _read(mapping)
        self.disjunctive, self.retain_threshold, self.retain_k = disjunctive, retain_threshold, retain_k
        self.disjunctive_dim = self._dimension_of(disjunctive_dim, "disjunctive_dim")
        self.sample_dim = self._dimension_of(sample_dim, "sample_dim")
        if sample_strategy not in _STRATEGIES:
            hint = suggestion(sample_strategy, _STRATEGIES, 'it is "top" or "categorical"')
            raise DomainError(f"unknown sample strategy {sample_strategy!r}", hint=hint)
        self.sample_strategy, self.supports_disjunctions = sample_strategy, supports_disjunctions
        # What a forward function keeps of a mapping of which all facts are taken.
        self.whole_pattern: Any = None

    def _dimension_of(self, given: int | None, name: str) -> int | None:
        if given is None:
            return None
        if not isinstance(given, int) or isinstance(given, bool) or not -len(self.shape) <= given < len(self.shape):
            raise DomainError(f"{name} is {given!r}, and the mapping has {len(self.shape)} dimensions")
        return given % len(self.shape)

    @property
    def dimension(self) -> int:
        """The number of dimensions of the tensor of one sample."""
        return len(self.shape)

    @property
    def is_none(self) -> bool:
        """Whether there is no mapping."""
        return self.kind is None

    @property
    def is_whole(self) -> bool:
        """Whether all facts are kept, whatever their probabilities are."""
        return self.retain_k is None and self.retain_threshold is None

    def __len__(self) -> int:
        return len(self._tuples)

    def __repr__(self) -> str:
        return f"InputMapping({self.mapping!r})"

    def __getitem__(self, index: int | tuple[int, ...]) -> tuple:
        """The tuple of an element."""
        place = (index,) if isinstance(index, int) else tuple(index)
        if len(place) != len(self.shape) or not all(-n <= i < n for i, n in zip(place, self.shape)):
            raise IndexError(f"{index!r} is no index of a mapping of shape {self.shape}")
        flat = 0
        for i, n in zip(place, self.shape):
            flat = flat * n + i % n
        return self._tuples[flat]

    def all_tuples(self) -> list[tuple]:
        """The tuples in the order of elements."""
        return list(self._tuples)

    def all_indices(self) -> list[tuple[int, ...]]:
        """The indices in the order of elements."""
        return [] if self.is_none else list(itertools.product(*map(range, self.shape)))

    def set_sample_topk_facts(self, amount: int | None) -> None:
        """Keep so many facts, the most probable ones; None keeps all."""
        self.retain_k, self.sample_strategy = amount, "top"

    def groups(self) -> list[int | None]:
        """[element] the number of the exclusion that a fact is in, from 0 on; None of independent facts."""
        if self.disjunctive:
            return [0] * len(self._tuples)
        if self.disjunctive_dim is None:
            return [None] * len(self._tuples)
        rest = [(*i[: self.disjunctive_dim], *i[self.disjunctive_dim + 1 :]) for i in self.all_indices()]
        numbers = {index: number for number, index in enumerate(dict.fromkeys(rest))}
        return [numbers[index] for index in rest]

    def kept(self, tensor: torch.Tensor) -> list[int]:
        """The places of the elements of a sample's tensor that are kept, in order."""
        import torch

        values = tensor.detach()
        chosen = torch.ones(self.shape, dtype=torch.bool, device=values.device)
        if self.retain_k is not None:
            flat = values.reshape(-1) if self.sample_dim is None else values.movedim(self.sample_dim, -1)
            amount = min(self.retain_k, flat.shape[-1])
            if self.sample_strategy == "top":
                places = flat.topk(amount, -1).indices
            else:
                rows = flat.reshape(-1, flat.shape[-1])
                places = torch.multinomial(rows, self.retain_k, replacement=True)
                places = places.reshape(*flat.shape[:-1], self.retain_k)
            found = torch.zeros_like(flat, dtype=torch.bool).scatter(-1, places, True)
            chosen = found.reshape(self.shape) if self.sample_dim is None else found.movedim(-1, self.sample_dim)
        if self.retain_threshold is not None:
            chosen = chosen & ~(values < self.retain_threshold)
        return chosen.reshape(-1).nonzero().reshape(-1).tolist()

    def samples(self, tensor: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """(tensor [sample, *shape], whether it had a dimension for samples). Raises ShapeError for another shape."""
        if self.is_none:
            raise DomainError("there is no mapping from the elements of a tensor to facts", hint="give a list of facts")
        if tuple(tensor.shape) == self.shape:
            return tensor.unsqueeze(0), False
        if tensor.dim() and tuple(tensor.shape[1:]) == self.shape:
            return tensor, True
        raise ShapeError(
            f"Tensor shape mismatch: expected {self.shape}, found {tuple(tensor.shape)}",
            hint="the tensor of a sample has the shape of the mapping; a dimension for samples comes first",
        )

    def process_tensor(
        self, tensor: torch.Tensor, batched: bool = False, mutual_exclusion_counter: Any = None
    ) -> list[Any]:
        """The facts of a tensor: of one sample, or a list for each sample where it has a dimension for these.

        batched                   whether one sample gives a list of one list too
        mutual_exclusion_counter  what numbers exclusions; None counts from 0

        Raises ShapeError, "Tensor shape mismatch", for a tensor of another shape.
        """
        counter = Counter() if mutual_exclusion_counter is None else mutual_exclusion_counter
        tensors, has_samples = self.samples(tensor)
        found = [self._facts(one, counter) for one in tensors]
        return found if has_samples or batched else found[0]

    def _facts(self, tensor: torch.Tensor, counter: Any) -> list[Any]:
        numbers: dict[int | None, Any] = {None: None}
        groups, values, facts = self.groups(), tensor.reshape(-1), []
        for group in dict.fromkeys(groups):
            if group is not None:
                numbers[group] = counter.get_and_increment()
        for place in self.kept(tensor):
            tag: Any = values[place]
            if self.supports_disjunctions:
                tag = tag, numbers[groups[place]]
            facts.append((tag, self._tuples[place]))
        return facts


def _read(mapping: Any) -> tuple[str | None, tuple[int, ...], list[tuple], bool]:
    """(kind, shape, tuples in the order of elements, whether they are of single values)"""
    if mapping is None:
        return None, (), [], False
    if isinstance(mapping, tuple):
        return "tuple", (), [_checked(mapping)], False
    if isinstance(mapping, _PRIMITIVES):
        return "value", (), [(mapping,)], True
    if isinstance(mapping, Mapping):
        return "dict", *_product(mapping), False
    if isinstance(mapping, (list, range)):
        shape = _shape(mapping)
        leaves = list(_leaves(mapping))
        widths = {len(leaf) if isinstance(leaf, tuple) else None for leaf in leaves}
        if len(widths) > 1:
            raise DomainError(
                "the facts of a mapping have different lengths",
                hint="they are all single values, or all tuples of one length",
            )
        is_singleton = widths == {None}
        return "list", shape, [_checked(leaf if isinstance(leaf, tuple) else (leaf,)) for leaf in leaves], is_singleton
    raise DomainError(
        f"a mapping is not a {type(mapping).__name__}",
        hint="a list, a range, a dict from dimensions to values, a tuple or a value",
    )


def _product(mapping: Mapping[Any, Any]) -> tuple[tuple[int, ...], list[tuple]]:
    if not mapping or set(mapping) != set(range(len(mapping))):
        raise DomainError(
            f"a mapping by dimensions has those from 0 on, not {sorted(map(str, mapping))}",
            hint="as in {0: range(5), 1: [True, False]}",
        )
    values: list[list] = []
    for number in range(len(mapping)):
        one = mapping[number]
        if not isinstance(one, Sequence) or isinstance(one, str) or not len(one):
            raise DomainError(f"dimension {number} of a mapping needs a list of values, not {one!r}")
        values.append(list(_checked(tuple(one))))
    return tuple(map(len, values)), list(itertools.product(*values))


def _shape(nested: Any) -> tuple[int, ...]:
    if not isinstance(nested, (list, range)):
        return ()
    if not len(nested):
        raise DomainError("a mapping has no empty lists", hint="each list has at least one fact")
    shapes = {_shape(one) for one in nested}
    if len(shapes) > 1:
        raise ShapeError(f"a mapping is ragged: its lists have the shapes {sorted(shapes)}")
    return (len(nested), *shapes.pop())


def _leaves(nested: Any) -> Iterator[Any]:
    if isinstance(nested, (list, range)):
        for one in nested:
            yield from _leaves(one)
    else:
        yield nested


def _checked(values: tuple) -> tuple:
    for value in values:
        if not isinstance(value, _PRIMITIVES):
            raise DomainError(
                f"a mapping has the value {value!r}, a {type(value).__name__}", hint="bool, int, float or str"
            )
    return values


Map = InputMapping
