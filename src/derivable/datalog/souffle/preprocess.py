"""The C preprocessor, as far as Soufflé's programs use it, over tokens: what a macro becomes has the span of its use.

`#include`, `#define` (with and without parameters, `#` and `##`), `#undef`, `#ifdef`, `#ifndef`, `#if`, `#elif`,
`#else`, `#endif`, `#error`, `#pragma once`; and Soufflé's `.include` and `.once`.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from derivable.core.diagnostics import DomainError, Span, warn
from derivable.core.files import is_file
from derivable.core.roots import Roots
from derivable.datalog.policy.costs import policy
from derivable.datalog.souffle.lexer import SourceText, Token, no_token, number_of, text_of, tokens_of
from derivable.datalog.syntax.imports import read

# Of files that include each other.
_DEPTH = 100
# Of tokens that macros make in all.
_MOST = 5_000_000


@dataclass(frozen=True)
class Macro:
    """`#define NAME body`, `#define NAME(a, b) body`"""

    parameters: tuple[str, ...] | None
    body: tuple[Token, ...]


class Preprocessor:
    """The tokens of a program and of the files that it includes.

    roots  folders that hold all files that may be included
    """

    def __init__(self, macros: Mapping[str, str] | None = None, roots: Roots | None = None):
        self.macros: dict[str, Macro] = {}
        for name, body in (macros or {}).items():
            if not name.isidentifier():
                raise DomainError(f"{name!r} is no name of a macro", hint='such as macros={"LIMIT": "3"}')
            self.macros[name] = Macro(None, tuple(tokens_of(SourceText(str(body), f"<macro {name}>", True))))
        self.roots = roots or Roots()
        self.once: set[Path] = set()
        self.made = 0

    def run(self, file: SourceText, depth: int = 0) -> list[Token]:
        """The tokens of a file after preprocessing."""
        tokens, result, plain = tokens_of(file, fewest_facts=policy().call_rows), [], []
        # For each open `#if`: whether its lines count, whether one of its parts did, and where it stands.
        open_ifs: list[tuple[bool, bool, Token]] = []
        position = 0

        def flush() -> None:
            result.extend(self.expanded(plain, file))
            plain.clear()

        while position < len(tokens):
            token = tokens[position]
            counts = all(state for state, _, _ in open_ifs)
            if token.kind == "line" and token.begins_line:
                end = _end_of_line(tokens, position, file)
                flush()
                included = self.directive(tokens[position + 1 : end], token, file, open_ifs, counts, depth)
                position = end
                if included is None:
                    return result
                result += included
                continue
            position += 1
            if not counts:
                continue
            if token.kind == "directive" and token.text == ".include":
                flush()
                if position == len(tokens) or tokens[position].kind != "text":
                    raise file.error("`.include` needs a file", token.span, 'write `.include "other.dl"`')
                result += self.include(text_of(tokens[position], file), tokens[position], file, depth)
                position += 1
            elif token.kind == "directive" and token.text == ".once":
                if not self.is_first(file):
                    return result
            elif token.kind == "bad":
                raise no_token(file, token)
            elif token.kind == "facts" and token.facts.relation in self.macros:
                plain += tokens_of(file, token.facts.start, token.facts.end)
            else:
                plain.append(token)
        flush()
        if open_ifs:
            raise file.error("this condition does not end", open_ifs[-1][2].span, "it ends with `#endif`")
        return result

    # Directives

    def directive(
        self,
        line: list[Token],
        mark: Token,
        file: SourceText,
        open_ifs: list[tuple[bool, bool, Token]],
        counts: bool,
        depth: int,
    ) -> list[Token] | None:
        """What a line that begins with `#` becomes; None if the rest of the file is left out."""
        name = line[0].text if line else ""
        rest = line[1:]
        match name:
            case "ifdef" | "ifndef":
                if not rest:
                    raise file.error(f"`#{name}` needs the name of a macro", mark.span)
                holds = (rest[0].text in self.macros) == (name == "ifdef")
                open_ifs.append((holds, holds, mark))
            case "if":
                holds = counts and self.condition(rest, mark, file)
                open_ifs.append((holds, holds, mark))
            case "elif" | "else" | "endif":
                if not open_ifs:
                    raise file.error(f"`#{name}` stands after no `#if`", mark.span)
                _, done, start = open_ifs.pop()
                if name == "else":
                    open_ifs.append((not done, True, start))
                elif name == "elif":
                    holds = not done and all(s for s, _, _ in open_ifs) and self.condition(rest, mark, file)
                    open_ifs.append((holds, done or holds, start))
            case _ if not counts:
                pass
            case "include":
                if not rest or rest[0].kind != "text":
                    raise file.error("`#include` needs a file", mark.span, 'write `#include "other.dl"`')
                return self.include(text_of(rest[0], file), rest[0], file, depth)
            case "define":
                self.define(rest, mark, file)
            case "undef":
                self.macros.pop(rest[0].text if rest else "", None)
            case "error":
                raise file.error("#error " + " ".join(token.text for token in rest), mark.span)
            case "warning":
                message = "#warning " + " ".join(token.text for token in rest)
                warn(message, source=file.source, text=file.text, span=mark.span)
            case "pragma":
                if rest and rest[0].text == "once" and not self.is_first(file):
                    return None
            case "line" | "":
                pass
            case _ if line[0].kind == "number":
                # `# 12 "file"`, which preprocessors write.
                pass
            case _:
                hint = "known are #include, #define, #undef, #ifdef, #ifndef, #if, #elif, #else, #endif"
                raise file.error(f"unknown directive `#{name}`", line[0].span, hint)
        return []

    def is_first(self, file: SourceText) -> bool:
        """Whether a file that is to be read once is read for the first time."""
        path = Path(file.source).resolve()
        is_new = path not in self.once
        self.once.add(path)
        return is_new

    def include(self, name: str, token: Token, file: SourceText, depth: int) -> list[Token]:
        if depth >= _DEPTH:
            raise file.error("files include each other without end", token.span, "guard one with `#pragma once`")
        folders = [] if file.source.startswith("<") else [Path(file.source).parent]
        folders += [Path(), *(self.roots.folders or ())]
        paths = [folder / name for folder in folders]
        path = next((path for path in paths if is_file(path)), None)
        if path is None:
            hint = f"looked in {', '.join(dict.fromkeys(os.fspath(p.parent) for p in paths))}"
            raise file.error(f"cannot find the file {name!r}", token.span, hint)
        if not self.roots.holds(path):
            message, hint = self.roots.refusal(path, "read")
            raise file.error(message, token.span, hint)
        return self.run(SourceText(read(path), os.fspath(path), is_included=True), depth + 1)

    def define(self, line: list[Token], mark: Token, file: SourceText) -> None:
        if not line or line[0].kind != "name":
            raise file.error("`#define` needs a name", mark.span, "write `#define LIMIT 3`")
        name, rest, parameters = line[0].text, line[1:], None
        if rest and rest[0].text == "(" and not rest[0].is_spaced:
            end = next((i for i, token in enumerate(rest) if token.text == ")"), None)
            if end is None:
                raise file.error(f"the parameters of `{name}` do not end", rest[0].span, "they end with `)`")
            parameters = tuple(token.text for token in rest[1:end] if token.text != ",")
            rest = rest[end + 1 :]
        wrong = next((token for token in rest if token.kind == "bad"), None)
        if wrong is not None:
            raise no_token(file, wrong)
        self.macros[name] = Macro(parameters, tuple(rest))

    # Expansion

    def expanded(
        self, tokens: list[Token], file: SourceText, hidden: frozenset[str] = frozenset(), at: Span | None = None
    ) -> list[Token]:
        """The tokens with macros replaced, whose results stand where they are used."""
        result: list[Token] = []
        position = 0
        while position < len(tokens):
            token = tokens[position]
            position += 1
            macro = self.macros.get(token.text) if token.kind == "name" and token.text not in hidden else None
            if macro is None:
                result.append(_builtin(token if at is None else replace(token, span=at), file))
                continue
            span = at or token.span
            if macro.parameters is None:
                body = list(macro.body)
            else:
                if position == len(tokens) or tokens[position].text != "(":
                    result.append(token if at is None else replace(token, span=at))
                    continue
                arguments, position = _arguments(tokens, position, token, file)
                if len(arguments) != len(macro.parameters) and not (not macro.parameters and arguments == [[]]):
                    wanted, passed = len(macro.parameters), len(arguments)
                    plural = "" if wanted == 1 else "s"
                    message = f"the macro `{token.text}` takes {wanted} argument{plural}, {passed} given"
                    raise file.error(message, span)
                body = self._filled(macro, arguments, file, hidden, span)
            made = self.expanded(_pasted(body), file, hidden | {token.text}, span)
            self.made += len(made)
            if self.made > _MOST:
                raise file.error(f"macros make more than {_MOST:,} tokens", span)
            result += made
        return result

    def _filled(
        self, macro: Macro, arguments: list[list[Token]], file: SourceText, hidden: frozenset[str], span: Span
    ) -> list[Token]:
        """The body of a macro with its arguments."""
        texts_of = dict(zip(macro.parameters or (), arguments))
        body: list[Token] = []
        for i, token in enumerate(macro.body):
            before = macro.body[i - 1].text if i else ""
            after = macro.body[i + 1].text if i + 1 < len(macro.body) else ""
            if token.text not in texts_of or token.kind != "name":
                body.append(token)
            elif before == "#" and (i < 2 or macro.body[i - 2].text != "#"):
                text = " ".join(part.text for part in texts_of[token.text]).replace("\\", "\\\\").replace('"', '\\"')
                body[-1] = Token("text", f'"{text}"', span)
            elif "#" in (before, after):
                body += texts_of[token.text]
            else:
                body += self.expanded(texts_of[token.text], file, hidden, span)
        return body

    # Conditions

    def condition(self, line: list[Token], mark: Token, file: SourceText) -> bool:
        """Whether the expression of `#if` is not zero."""
        tokens: list[Token] = []
        position = 0
        while position < len(line):
            token = line[position]
            position += 1
            if token.text != "defined":
                tokens.append(token)
                continue
            is_enclosed = position < len(line) and line[position].text == "("
            name = line[position + is_enclosed] if position + is_enclosed < len(line) else token
            tokens.append(replace(token, kind="number", text=str(int(name.text in self.macros))))
            position += 3 if is_enclosed else 1
        return _Condition(self.expanded(tokens, file), mark, file).value() != 0


# The operators of conditions by their signs, from those that bind least.
_OPERATORS: tuple[dict[tuple[str, ...], Callable[[int, int], int]], ...] = (
    {("|", "|"): lambda a, b: bool(a or b)},
    {("&", "&"): lambda a, b: bool(a and b)},
    {("=", "="): operator.eq, ("!=",): operator.ne},
    {("<=",): operator.le, (">=",): operator.ge, ("<",): operator.lt, (">",): operator.gt},
    {("+",): operator.add, ("-",): operator.sub},
    {("*",): operator.mul},
)


class _Condition:
    """The value of an expression of integers; names are 0."""

    def __init__(self, tokens: list[Token], mark: Token, file: SourceText):
        self.texts = [token.text for token in tokens]
        self.kinds = [token.kind for token in tokens]
        self.position, self.mark, self.file = 0, mark, file

    def value(self) -> int:
        result = self.level(0)
        if self.position < len(self.texts):
            raise self.error()
        return result

    def error(self) -> Exception:
        return self.file.error("this condition is no expression of integers", self.mark.span, "such as `#if N > 2`")

    def takes(self, *texts: str) -> bool:
        end = self.position + len(texts)
        if tuple(self.texts[self.position : end]) == texts:
            self.position = end
            return True
        return False

    def level(self, number: int) -> int:
        """A value whose operators are those of a level or bind more tightly."""
        if number == len(_OPERATORS):
            return self.operand()
        left = self.level(number + 1)
        while True:
            compute = next((compute for signs, compute in _OPERATORS[number].items() if self.takes(*signs)), None)
            if compute is None:
                return left
            left = int(compute(left, self.level(number + 1)))

    def operand(self) -> int:
        if self.takes("!"):
            return int(not self.operand())
        if self.takes("-"):
            return -self.operand()
        if self.takes("("):
            value = self.level(0)
            if not self.takes(")"):
                raise self.error()
            return value
        if self.position == len(self.texts):
            raise self.error()
        kind, text = self.kinds[self.position], self.texts[self.position]
        self.position += 1
        if kind == "number":
            return number_of(text)
        if kind == "name":
            return 0
        raise self.error()


def _end_of_line(tokens: list[Token], position: int, file: SourceText) -> int:
    """The position behind the line that begins here; a line that ends with `\\` goes on."""
    line = tokens[position].span.line
    end = position + 1
    while end < len(tokens):
        here = tokens[end].span.line
        while line < here and file.lines[line - 1].rstrip("\r").endswith("\\"):
            line += 1
        if here > line:
            break
        end += 1
    return end


def _arguments(tokens: list[Token], position: int, name: Token, file: SourceText) -> tuple[list[list[Token]], int]:
    """The arguments of the macro call whose `(` is at a position, and the position behind its `)`."""
    arguments: list[list[Token]] = [[]]
    depth = 0
    for i in range(position, len(tokens)):
        text = tokens[i].text if tokens[i].kind == "sign" else ""
        if text == "(":
            depth += 1
            if depth == 1:
                continue
        elif text == ")":
            depth -= 1
            if not depth:
                return arguments, i + 1
        if text == "," and depth == 1:
            arguments.append([])
        else:
            arguments[-1].append(tokens[i])
    raise file.error(f"the arguments of the macro `{name.text}` do not end", name.span, "they end with `)`")


def _pasted(body: list[Token]) -> list[Token]:
    """A body in which `a ## b` is one token."""
    tokens: list[Token] = []
    position = 0
    while position < len(body):
        token = body[position]
        if token.kind == "line" and position + 2 < len(body) and body[position + 1].kind == "line" and tokens:
            joined = tokens.pop().text + body[position + 2].text
            tokens += tokens_of(SourceText(joined, "<macro>", True))
            position += 3
            continue
        tokens.append(token)
        position += 1
    return tokens


def _builtin(token: Token, file: SourceText) -> Token:
    """`__FILE__` and `__LINE__`."""
    if token.kind == "name" and token.text == "__FILE__":
        return replace(token, kind="text", text='"' + file.source.replace("\\", "\\\\").replace('"', '\\"') + '"')
    if token.kind == "name" and token.text == "__LINE__":
        return replace(token, kind="number", text=str(token.span.line))
    return token
