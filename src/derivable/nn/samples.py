"""Facts that differ from sample to sample, in the forms in which a layer takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import torch

from derivable.core.arrays import as_array
from derivable.core.diagnostics import DerivableError, ShapeError, TypeMismatchError
from derivable.core.graph import offsets_of
from derivable.datalog.facts.batch_facts import BatchFacts
from derivable.datalog.facts.inputs import Columns, InputMapping, Texts, Varying, require_order, taken
from derivable.datalog.tables.tag_columns import within
from derivable.datalog.tags.carrier import Carrier
from derivable.nn.values import require_computable, require_distributions, require_factors, require_tags


@dataclass(frozen=True, eq=False)
class Ragged:
    """The facts of all samples of a batch, one sample after the other.

    tuples         a list of tuples, an array [row, column], or a tuple of columns [row]
    probabilities  [row]; None if the facts are certain
    offsets        [sample + 1]: where the rows of each sample begin, from 0 to the number of rows
    groups         [row] integers: facts of a sample with the same number from 0 on exclude each other, and those with
                   -1 are independent
    """

    tuples: Any
    probabilities: torch.Tensor | None
    offsets: Any
    groups: Any = None


@dataclass(frozen=True, eq=False)
class Padded:
    """The facts of a batch with equally many places for each sample.

    tuples         integers or floats [sample, place, column], or [sample, place] for a relation of one column
    probabilities  [sample, place]; None if the facts are certain
    mask           [sample, place] bool: the places where there is a fact
    groups         [sample, place] integers, as in `Ragged`
    """

    tuples: Any
    probabilities: torch.Tensor | None
    mask: Any
    groups: Any = None


@dataclass(frozen=True, eq=False)
class SampleFacts:
    """Facts of one relation for the samples of a batch.

    rows           of all samples, one after the other: a list of tuples, an array [row, column], or columns
    offsets        [sample + 1] int64: where the rows of each sample begin
    probabilities  [row], or tags of the semiring; None if the facts are certain
    groups         [row] int64: facts of a sample with the same number from 0 on exclude each other; None if none do
    is_complete    whether exactly one fact of each group holds, else at most one
    is_shared      whether all samples have the rows, which are listed once, as if there were one sample
    """

    rows: Any
    offsets: np.ndarray
    probabilities: torch.Tensor | None = None
    groups: np.ndarray | None = None
    is_complete: bool = False
    is_shared: bool = False

    @property
    def batch(self) -> int:
        """The number of samples."""
        return len(self.offsets) - 1

    @property
    def facts(self) -> BatchFacts:
        numbers = None if self.probabilities is None else self.probabilities.detach().double().numpy(force=True)
        return BatchFacts(
            self.rows, self.offsets, numbers, self.groups, self.is_complete, self.probabilities, self.is_shared
        )

    @property
    def samples(self) -> np.ndarray:
        """[row] the sample of each row."""
        return np.repeat(np.arange(self.batch), np.diff(self.offsets))

    def only(self, rows: np.ndarray, samples: np.ndarray) -> SampleFacts:
        """Some rows (ascending) of some samples (ascending), which get numbers from 0 on."""
        offsets = offsets_of(np.bincount(self.samples[rows], minlength=self.batch)[samples])
        p, groups = self.probabilities, self.groups
        p = None if p is None else p[torch.from_numpy(rows).to(p.device)]
        groups = None if groups is None else groups[rows]
        return SampleFacts(self.facts.taken(rows), offsets, p, groups, self.is_complete)

    def of_samples(self, samples: np.ndarray) -> SampleFacts:
        """The facts of some samples (ascending), which get numbers from 0 on."""
        return self if self.is_shared else self.only(np.flatnonzero(np.isin(self.samples, samples)), samples)

    def of_each(self, batch: int) -> SampleFacts:
        """Facts of all samples, for each sample by itself."""
        if not self.is_shared:
            return self
        assert isinstance(self.rows, InputMapping)
        assert self.probabilities is not None
        count = len(self.rows)
        groups = None if self.groups is None else np.tile(self.groups, batch)
        numbers = self.probabilities.expand(batch, count).reshape(-1)
        return SampleFacts(self.rows, count * np.arange(batch + 1), numbers, groups, self.is_complete)

    def check(self, name: str, carrier: Carrier) -> None:
        """Raise DomainError for a number that is no tag of the provenance, with its sample and place."""
        if self.probabilities is None:
            return
        try:
            require_tags(name, self.probabilities, carrier)
        except DerivableError:
            for sample, part in enumerate(torch.split(self.probabilities, np.diff(self.offsets).tolist())):
                require_tags(f"sample {sample}: {name}", part, carrier)
            raise


def samples_of(name: str, given: Any) -> SampleFacts:
    """The facts of an input `name`: a list of (tuples, probabilities) or (tuples, probabilities, groups), one a sample;
    `Ragged` or `Padded`. Raises ShapeError and TypeMismatchError, with the sample, for what does not fit."""
    if isinstance(given, SampleFacts):
        return given
    if isinstance(given, Ragged):
        return _ragged(name, given)
    if isinstance(given, Padded):
        return _padded(name, given)
    if isinstance(given, torch.Tensor) or not isinstance(given, Iterable):
        raise TypeMismatchError(
            f"input {name!r} is a {type(given).__name__}, and differs from sample to sample",
            hint="give a list with (tuples, probabilities) for each sample, `dv.nn.Ragged` or `dv.nn.Padded`",
        )
    rows, numbers, groups = [], [], []
    samples = list(given)
    for place, sample in enumerate(samples):
        if not isinstance(sample, tuple) or len(sample) not in (2, 3):
            raise TypeMismatchError(
                f"sample {place} of input {name!r} is {_kind(sample)}",
                hint="a sample is (tuples, probabilities) or (tuples, probabilities, groups)",
            )
        require_order(sample[0], f"sample {place}: the tuples of `{name}` are")
        tuples = _tuples(name, sample[0], f"sample {place}: ")
        count = len(tuples)
        rows.append(tuples)
        numbers.append(_numbers(name, sample[1], count, f"sample {place}: "))
        groups.append(_groups(name, sample[2] if len(sample) == 3 else None, count, f"sample {place}: "))
    sizes = [len(part) for part in rows]
    certain = [place for place, part in enumerate(numbers) if part is None and sizes[place]]
    some = [part for part in numbers if part is not None]
    if certain and any(part is not None and len(part) for part in numbers):
        raise ShapeError(
            f"sample {certain[0]} of input {name!r} has no probabilities, and others have",
            hint="give probabilities of one, or facts that are certain by `certain=`",
        )
    # Those of no facts are part of it too, so that they have a derivative.
    joined = None if certain or not some else torch.cat(_promoted(some))
    if not any(part is not None for part in groups):
        return SampleFacts(_joined(rows), offsets_of(sizes), joined)
    numbered = [np.full(size, -1) if part is None else part for size, part in zip(sizes, groups)]
    return SampleFacts(_joined(rows), offsets_of(sizes), joined, np.concatenate(numbered))


def _promoted(parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in one dtype, for which those without numbers do not count."""
    dtypes = {part.dtype for part in parts if part.numel()} or {parts[0].dtype}
    dtype = reduce(torch.promote_types, dtypes)
    return [part if part.dtype is dtype else part.to(dtype) for part in parts]


def certain_samples(name: str, given: Any) -> SampleFacts:
    """Facts that are certain: a list of the tuples of each sample."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise TypeMismatchError(
            f"the certain facts of `{name}` are {_kind(given)}", hint="give a list with the tuples of each sample"
        )
    rows = [_tuples(name, sample, f"sample {place}: ") for place, sample in enumerate(given)]
    return SampleFacts(_joined(rows), offsets_of([len(part) for part in rows]))


def fixed_samples(name: str, facts: InputMapping, tensor: torch.Tensor, batch: int, carrier: Carrier) -> SampleFacts:
    """The facts of an input that are the same in all samples, with probabilities [sample, fact] or [fact]."""
    count = len(facts)
    if not isinstance(tensor, torch.Tensor) or tensor.shape not in ((count,), (1, count), (batch, count)):
        found = f"has shape {list(tensor.shape)}" if isinstance(tensor, torch.Tensor) else f"is {_kind(tensor)}"
        raise ShapeError(
            f"input {name!r} {found}; {facts!r} needs [{batch}, {count}]",
            hint="one row of probabilities for each sample",
        )
    if facts.has_factors and carrier.has_probabilities:
        require_factors(name, tensor)
    else:
        require_tags(name, tensor, carrier)
    if facts.is_exclusive and carrier.has_probabilities and not facts.has_factors:
        require_distributions(name, tensor, False)
    # Those of one probability in all samples are in no sample's part of the program.
    is_shared = tensor.ndim == 1 or (batch > 1 and len(tensor) == 1)
    given = SampleFacts(facts, np.array([0, count]), tensor.reshape(-1), None, True, is_shared)
    if facts.is_exclusive:
        given = replace(given, groups=np.zeros(tensor.numel(), np.int64))
    return given if is_shared else replace(given, offsets=count * np.arange(batch + 1))


def _on_host(value: Any, what: str) -> np.ndarray:
    """An array, whatever device it is on. Raises as `as_array`, and ShapeError for rows of different lengths."""
    try:
        return as_array(value.detach().cpu() if isinstance(value, torch.Tensor) else value, what)
    except ValueError:
        raise ShapeError(f"{what} has rows of different lengths") from None


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _tuples(name: str, given: Any, where: str = "") -> Any:
    """The tuples of a sample: an array, columns, or a list of tuples."""
    if isinstance(given, (torch.Tensor, np.ndarray)):
        found = _on_host(given, f"{where}the array of tuples of `{name}`")
        if found.ndim:
            return found
        raise TypeMismatchError(
            f"{where}the tuples of `{name}` are one number", hint="give a row for each tuple, an array [n, column]"
        )
    if isinstance(given, tuple) and given and all(hasattr(column, "__array__") for column in given):
        return _columns(where, given)
    if isinstance(given, tuple) and any(isinstance(part, list) or hasattr(part, "__array__") for part in given):
        raise TypeMismatchError(
            f"{where}the tuples of `{name}` are a tuple of {', '.join(type(part).__name__ for part in given[:4])}, "
            "which may be rows or columns",
            hint="for rows give a list of tuples, [(1, 2), (3, 4)]; for columns a tuple of arrays, one a column",
        )
    if isinstance(given, (list, tuple, range)):
        return list(given)
    try:
        found = taken({name: given})[name]
    except DerivableError as error:
        raise type(error)(f"{where}{error.message}", hint=error.hint) from None
    if isinstance(found, Columns):
        return Columns(found.names, tuple(a if isinstance(a, np.ndarray) else _texts(a) for a in found.arrays))
    if isinstance(found, list):
        return found
    raise TypeMismatchError(
        f"{where}the tuples of `{name}` are {_kind(given)}", hint="give a list of tuples, an array or a frame"
    )


def _texts(column: Texts) -> np.ndarray:
    texts = np.array(column.texts if isinstance(column.texts, list) else column.texts.decoded(), object)
    return texts if column.positions is None else texts[column.positions]


def _columns(where: str, given: Sequence[Any]) -> Columns:
    arrays = tuple(_on_host(column, f"{where}column {k} of tuples") for k, column in enumerate(given))
    for number, array in enumerate(arrays):
        if array.ndim != 1 or array.shape != arrays[0].shape:
            raise ShapeError(
                f"{where}column {number} of tuples has shape {list(array.shape)}, and column 0 {list(arrays[0].shape)}",
                hint="columns are arrays of one dimension, equally long",
            )
    return Columns(tuple(range(len(arrays))), arrays)


def _joined(parts: Sequence[Any]) -> Any:
    """The rows of all samples."""
    if parts and all(isinstance(part, Columns) for part in parts) and len({len(p.arrays) for p in parts}) == 1:
        return Columns(parts[0].names, tuple(map(np.concatenate, zip(*(part.arrays for part in parts)))))
    if parts and all(isinstance(part, np.ndarray) for part in parts):
        filled = [part for part in parts if len(part)] or parts[:1]
        if len({part.shape[1:] for part in filled}) == 1 and len({part.dtype.kind for part in filled}) == 1:
            return np.concatenate(filled)
    rows: list[Any] = []
    for part in parts:
        if isinstance(part, Columns):
            rows += zip(*(np.asarray(array).tolist() for array in part.arrays))
        elif isinstance(part, np.ndarray):
            rows += map(tuple, part.tolist()) if part.ndim > 1 else part.tolist()
        else:
            rows += part
    return rows


def _numbers(name: str, given: Any, count: int, where: str = "") -> torch.Tensor | None:
    if given is None:
        return None
    numbers = given if isinstance(given, torch.Tensor) else _as_tensor(name, given, where)
    what = f"{where}the tensor of probabilities of input {name!r}"
    require_computable(numbers, what)
    if numbers.layout is not torch.strided:
        raise ShapeError(f"{what} is sparse", hint="probabilities are dense: `x.to_dense()`")
    if numbers.shape != (count,) or numbers.is_complex():
        raise ShapeError(
            f"{where}input {name!r} has {count} tuple{'s' if count != 1 else ''} and probabilities of shape"
            f" {list(numbers.shape)}{', complex numbers' if numbers.is_complex() else ''}",
            hint="a probability for each tuple, in their order",
        )
    return numbers if numbers.is_floating_point() else numbers.float()


def _as_tensor(name: str, given: Any, where: str) -> torch.Tensor:
    try:
        array = as_array(given, f"{where}the array of probabilities of input {name!r}")
        tensor = torch.as_tensor(np.ascontiguousarray(array))
        # As torch makes it of a list.
        return tensor if hasattr(given, "dtype") or array.dtype.kind != "f" else tensor.to(torch.get_default_dtype())
    except (TypeError, ValueError):
        raise TypeMismatchError(
            f"{where}the probabilities of input {name!r} are {_kind(given)}, and no tensor", hint="give a tensor [n]"
        ) from None


def _groups(name: str, given: Any, count: int, where: str = "") -> np.ndarray | None:
    if given is None:
        return None
    groups = _on_host(given, f"{where}the array of groups of input {name!r}")
    if not groups.size and not count:
        return np.empty(0, np.int64)
    if groups.shape != (count,) or groups.dtype.kind not in "iu":
        raise ShapeError(
            f"{where}input {name!r} has {count} tuple{'s' if count != 1 else ''} and groups of shape"
            f" {list(groups.shape)} and dtype {groups.dtype}",
            hint="an integer for each tuple: facts of one group, from 0 on, exclude each other, and -1 is independent",
        )
    return groups.astype(np.int64)


def _ragged(name: str, given: Ragged) -> SampleFacts:
    rows = _tuples(name, given.tuples)
    count = len(rows)
    offsets = _on_host(given.offsets, f"the array of offsets of input {name!r}")
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        raise ShapeError(
            f"input {name!r} has offsets of shape {list(offsets.shape)} and dtype {offsets.dtype}",
            hint="integers [sample + 1]: where the rows of each sample begin, then their number",
        )
    offsets = offsets.astype(np.int64)
    wrong = np.flatnonzero(np.diff(offsets) < 0)
    if len(wrong):
        sample = int(wrong[0])
        raise ShapeError(
            f"sample {sample}: the offsets of input {name!r} go back from {offsets[sample]} to {offsets[sample + 1]}",
            hint="offsets do not decrease; `torch.cumsum` of the sizes has them",
        )
    if offsets[0] != 0 or offsets[-1] != count:
        raise ShapeError(
            f"the offsets of input {name!r} go from {offsets[0]} to {offsets[-1]}, and there are {count} tuples",
            hint="offsets begin with 0 and end with the number of tuples",
        )
    numbers = _numbers(name, given.probabilities, count)
    return SampleFacts(rows, offsets, numbers, _groups(name, given.groups, count))


def _padded(name: str, given: Padded) -> SampleFacts:
    tuples = _on_host(given.tuples, f"the array of tuples of input {name!r}")
    mask = _on_host(given.mask, f"the mask of input {name!r}")
    if mask.ndim != 2 or mask.dtype != bool or tuples.shape[:2] != mask.shape or tuples.ndim > 3:
        raise ShapeError(
            f"input {name!r} has tuples of shape {list(tuples.shape)} and a mask of shape {list(mask.shape)} and dtype"
            f" {mask.dtype}",
            hint="tuples [sample, place, column] and a mask [sample, place] of bool",
        )
    parts = []
    for what, part in (("probabilities", given.probabilities), ("groups", given.groups)):
        tensor = None if part is None else torch.as_tensor(part)
        if tensor is not None and tensor.shape != mask.shape:
            raise ShapeError(
                f"input {name!r} has {what} of shape {list(tensor.shape)} and a mask of shape {list(mask.shape)}",
                hint="[sample, place] both",
            )
        parts.append(None if tensor is None else tensor[torch.from_numpy(mask).to(tensor.device)])
    rows, offsets = tuples[mask], offsets_of(mask.sum(1))
    numbers = _numbers(name, parts[0], len(rows))
    return SampleFacts(rows, offsets, numbers, _groups(name, parts[1], len(rows)))


def kept(facts: SampleFacts, rule: Varying) -> SampleFacts:
    """The facts that are kept by the rule of an input; which these are has no derivative."""
    if facts.probabilities is None or (rule.keep is None and rule.above is None):
        return facts
    numbers = facts.probabilities.detach().double().numpy(force=True)
    is_kept = np.ones(len(numbers), bool) if rule.above is None else numbers >= rule.above
    if rule.keep is not None:
        part = facts.samples
        if rule.per_group and facts.groups is not None:
            _, part = np.unique(np.stack([part, np.maximum(facts.groups, -1)], 1), axis=0, return_inverse=True)
            part = part.reshape(-1)
        is_kept &= _drawn(numbers, part, rule.keep) if rule.sampled else _best(numbers, part, rule.keep)
    return facts.only(np.flatnonzero(is_kept), np.arange(facts.batch))


def _best(numbers: np.ndarray, part: np.ndarray, count: int) -> np.ndarray:
    """[row] whether it is one of the best of its part."""
    order = np.lexsort((-numbers, part))
    place = np.empty(len(part), np.int64)
    place[order] = within(np.bincount(part))
    return place < count


def _drawn(numbers: np.ndarray, part: np.ndarray, count: int) -> np.ndarray:
    """[row] whether it is drawn from its part."""
    found = np.zeros(len(part), bool)
    order = np.argsort(part, kind="stable")
    sizes = np.bincount(part)
    ends = np.cumsum(np.where(numbers > 0, numbers, 0)[order])
    offsets = offsets_of(sizes)
    low = np.concatenate([[0.0], ends])[offsets[:-1]]
    high = np.concatenate([[0.0], ends])[offsets[1:]]
    some = np.flatnonzero(high > low)
    uniform = torch.rand(len(some), count, dtype=torch.float64).numpy()
    places = np.searchsorted(ends, low[some, None] + uniform * (high - low)[some, None], "right")
    found[order[np.minimum(places, offsets[some + 1, None] - 1)]] = True
    return found
