"""Types: from syntax to the type of every relation column and every expression, by unification over one program."""

from derivable.datalog.types.inference import infer
from derivable.datalog.types.typed import Typed, types_text

__all__ = ["Typed", "infer", "types_text"]
