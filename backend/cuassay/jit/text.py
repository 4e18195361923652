"""Convert the C++ text of a body to C for pycparser, and keep the place of each token in the original text.

A body is a text that torch's jiterator takes: a function template of one type, such as
``template <typename T> T scaled(T x, T y, T alpha) { return x + alpha * y; }``. Of C++ it may use constructs that can
be expressed in C: casts in three spellings, reference parameters, ``std::`` before a mathematical function, ``auto``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from cuassay.errors import CompileError

__all__ = ["AUTO", "COMPLEX_OF", "KEYWORD_TYPES", "TYPES", "CText", "refused", "to_c"]

#: The types that a body may name. ``long`` has 64 bits, as on all Linux machines that CUDA supports.
TYPES: dict[str, str] = {
    "bool": "bool", "char": "int8", "signed char": "int8", "unsigned char": "uint8",
    "short": "int16", "unsigned short": "uint16", "int": "int32", "unsigned": "uint32", "unsigned int": "uint32",
    "signed": "int32", "signed int": "int32", "long": "int64", "long int": "int64", "long long": "int64",
    "unsigned long": "uint64", "unsigned long long": "uint64", "float": "float32", "double": "float64",
    "size_t": "uint64", "ptrdiff_t": "int64",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip

#: Types that are C keywords, so that they need no declaration.
KEYWORD_TYPES = frozenset({"char", "short", "int", "unsigned", "signed", "long", "float", "double"})

#: Replaces ``auto``, which is a storage class in C.
AUTO = "auto_type"

#: Replaces the template's type in ``T(real, imaginary)``, which would be a cast with a comma in C.
COMPLEX_OF = "complex_of"

_ONE_WORD = frozenset(name for name in TYPES if " " not in name)
_DROPPED = frozenset({"inline", "__device__", "__host__", "__forceinline__", "static", "constexpr"})
_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)|(?P<name>[A-Za-z_]\w*)|(?P<number>(?:\d|\.\d)(?:[eEpP][+-]|[\w.])*)"
    r"|(?P<mark>::|->|<<=|>>=|<<|>>|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|.)",
    re.DOTALL,
)
#: Unsupported tokens, with advice. Most of them would parse as C with another meaning or cause an unclear error.
_REFUSED = {
    "#": "write the value itself",
    '"': "a body has no text",
    "'": "write the number",
    "[": "write one variable for each element",
    "->": "a body has no pointers",
    "goto": "write a loop",
    "switch": "write if and else",
    "using": "write the type itself",
    "typedef": "write the type itself",
    "struct": "write one variable for each member",
    "class": "write one variable for each member",
    "namespace": "write the functions one after another",
    "sizeof": "write the number",
    "volatile": "leave it out",
    "throw": "a body raises nothing",
}


def refused(code: str, offset: int, what: str, advice: str) -> CompileError:
    """Return the error for an unsupported construct: line and column, advice, and the line with a mark below it."""
    line = code.count("\n", 0, offset) + 1
    start = code.rfind("\n", 0, offset) + 1
    column = offset - start + 1
    shown = code[start:].partition("\n")[0]
    mark = "".join("\t" if letter == "\t" else " " for letter in shown[: column - 1]) + "^"
    return CompileError(f"line {line}, column {column} of the body: {what}; {advice}\n  {shown}\n  {mark}", log=code)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    offset: int
    kind: str


@dataclass
class CText:
    """The C text of a body.

    Attributes
    ----------
    code : str
        The text that the user wrote.
    text : str
        The same text as C.
    type_name : str
        The name of the template's type, usually ``T``.
    references : set of (int, str)
        The parameters that are references, as the index of the function and the name of the parameter.
    explicit : dict
        The explicit types of calls such as ``f<T>(x)``, by the place in `text` of the function's name.
    starts : list
        Where each token begins in `text` and in `code`.
    """

    code: str
    text: str
    type_name: str
    references: set[tuple[int, str]] = field(default_factory=set)
    explicit: dict[int, str] = field(default_factory=dict)
    starts: list[tuple[int, int]] = field(default_factory=list)

    def origin(self, place: int) -> int:
        """Return the place in `code` that a place of `text` comes from."""
        at = bisect_right(self.starts, (place, len(self.code))) - 1
        if at < 0:
            return 0
        begun, origin = self.starts[at]
        return min(origin + place - begun, len(self.code))


def to_c(code: str) -> CText:
    """Convert `code` to C.

    Raises
    ------
    CompileError
        If there is no template of one type, or a construct is not supported.
    """
    tokens = _tokens(code)
    type_name = _template_type(code, tokens)
    return _Writer(code, tokens, type_name).written()


def _tokens(code: str) -> list[_Token]:
    found = [_Token(match[0], match.start(), match.lastgroup or "") for match in _TOKEN.finditer(code)]
    return [token for token in found if token.kind != "space"]


def _template_type(code: str, tokens: list[_Token]) -> str:
    """Return the type of the first template. Raises unless every other template has the same."""
    found = ""
    for at, token in enumerate(tokens):
        if token.text != "template":
            continue
        words = [one.text for one in tokens[at + 1 : at + 5]]
        if len(words) < 4 or words[0] != "<" or words[1] not in ("typename", "class") or words[3] != ">":
            raise refused(
                code, token.offset, "a template of something else than one type", "write template <typename T>"
            )
        if found and words[2] != found:
            raise refused(code, token.offset, f"a template of {words[2]} after one of {found}", f"name both {found}")
        found = words[2]
    if not found:
        raise refused(
            code, 0, "there is no template", "write it as template <typename T> T name(T x, T y) { return ...; }"
        )
    return found


class _Writer:
    """Writes tokens as C, and records where each comes from."""

    def __init__(self, code: str, tokens: list[_Token], type_name: str) -> None:
        self._code, self._tokens, self._type = code, tokens, type_name
        self._at = 0
        self._parts: list[str] = []
        self._length = 0
        self._c = CText(code, "", type_name)
        self._braces = self._functions = 0

    def written(self) -> CText:
        """Return the whole text."""
        while self._at < len(self._tokens):
            self._step()
        self._c.text = "".join(self._parts)
        return self._c

    def _word(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].text if at < len(self._tokens) else ""

    def _put(self, text: str, origin: int) -> None:
        self._c.starts.append((self._length, origin))
        self._parts.append(text + " ")
        self._length += len(text) + 1

    def _step(self) -> None:
        token = self._tokens[self._at]
        word = token.text
        self._braces += (word == "{") - (word == "}")
        self._functions += word == "}" and not self._braces
        if word == "template":
            self._at += 5
        elif word in _REFUSED:
            raise refused(self._code, token.offset, f"{word!r} has no meaning in a body", _REFUSED[word])
        elif word in ("static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"):
            self._cast(token)
        elif word == "::":
            raise refused(self._code, token.offset, "a name in a namespace", "only std:: may stand before a name")
        elif word == "std" and self._word(1) == "::":
            self._at += 2
        elif word in _DROPPED:
            self._at += 1
        elif word == "&" and not self._braces:
            self._c.references.add((self._functions, self._word(1)))
            self._at += 1
        elif self._word(1) == "<" and self._word(3) == ">" and self._word(4) == "(" and self._is_type(self._word(2)):
            self._c.explicit[self._length] = self._word(2)
            self._put(word, token.offset)
            self._at += 4
        elif self._is_type(word) and self._word(1) == "(":
            self._made(token)
        else:
            self._put(AUTO if word == "auto" else word, token.offset)
            self._at += 1

    def _made(self, token: _Token) -> None:
        """Write ``T(x)`` as a cast, and ``T(real, imaginary)`` as a call."""
        values = self._values()
        if values > 2 or (values == 2 and token.text != self._type):
            advice = f"write {self._type}(real, imaginary) or {token.text}(x)"
            raise refused(self._code, token.offset, f"{token.text} of {values} values", advice)
        if values == 2:
            self._c.explicit[self._length] = token.text
        self._put(COMPLEX_OF if values == 2 else f"({token.text})", token.offset)
        self._at += 1

    def _values(self) -> int:
        """Return how many values the parentheses after this token hold."""
        values, depth, ahead = 1, 0, 1
        while word := self._word(ahead):
            depth += (word == "(") - (word == ")")
            if not depth:
                break
            values += word == "," and depth == 1
            ahead += 1
        return values

    def _is_type(self, word: str) -> bool:
        return word in _ONE_WORD or word == self._type

    def _cast(self, token: _Token) -> None:
        words = []
        ahead = 2
        while self._word(ahead) not in (">", ""):
            words.append(self._word(ahead))
            ahead += 1
        if token.text != "static_cast" or self._word(1) != "<" or not words:
            raise refused(self._code, token.offset, f"{token.text} has no meaning in a body", "write static_cast<T>(x)")
        self._put(f"({' '.join(words)})", token.offset)
        self._at += ahead + 1
