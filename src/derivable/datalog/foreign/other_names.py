"""What other languages call functions and conditions on texts, and how they are written here."""

from __future__ import annotations

from collections.abc import Sequence

_FIND = "string_find({0}, {1}, _, _)"
_STARTS = "$substring({0}, 0, $string_length({1})) == {1}"
_ENDS = "string_find({0}, {1}, _, $string_length({0}))"
_CONDITIONS = {
    **dict.fromkeys(("contains", "includes", "has_substring", "strstr", "sub_string", "like", "ilike"), _FIND),
    **dict.fromkeys(("starts_with", "startswith", "string_starts_with", "has_prefix"), _STARTS),
    **dict.fromkeys(("ends_with", "endswith", "string_ends_with", "has_suffix"), _ENDS),
    "split": "string_split({0}, {1}, part)",
}
_REGULAR = "a predicate of your own, with Python's `re`: `derivable.datalog.predicate`"
_SENTENCES = {
    **dict.fromkeys(("match", "matches", "regexp", "regex", "regex_match", "regexp_matches", "rlike"), _REGULAR),
    "autoinc": "a term of what the number is for, or `$hash({0}, {1})`",
    "ord": "the order of texts, `x < y`",
}
_FUNCTIONS = {
    "sqrt": "$powf({0}, 0.5)",
    "power": "$pow({0}, {1})",
    "ln": "$log({0})",
    "round": "$floor({0} + 0.5)",
    "mod": "{0} % {1}",
    **dict.fromkeys(("len", "length", "strlen", "char_length"), "$string_length({0})"),
    **dict.fromkeys(("concat", "cat", "strcat"), "$string_concat({0}, {1})"),
    **dict.fromkeys(("upper", "to_upper", "toupper", "ucase"), "$string_upper({0})"),
    **dict.fromkeys(("lower", "to_lower", "tolower", "lcase"), "$string_lower({0})"),
    **dict.fromkeys(("trim", "strip"), "$string_trim({0})"),
    "replace": "$string_replace({0}, {1}, {2})",
    **dict.fromkeys(
        ("index_of", "indexof", "index", "find", "instr", "strpos", "position", "locate"), "$string_index_of({0}, {1})"
    ),
    **dict.fromkeys(("int", "to_number", "itou", "utoi", "ftoi"), "{0} as i32"),
    **dict.fromkeys(("float", "itof", "utof"), "{0} as f64"),
    **dict.fromkeys(("str", "string", "to_string"), "{0} as String"),
    "bool": "{0} as bool",
    "year": "$datetime_year({0})",
    "month": "$datetime_month({0})",
    "day": "$datetime_day({0})",
}


def written_here(name: str, arguments: Sequence[str]) -> str | None:
    """The hint for a function or condition that another language has, with arguments as they are written; None for a
    name that no other language has."""
    lower = name.lower()
    if lower in ("substr", "substring"):
        # Elsewhere the third one is a length.
        parts = "{0}, {1}, {1} + {2}" if len(arguments) == 3 else "{0}, {1}"
        return f"write `$substring({parts.format(*arguments, *'xy'[len(arguments) :])})`"
    if lower in ("like", "ilike") and arguments[1:2] and arguments[1].startswith('"'):
        return like_here(arguments[0], arguments[1])
    filled = [*arguments, *"xyz"[len(arguments) :]]
    if lower in _CONDITIONS:
        if len(arguments) == 2 and arguments[0].startswith('"') and not arguments[1].startswith('"'):
            # Soufflé has the part first.
            filled = filled[1::-1]
        written = _CONDITIONS[lower].format(*filled)
        return f"write `{written}`" if written.startswith("$") else f"write the atom `{written}`"
    if lower in _SENTENCES:
        return f"use {_SENTENCES[lower].format(*filled)}"
    return f"write `{_FUNCTIONS[lower].format(*filled)}`" if lower in _FUNCTIONS else None


def like_here(value: str, pattern: str) -> str:
    """The hint for a pattern of SQL, with its quotes."""
    part = f'"{pattern[1:-1].strip("%")}"'
    if "%" in part or "_" in part:
        return "write a predicate of your own, with Python's `re`: `derivable.datalog.predicate`"
    if pattern.startswith('"%'):
        end = "_" if pattern.endswith('%"') else f"$string_length({value})"
        return f"write the atom `string_find({value}, {part}, _, {end})`"
    return (
        f"write `$substring({value}, 0, {len(part) - 2}) == {part}`" if "%" in pattern else f"write `{value} == {part}`"
    )
