"""Which provenances there are: every semiring, and some with special code.

A provenance says what the tags of tuples are: a semiring, built in, registered or a user-defined record. `topkproofs`
and its kin keep sets of proofs, whose operations depend on the probabilities of the run; `exact` keeps every ground
derivation and compiles them to a circuit. A provenance of Scallop that is differentiable is the same one, as layers
differentiate all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError, warn
from derivable.core.registry import Registry, one_letter_off
from derivable.datalog.tags.carrier import Carrier
from derivable.datalog.tags.custom import NEEDED, CustomTags, Provenance, ShortestProof, check_methods, has_methods
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import ColumnTags, IntegerTags, SemiringTags


@dataclass(frozen=True)
class Inference:
    """A provenance that is no semiring on scalars.

    tags      (random facts, k) -> its tag columns; None for exact, whose tags are nodes of the ground derivation graph
    instance  the object of a user-defined class, whose methods say what tags are
    """

    name: str
    description: str
    tags: Callable[[RandomFacts, int], ColumnTags] | None = None
    instance: Any = None


def _proof_tags(module: str, name: str, facts: RandomFacts, k: int) -> ColumnTags:
    """Tag columns of a class, imported when it is needed."""
    return getattr(import_module(f"derivable.datalog.tags.{module}"), name)(facts, k)


EXACT = Inference("exact", "the probability in a random world, from a compiled circuit")
TOP_PROOFS = Inference(
    "topkproofs",
    "the exact probability of the k most probable proofs",
    partial(_proof_tags, "topkproofs", "TopProofTags"),
)
PROOFS = Inference(
    "proofs", "the set of all proofs, each a set of facts", partial(_proof_tags, "proof_sets", "AllProofTags")
)
_OTHERS = (
    Inference(
        "topkproofsdebug",
        "as topkproofs, and the proofs themselves",
        partial(_proof_tags, "proof_sets", "ShownProofTags"),
    ),
    Inference(
        "samplekproofs",
        "the exact probability of k proofs that are drawn by probability",
        partial(_proof_tags, "proof_sets", "SampledProofTags"),
    ),
    Inference(
        "topbottomkclauses",
        "as topkproofs, where a negation costs no proof",
        partial(_proof_tags, "proof_sets", "ClauseTags"),
    ),
    Inference(
        "realtropicalproofs",
        "the length of the shortest derivation, and the facts that it uses",
        instance=ShortestProof(),
    ),
)
_SHORT = {
    "minmax": "minmaxprob",
    "addmult": "addmultprob",
    "nandmult": "nandmultprob",
    "maxmult": "maxmultprob",
    "nandmin": "nandminprob",
    "topk": "topkproofs",
    "samplek": "samplekproofs",
    "clauses": "topbottomkclauses",
}
# What papers call them, without hyphens; the names of Scallop's code are those of `_OF_SCALLOP`.
_OF_PAPERS = {"maxminprob": "minmaxprob", "dmmp": "minmaxprob", "damp": "addmultprob", "dtkp": "topkproofs"}
# `top-1-proof`, `top-k-proofs`, `sample-3-proofs`, `top-bottom-2-clauses`, and what `diff` and `prob` say before them.
_OF_PROOFS = re.compile(r"(diff|prob)?(topbottom|top|sample)(k|\d+)(proof|clause)s?(debug)?")
# What Scallop calls them where they have gradients.
_OF_SCALLOP = {f"diff{name}": name for name in _SHORT.values()}
_OF_SCALLOP["difftopkproofsdebug"] = "topkproofsdebug"
_OF_SCALLOP |= {f"diff{name}2": name for name in ("addmultprob", "nandmultprob", "maxmultprob")}
PROVENANCES: Registry[Semiring | Inference] = Registry(
    "provenance",
    {record.name: record for record in (EXACT, TOP_PROOFS, PROOFS, *_OTHERS)},
    _OF_SCALLOP | _SHORT,
    parent=semirings.REGISTRY,
    more="or give a Semiring",
    close=one_letter_off,
)


# Those of which k says how many proofs they keep.
_WITH_K = ("topkproofs", "topkproofsdebug", "samplekproofs", "topbottomkclauses")


def scallop_name(name: str) -> tuple[str, int | None]:
    """A name as Scallop's code spells it, `difftopkproofs`, and the k in it: that of `diff-top-1-proofs` is 1.

    Papers have hyphens and a number for k; an unknown name stays as it is.
    """
    if name in PROVENANCES:
        return name, None
    plain, k = re.sub(r"[-_ ]", "", name.lower()), None
    match = _OF_PROOFS.fullmatch(plain)
    if match is not None:
        begun, kind, number, noun, shown = match.groups("")
        k = None if number == "k" else int(number)
        plain = f"{begun}{kind}k{noun}s{shown}"
    plain = plain.removeprefix("prob")
    begun = "diff" if plain.startswith("diff") else ""
    rest = plain.removeprefix("diff")
    plain = begun + _OF_PAPERS.get(rest, rest)
    return (plain, k) if plain in PROVENANCES else (name, None)


def proofs_per_tag(written: Any, record: Semiring | Inference | None, k: int | None) -> int:
    """How many proofs a run keeps: what the name of the provenance says, else k, else 3.

    written  the provenance as the user named it, None for the default one; `record` is that of it

    Warns where k has no meaning. Raises DomainError where it contradicts the name, or is no number of proofs.
    """
    if k is not None and (not is_integer(k) or k < 1):
        raise DomainError(f"k is {k!r}; topkproofs keeps at least one proof", hint="k=3, for instance")
    num = scallop_name(written)[1] if isinstance(written, str) else None
    if num is not None:
        if k not in (None, num) or num < 1:
            raise DomainError(
                f"the provenance {written!r} keeps {num} proof{'s' * (num != 1)}"
                f"{'' if k is None else f', and k is {k}'}",
                hint='leave k out, or provenance="topkproofs" with k',
            )
        return num
    if k is not None and (record is None or record.name not in _WITH_K):
        name = (
            "the default provenance" if record is None else repr(written if isinstance(written, str) else record.name)
        )
        warn(
            f"k = {k} has no effect under {name}",
            hint=f"k is the number of proofs of a tag, of {', '.join(_WITH_K)}",
        )
    return 3 if k is None else k


def provenance_of(named: str | Semiring | Provenance | Any) -> Semiring | Inference:
    """The provenance of that name, a semiring, checked for its form, or that of a user-defined class.

    Raises DomainError, with the nearest name, for an unknown one, and for a semiring whose times does not commute.
    """
    if isinstance(named, Semiring):
        provenance: Semiring | Inference = semirings.get(named)
    elif isinstance(named, str):
        provenance = PROVENANCES[scallop_name(named)[0]]
    elif has_methods(named) and not isinstance(named, type):
        check_methods(named)
        provenance = Inference(type(named).__name__, "a user's class", instance=named)
    else:
        raise DomainError(
            f"a provenance is a name, a Semiring or an object with {', '.join(NEEDED)}, not {type(named).__name__}",
            hint=f"make an object of the class: {getattr(named, '__name__', 'Class')}()"
            if has_methods(named)
            else f"known are {', '.join(PROVENANCES.known())}",
        )
    if isinstance(provenance, Semiring) and not provenance.commutative:
        raise DomainError(
            f"times of the semiring {provenance.name!r} does not commute, and the facts of a rule have no order",
            hint="a provenance is a commutative semiring",
        )
    return provenance


def carrier_of(provenance: Semiring | Inference, name: str | None = None) -> Carrier:
    """Which numbers it takes as tags; `name` is what the user calls it."""
    semiring = provenance if isinstance(provenance, Semiring) else None
    instance = provenance.instance if isinstance(provenance, Inference) else None
    return Carrier(name or provenance.name, semiring, provenance is PROOFS, instance is not None)


def tags_of(provenance: Semiring | Inference, facts: RandomFacts, k: int = 3) -> ColumnTags:
    """The tag columns of a provenance other than exact, for a run on these random facts."""
    if isinstance(provenance, Semiring):
        return IntegerTags(provenance, facts) if provenance.is_exact else SemiringTags(provenance, facts)
    if provenance.instance is not None:
        return CustomTags(provenance.instance, facts)
    assert provenance.tags is not None
    return provenance.tags(facts, k)


def needs_derivations(semiring: Semiring, is_recursive: bool) -> bool:
    """Whether tag columns would count a derivation twice: tuples of a recursive stratum pass on all of their value
    each time it changes, so plus must be idempotent, or pass it on once."""
    if semiring.idempotent_plus or not is_recursive:
        return False
    if semiring.is_exact:
        return semiring.saturated is not semirings.always
    return not semiring.typed().always_saturated


def distributes(provenance: Semiring | Inference) -> bool:
    """Whether sums of products are products of sums, whatever the rounds of a recursion are."""
    if isinstance(provenance, Inference):
        return provenance is EXACT
    return provenance.distributive and provenance.saturated is None


def distributes_smoothly(provenance: Semiring | Inference) -> bool:
    """Whether that holds of derivatives too. Where a sum chooses between equal terms, products of sums may choose
    others than sums of products."""
    if isinstance(provenance, Inference) or not distributes(provenance):
        return provenance is EXACT
    is_sum = provenance.is_exact or provenance.typed().plus.special in ("add", "logaddexp")
    return is_sum and provenance.plus_rule is None


def in_rounds(provenance: Semiring | Inference) -> Semiring | Inference:
    """The provenance as Scallop has it where ours refuses what depends on the order of rounds: derivations are counted
    with the numbers that tuples had when they were new, also where a tuple is derived from itself."""
    return replace(semirings.counting, saturated=semirings.always) if provenance is semirings.counting else provenance
