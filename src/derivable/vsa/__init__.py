"""Vector-symbolic algebra, differentiable and batched (block codes as in NVSA, Hersche et al., 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.vsa import models
    from derivable.vsa.block_codes import (
        codebook,
        mass_to_vector,
        match_probabilities,
        match_probability,
        vector_to_mass,
    )
    from derivable.vsa.convolution import convolve, correlate, explain
    from derivable.vsa.encodings import branch, element, ngrams, pop, push, record, sequence, tree
    from derivable.vsa.memory import ItemMemory, Matches
    from derivable.vsa.model import Model
    from derivable.vsa.models import register
    from derivable.vsa.operations import (
        bind,
        bundle,
        cleanup,
        identity,
        inverse,
        normalise,
        permute,
        power,
        random,
        similarities,
        similarity,
        unbind,
    )
    from derivable.vsa.resonator import Factors, factorise

__all__ = [
    "Factors",
    "ItemMemory",
    "Matches",
    "Model",
    "bind",
    "branch",
    "bundle",
    "cleanup",
    "codebook",
    "convolve",
    "correlate",
    "element",
    "explain",
    "factorise",
    "identity",
    "inverse",
    "mass_to_vector",
    "match_probabilities",
    "match_probability",
    "models",
    "ngrams",
    "normalise",
    "permute",
    "pop",
    "power",
    "push",
    "random",
    "record",
    "register",
    "sequence",
    "similarities",
    "similarity",
    "tree",
    "unbind",
    "vector_to_mass",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Factors": "derivable.vsa.resonator",
        "ItemMemory": "derivable.vsa.memory",
        "Matches": "derivable.vsa.memory",
        "Model": "derivable.vsa.model",
        "bind": "derivable.vsa.operations",
        "branch": "derivable.vsa.encodings",
        "bundle": "derivable.vsa.operations",
        "cleanup": "derivable.vsa.operations",
        "codebook": "derivable.vsa.block_codes",
        "convolve": "derivable.vsa.convolution",
        "correlate": "derivable.vsa.convolution",
        "element": "derivable.vsa.encodings",
        "explain": "derivable.vsa.convolution",
        "factorise": "derivable.vsa.resonator",
        "identity": "derivable.vsa.operations",
        "inverse": "derivable.vsa.operations",
        "mass_to_vector": "derivable.vsa.block_codes",
        "match_probabilities": "derivable.vsa.block_codes",
        "match_probability": "derivable.vsa.block_codes",
        "ngrams": "derivable.vsa.encodings",
        "normalise": "derivable.vsa.operations",
        "permute": "derivable.vsa.operations",
        "pop": "derivable.vsa.encodings",
        "power": "derivable.vsa.operations",
        "push": "derivable.vsa.encodings",
        "random": "derivable.vsa.operations",
        "record": "derivable.vsa.encodings",
        "register": "derivable.vsa.models",
        "sequence": "derivable.vsa.encodings",
        "similarities": "derivable.vsa.operations",
        "similarity": "derivable.vsa.operations",
        "tree": "derivable.vsa.encodings",
        "unbind": "derivable.vsa.operations",
        "vector_to_mass": "derivable.vsa.block_codes",
    },
    ("models",),
)
