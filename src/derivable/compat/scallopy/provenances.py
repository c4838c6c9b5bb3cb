"""The provenances of Scallop by name: which record of the engine each is, and what tags it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import DomainError
from derivable.datalog.tags.provenance import Inference, provenance_of


@dataclass(frozen=True)
class Kind:
    """What a context knows of its provenance.

    engine            the name of the engine's provenance
    has_tags          whether facts and tuples have tags
    is_probabilistic  whether these are probabilities
    is_differentiable whether they have gradients
    keeps_proofs      whether facts may exclude each other
    drops_zero        whether a tuple of the probability 0 is not there
    """

    engine: str
    has_tags: bool = True
    is_probabilistic: bool = True
    is_differentiable: bool = False
    keeps_proofs: bool = False
    drops_zero: bool = True

    @property
    def record(self) -> Semiring | Inference:
        """The engine's record."""
        return provenance_of(self.engine)


_PROOFS = ("topkproofs", "topbottomkclauses", "samplekproofs")
_KNOWN = {
    "unit": Kind("unit", has_tags=False, is_probabilistic=False),
    "proofs": Kind("proofs", has_tags=False, is_probabilistic=False, keeps_proofs=True),
    **{name: Kind(name, is_probabilistic=False) for name in ("bool", "natural", "tropical", "realtropical")},
    "difftopkproofsdebug": Kind("topkproofs", is_differentiable=True, keeps_proofs=True),
    "diffminmaxprob": Kind("minmaxprob", is_differentiable=True, drops_zero=False),
}


def kind_of(name: str) -> Kind:
    """What a context knows of a provenance. Raises DomainError for an unknown one."""
    if name in _KNOWN:
        return _KNOWN[name]
    record = provenance_of(name)
    return Kind(name, is_differentiable=name.startswith("diff"), keeps_proofs=record.name in _PROOFS)


class ScallopProvenance:
    """A provenance of one's own: a class with these methods, an instance of which is the `custom_provenance` of a
    context.

    `zero`, `one`, `add` and `mult` are needed; the others have the meanings below where a class does not say.
    """

    def base(self) -> str:
        """What the engine calls it."""
        return type(self).__name__

    def tagging_fn(self, input_tag: Any) -> Any:
        """The tag of a fact that is given with an input tag, None of one without."""
        return self.one() if input_tag is None else input_tag

    def recover_fn(self, tag: Any) -> Any:
        """What users see of a tag."""
        return tag

    def discard(self, tag: Any) -> bool:
        """Whether a tuple of this tag is dropped."""
        return False

    def zero(self) -> Any:
        """The tag of what does not hold."""
        raise NotImplementedError

    def one(self) -> Any:
        """The tag of what holds for certain."""
        raise NotImplementedError

    def add(self, t1: Any, t2: Any) -> Any:
        """The tag of a tuple with two derivations."""
        raise NotImplementedError

    def mult(self, t1: Any, t2: Any) -> Any:
        """The tag of a derivation from two tuples."""
        raise NotImplementedError

    def negate(self, tag: Any) -> Any:
        """The tag of the negation of a tuple; None drops what needs it."""
        raise DomainError(
            f"{type(self).__name__} has no negation", hint="define `negate(self, tag)`, or leave negation out"
        )

    def saturated(self, old: Any, new: Any) -> bool:
        """Whether a tuple whose tag changes this way is not propagated again."""
        return True

    def weight(self, tag: Any) -> float:
        """How much a tuple counts where tuples are ordered by weight."""
        return 1.0

    def aggregate_count(self, elems: list[Any]) -> list[Any]:
        """Pairs (tag, count) of a list of pairs (tag, tuple)."""
        return [(self.one(), len(elems))]

    def aggregate_exists(self, elems: list[Any]) -> list[Any]:
        """Pairs (tag, whether there is one)."""
        tag = self.zero()
        for one, _ in elems:
            tag = self.add(tag, one)
        return [(tag, True)] if elems else [(self.one(), False)]

    def aggregate_unique(self, elems: list[Any]) -> list[Any]:
        """The pair (tag, tuple) of the largest weight."""
        return [max(elems, key=lambda elem: self.weight(elem[0]))] if elems else []

    def collate(self, batch: list[Any]) -> Any:
        """The tags of a batch as one object."""
        return batch


Provenance = ScallopProvenance
