"""Make mutants of CUDA C++ text from its tokens, after common faults in kernels.

A tokenizer is sufficient, because each operator replaces a few tokens. A mutant that does not compile is detected when
it runs, and counts neither for nor against the tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cuassay.mutation.mutant import Edit, Mutant, mutants_of

__all__ = [
    "CUDA_OPERATORS",
    "Token",
    "cuda_edits",
    "cuda_mutants",
    "kernels_in",
    "looks_like_cuda",
    "struct_at",
    "tokens_of",
]


class Token(NamedTuple):
    """One token and its place in the text."""

    text: str
    start: int
    end: int


_TOKEN = re.compile(
    r"""
    (?P<skip> //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:\\\n|[^\n])* | \s+
        | R"(?P<tag>[^(]*)\(.*?\)(?P=tag)" | "(?:\\.|[^"\\])*" )
    | (?P<token> '(?:\\.|[^'\\])*' | 0[xX][0-9a-fA-F]+[uUlL]*
        | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]* | [A-Za-z_]\w*
        | <<<|>>>|<<=|>>=|->\*|\.\.\.|::|->|\+\+|--|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<|>> | . )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)

_KERNEL = re.compile(r"\b__(?:global|device)__\b")

#: The words of a struct's head, joined by spaces, up to the brace that opens its body.
_STRUCT = re.compile(
    r"\b(?:struct|class) (?:alignas \( [^()]* \) )?(?P<name>[A-Za-z_]\w*)(?: final)?(?: <[^(]*>)?(?: : [^(]*)?$"
)

_NUMBER = re.compile(r"(?:\d|\.\d)")

_SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
}  # fmt: skip

_CALCULATED = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "+=": "-=", "-=": "+=", "*=": "/="}

_NAMES = {
    "max": "min", "min": "max", "fmax": "fmin", "fmin": "fmax", "fmaxf": "fminf", "fminf": "fmaxf",
    "threadIdx": "blockIdx", "blockDim": "gridDim",
}  # fmt: skip

#: From a type to the narrower one that a careless author might use.
_NARROWER = {
    "size_t": "int", "int64_t": "int", "uint64_t": "unsigned int", "ptrdiff_t": "int", "double": "float",
}  # fmt: skip

_BARRIERS = re.compile(r"__sync\w+|__threadfence\w*|\w*barrier\w*|\w*fence\w*|sync|wait\w*|\w+_wait\w*|arrive\w*")


def looks_like_cuda(text: str) -> bool:
    """Return whether a text contains a kernel or a device function."""
    return bool(_KERNEL.search(text))


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text, without comments, strings and preprocessor lines."""
    return [Token(m["token"], m.start(), m.end()) for m in _TOKEN.finditer(text) if m["token"] is not None]


def cuda_mutants(path: str, text: str) -> list[Mutant]:
    """Return the mutants of a CUDA C++ file."""
    return mutants_of(path, text, cuda_edits(text))


def cuda_edits(text: str) -> list[Edit]:
    """Return the changes of function bodies. Code outside of functions, such as tables and macros, is not changed."""
    tokens = tokens_of(text)
    bodies = list(_bodies(tokens))
    found = (
        Edit(name, start, end, replacement, _function_at(bodies, start))
        for name, operator in CUDA_OPERATORS.items()
        for index in range(len(tokens))
        for start, end, replacement in operator(tokens, index)
    )
    return sorted((edit for edit in found if edit.function), key=lambda edit: edit.start)


def kernels_in(text: str) -> list[str]:
    """Return the names of the kernels that a text defines."""
    tokens = tokens_of(text)
    by_start = {token.start: index for index, token in enumerate(tokens)}
    return [name for name, start, _ in _bodies(tokens) if "__global__" in _head(tokens, by_start[start])]


def struct_at(text: str, position: int) -> str:
    """Return the innermost struct or class whose body contains `position`; empty if there is none."""
    tokens = tokens_of(text)
    found = ""
    for brace, token in enumerate(tokens):
        if token.text == "{" and token.start <= position < tokens[_closing(tokens, brace)].end:
            found = _struct_before(tokens, brace) or found
    return found


def _struct_before(tokens: Sequence[Token], brace: int) -> str:
    """Return the struct whose body opens at `brace`; empty if it is another body."""
    begin = brace
    while begin > 0 and tokens[begin - 1].text not in {";", "{", "}"}:
        begin -= 1
    match = _STRUCT.search(" ".join(token.text for token in tokens[begin:brace]))
    return match["name"] if match else ""


def _head(tokens: Sequence[Token], brace: int) -> set[str]:
    """Return the words of a definition before the brace that opens its body."""
    begin = brace
    while begin > 0 and tokens[begin - 1].text not in {";", "}"}:
        begin -= 1
    return {token.text for token in tokens[begin:brace]}


def _bodies(tokens: Sequence[Token]) -> Iterator[tuple[str, int, int]]:
    """Yield the name, begin and end of each function: a name, parentheses, and braces outside of other functions."""
    index = 0
    while index < len(tokens):
        if tokens[index].text == "{" and (name := _name_before(tokens, index)):
            end = _closing(tokens, index)
            yield name, tokens[index].start, tokens[end].end
            index = end
        index += 1


def _name_before(tokens: Sequence[Token], brace: int) -> str:
    """Return the function whose body opens at `brace`; empty for a class, a namespace or an initializer list."""
    index = brace - 1
    while index >= 0 and tokens[index].text in {"const", "noexcept", "override"}:
        index -= 1
    if index < 0 or tokens[index].text != ")":
        return ""
    depth = 0
    while index >= 0:
        depth += {")": 1, "(": -1}.get(tokens[index].text, 0)
        if depth == 0:
            break
        index -= 1
    name = tokens[index - 1].text if index > 0 else ""
    return name if name.isidentifier() and name not in {"if", "for", "while", "switch"} else ""


def _function_at(bodies: Sequence[tuple[str, int, int]], position: int) -> str:
    return next((name for name, start, end in bodies if start <= position < end), "")


# ------------------------------------------------------------------------------------------------ operators

Change = tuple[int, int, str]
CudaOperator = Callable[[Sequence[Token], int], Iterator[Change]]

#: From a name to an operator.
CUDA_OPERATORS: dict[str, CudaOperator] = {}


def operator(name: str) -> Callable[[CudaOperator], CudaOperator]:
    """Register an operator under the name that reports show."""

    def register(function: CudaOperator) -> CudaOperator:
        CUDA_OPERATORS[name] = function
        return function

    return register


@operator("comparison")
def _comparison(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """A bound off by one, a test turned round, an `and` for an `or`."""
    token = tokens[index]
    if token.text in _SWAPPED and _is_binary(tokens, index):
        yield token.start, token.end, _SWAPPED[token.text]


@operator("arithmetic")
def _arithmetic(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """Another operator in the place of one, or a sum that keeps its last term only."""
    token = tokens[index]
    if token.text in _CALCULATED and _is_binary(tokens, index):
        yield token.start, token.end, _CALCULATED[token.text]
        if token.text == "+=":
            yield token.start, token.end, "="


@operator("term dropped")
def _term(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """A summand or a factor left out, such as a stride: a name or a number behind an operator."""
    if tokens[index].text in {"+", "-", "*"} and _is_binary(tokens, index) and index + 2 < len(tokens):
        term, after = tokens[index + 1], tokens[index + 2]
        if (term.text[0].isalnum() or term.text[0] == "_") and after.text not in {"(", "[", ".", "->", "::", "<"}:
            yield tokens[index - 1].end, term.end, ""


@operator("constant")
def _constant(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """The last digit of a number, in code."""
    token = tokens[index]
    if _NUMBER.match(token.text):
        yield token.start, token.end, _next_number(token.text)


@operator("barrier dropped")
def _barrier(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """A barrier, a fence or a wait left out."""
    if not _BARRIERS.fullmatch(tokens[index].text) or index + 1 >= len(tokens) or tokens[index + 1].text != "(":
        return
    start = index
    while start > 1 and tokens[start - 1].text in {".", "::", "->"}:
        start -= 2
    end = index + 1
    while end < len(tokens) and tokens[end].text != ";":
        end += 1
    begins = start == 0 or tokens[start - 1].text in {";", "{", "}", ")"}
    if begins and end < len(tokens):
        yield tokens[start].start, tokens[end].end, ";"


@operator("condition")
def _condition(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """A branch always or never taken, such as that for the tail."""
    if tokens[index].text != "if" or index + 1 >= len(tokens):
        return
    opened = index + 2 if tokens[index + 1].text == "constexpr" else index + 1
    closed = _closing(tokens, opened)
    if tokens[opened].text == "(" and opened + 1 < closed:
        for value in ("true", "false"):
            yield tokens[opened + 1].start, tokens[closed - 1].end, value


@operator("narrower type")
def _narrower(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """An index in 32 bits, an accumulator in half of its bits."""
    token = tokens[index]
    if token.text in _NARROWER:
        yield token.start, token.end, _NARROWER[token.text]
    elif token.text == "long" and index + 1 < len(tokens) and tokens[index + 1].text == "long":
        yield token.start, tokens[index + 1].end, "int"


@operator("name")
def _name(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """A minimum for a maximum, a block's index for a thread's, `false` for a test of NaN."""
    token = tokens[index]
    following = tokens[index + 1].text if index + 1 < len(tokens) else ""
    if token.text in _NAMES and following in {"(", "."}:
        yield token.start, token.end, _NAMES[token.text]
    if token.text in {"isnan", "isinf", "__hisnan"} and following == "(":
        yield token.start, token.end, "!"


@operator("neighbour")
def _neighbour(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """The element next to the right one."""
    if (
        tokens[index].text != "["
        or index == 0
        or not (tokens[index - 1].text[-1].isalnum() or tokens[index - 1].text in "])")
    ):
        return
    closed = _closing(tokens, index)
    if index + 1 < closed and not _NUMBER.match(tokens[closed - 1].text):
        yield tokens[closed].start, tokens[closed].start, " + 1"


@operator("atomic dropped")
def _atomic(tokens: Sequence[Token], index: int) -> Iterator[Change]:
    """An atomic sum as a plain one, which loses what another thread added meanwhile."""
    if tokens[index].text != "atomicAdd" or index + 1 >= len(tokens) or tokens[index + 1].text != "(":
        return
    closed = _closing(tokens, index + 1)
    comma = _comma(tokens, index + 2, closed)
    if comma is not None:
        address = " ".join(token.text for token in tokens[index + 2 : comma])
        value = " ".join(token.text for token in tokens[comma + 1 : closed])
        yield tokens[index].start, tokens[closed].end, f"(*({address}) += {value})"


def _closing(tokens: Sequence[Token], opened: int) -> int:
    """Return the index of the bracket that closes the one at `opened`, or of the last token if there is none."""
    depth = 0
    for index in range(opened, len(tokens)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(tokens[index].text, 0)
        if depth == 0:
            return index
    return len(tokens) - 1


def _comma(tokens: Sequence[Token], begin: int, end: int) -> int | None:
    """Return the index of the first comma that is not inside nested brackets, or None."""
    index = begin
    while index < end:
        if tokens[index].text == ",":
            return index
        index = _closing(tokens, index) + 1 if tokens[index].text in "([{" else index + 1
    return None


def _is_binary(tokens: Sequence[Token], index: int) -> bool:
    """Return whether an operator is binary, and not a template bracket, a pointer or a sign."""
    if index == 0 or index + 1 >= len(tokens):
        return False
    before, token, after = tokens[index - 1], tokens[index], tokens[index + 1]
    if not (before.text[-1].isalnum() or before.text[-1] in "_)]"):
        return False
    if before.text in {"return", "case", "operator", "template", "const", "typename", "auto"}:
        return False
    if token.text in {"<", ">", "*", "&"}:  # templates and pointers are written without spaces on both sides
        return before.end < token.start and token.end < after.start
    return True


_LAST_DIGIT = re.compile(r"\d(?=[^\d]*$)")


def _next_number(text: str) -> str:
    """Return a number with its last digit one higher: 4 becomes 5, 1.5f becomes 1.6f, 0x1f becomes 0x20."""
    if text[:2].lower() == "0x":
        digits = text.rstrip("uUlL")
        return hex(int(digits, 16) + 1) + text[len(digits) :]
    mantissa = re.match(r"[\d.]+", text)
    body = mantissa[0] if mantissa else text
    if "." not in body and not re.search(r"[eE]", text):
        return str(int(body) + 1) + text[len(body) :]
    return _LAST_DIGIT.sub(lambda digit: str((int(digit[0]) + 1) % 10), body) + text[len(body) :]
