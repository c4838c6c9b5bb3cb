"""The provenances of Scallop by name: which record of the engine each is, and what tags it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from derivable.algebra.semiring import Semiring
from derivable.datalog.tags.custom import Provenance as CustomProvenance
from derivable.datalog.tags.provenance import Inference, in_rounds, provenance_of, scallop_name


@dataclass(frozen=True)
class Kind:
    """What a context knows of its provenance.

    engine            the name of the engine's provenance, or an object that is one
    has_tags          whether facts and tuples have tags
    is_probabilistic  whether these are probabilities
    is_differentiable whether they have gradients
    keeps_proofs      whether facts may exclude each other
    drops_zero        whether a tuple of the probability 0 is not there
    """

    engine: Any
    has_tags: bool = True
    is_probabilistic: bool = True
    is_differentiable: bool = False
    keeps_proofs: bool = False
    drops_zero: bool = True

    @property
    def record(self) -> Semiring | Inference:
        """The engine's record."""
        return in_rounds(provenance_of(self.engine))

    @property
    def is_custom(self) -> bool:
        """Whether it is an object with methods."""
        return not isinstance(self.engine, str)


_PROOFS = ("topkproofs", "topbottomkclauses", "samplekproofs")
_KNOWN = {
    "unit": Kind("unit", has_tags=False, is_probabilistic=False),
    "proofs": Kind("proofs", has_tags=False, is_probabilistic=False, keeps_proofs=True),
    **{name: Kind(name, is_probabilistic=False) for name in ("bool", "natural", "tropical", "realtropical")},
    "difftopkproofsdebug": Kind("topkproofs", is_differentiable=True, keeps_proofs=True),
    "diffexact": Kind("exact", is_differentiable=True, keeps_proofs=True),
    "exact": Kind("exact", keeps_proofs=True),
    "diffminmaxprob": Kind("minmaxprob", is_differentiable=True, drops_zero=False),
}


def kind_of(name: str) -> Kind:
    """What a context knows of a provenance. Raises DomainError for an unknown one."""
    name = scallop_name(name)[0]
    if name in _KNOWN:
        return _KNOWN[name]
    record = provenance_of(name)
    return Kind(name, is_differentiable=name.startswith("diff"), keeps_proofs=record.name in _PROOFS)


class ScallopProvenance(CustomProvenance):
    """A provenance of one's own: a class with these methods, an instance of which is the `custom_provenance` of a
    context.

    `zero`, `one`, `add` and `mult` are needed; the others have the meanings here where a class does not say.
    """

    def tagging_fn(self, tag: Any) -> Any:
        """The tag of a fact that is given with an input tag: the same, and `one` for None."""
        return self.one() if tag is None else tag

    def aggregate_count(self, elems: list[Any]) -> list[Any]:
        """Pairs (tag, count) of a list of pairs (tag, tuple): their number, for certain."""
        return [(self.one(), len(elems))]

    def collate(self, batch: list[list[Any]]) -> Any:
        """What a forward function returns of the tags [sample][tuple]: a tensor, if they are tensors or numbers."""
        import torch

        if not all(isinstance(tag, (torch.Tensor, float, int)) for tags in batch for tag in tags):
            return batch
        rows = [torch.stack([torch.as_tensor(tag) for tag in tags]) if tags else torch.zeros(0) for tags in batch]
        return torch.stack(rows) if rows else torch.zeros(0)


Provenance = ScallopProvenance
