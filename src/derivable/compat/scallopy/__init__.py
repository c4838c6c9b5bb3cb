"""In the place of `scallopy`, the Python interface of Scallop 0.2.5: `import derivable.compat.scallopy as scallopy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.compat.scallopy import attribute, io, syntax
    from derivable.compat.scallopy.context import Context, ScallopCollection, ScallopContext
    from derivable.compat.scallopy.foreign import (
        BatchedFacts,
        BatchedTuples,
        Facts,
        ForeignAttributeProcessor,
        ForeignFunction,
        ForeignPredicate,
        Generator,
        ff,
        foreign_attribute,
        foreign_function,
        foreign_predicate,
        fp,
    )
    from derivable.compat.scallopy.forward import ForwardFunction, Module, ScallopForwardFunction
    from derivable.compat.scallopy.input_mapping import InputMapping, Map
    from derivable.compat.scallopy.plugins import Plugin, PluginRegistry
    from derivable.compat.scallopy.provenances import Provenance, ScallopProvenance
    from derivable.compat.scallopy.syntax import (
        AstConstantNode,
        AstEnumNode,
        AstNode,
        AstStructNode,
        AstTypeNode,
        AstVariantNode,
        NodeLocation,
    )
    from derivable.compat.scallopy.value_types import Generic, GenericTypeParameter, torch_tensor_enabled

    i8 = i16 = i32 = i64 = i128 = isize = u8 = u16 = u32 = u64 = u128 = usize = f32 = f64 = object
    bool = char = String = Symbol = DateTime = Duration = Entity = Tensor = object
    Any = Number = Integer = SignedInteger = UnsignedInteger = Float = object
    none = natural = prob = exclusion = boolean = exclusive_prob = diff_prob = exclusive_diff_prob = object

__all__ = [
    "Any",
    "AstConstantNode",
    "AstEnumNode",
    "AstNode",
    "AstStructNode",
    "AstTypeNode",
    "AstVariantNode",
    "BatchedFacts",
    "BatchedTuples",
    "Context",
    "DateTime",
    "Duration",
    "Entity",
    "Facts",
    "Float",
    "ForeignAttributeProcessor",
    "ForeignFunction",
    "ForeignPredicate",
    "ForwardFunction",
    "Generator",
    "Generic",
    "GenericTypeParameter",
    "InputMapping",
    "Integer",
    "Map",
    "Module",
    "NodeLocation",
    "Number",
    "Plugin",
    "PluginRegistry",
    "Provenance",
    "ScallopCollection",
    "ScallopContext",
    "ScallopForwardFunction",
    "ScallopProvenance",
    "SignedInteger",
    "String",
    "Symbol",
    "Tensor",
    "UnsignedInteger",
    "attribute",
    "bool",
    "boolean",
    "char",
    "diff_prob",
    "exclusion",
    "exclusive_diff_prob",
    "exclusive_prob",
    "f32",
    "f64",
    "ff",
    "foreign_attribute",
    "foreign_function",
    "foreign_predicate",
    "fp",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "io",
    "isize",
    "natural",
    "none",
    "prob",
    "syntax",
    "torch_tensor_enabled",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "usize",
]

_WHERE = {
    "context": ("Context", "ScallopCollection", "ScallopContext"),
    "foreign": (
        *("BatchedFacts", "BatchedTuples"),
        *("Facts", "ForeignAttributeProcessor", "ForeignFunction", "ForeignPredicate", "Generator"),
        *("ff", "foreign_attribute", "foreign_function", "foreign_predicate", "fp"),
    ),
    "forward": ("ForwardFunction", "Module", "ScallopForwardFunction"),
    "input_mapping": ("InputMapping", "Map"),
    "plugins": ("Plugin", "PluginRegistry"),
    "provenances": ("Provenance", "ScallopProvenance"),
    "syntax": (
        *("AstConstantNode", "AstEnumNode", "AstNode", "AstStructNode", "AstTypeNode", "AstVariantNode"),
        "NodeLocation",
    ),
    "value_types": (
        *("Generic", "GenericTypeParameter", "torch_tensor_enabled"),
        *("i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize", "f32", "f64"),
        *("bool", "char", "String", "Symbol", "DateTime", "Duration", "Entity", "Tensor"),
        *("Any", "Number", "Integer", "SignedInteger", "UnsignedInteger", "Float"),
        *("none", "natural", "prob", "exclusion", "boolean", "exclusive_prob", "diff_prob", "exclusive_diff_prob"),
    ),
}
_NAMES = {name: f"derivable.compat.scallopy.{module}" for module, names in _WHERE.items() for name in names}

__getattr__, __dir__ = lazy(__name__, _NAMES, ("attribute", "io", "syntax"))
