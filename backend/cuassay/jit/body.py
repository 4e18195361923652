"""Parse a body to its functions, parameters and types, and reject constructs that are not supported."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cuassay.core import extras
from cuassay.errors import ArgumentError, CompileError, LibraryNotFoundError
from cuassay.jit.mathematics import CONSTANTS, FUNCTIONS
from cuassay.jit.text import AUTO, COMPLEX_OF, KEYWORD_TYPES, TYPES, CText, refused, to_c

__all__ = ["TEMPLATE", "Body", "Function", "Parameter", "declared_type", "read"]

#: Represents the type of the template among names of dtypes.
TEMPLATE = "T"

#: The kinds of pycparser nodes that may occur inside a function.
_ALLOWED = frozenset(
    "Assignment BinaryOp Break Cast Compound Constant Continue Decl DeclList DoWhile EmptyStatement ExprList For "
    "FuncCall ID IdentifierType If Return TernaryOp TypeDecl Typename UnaryOp While".split()
)
_WORDS = {
    "ArrayDecl": ("an array", "write one variable for each element"),
    "ArrayRef": ("an element of an array", "write one variable for each element"),
    "PtrDecl": ("a pointer", "a body gets values: write T x"),
    "StructRef": ("a member, as in a.x", "write one variable for each; real(x) and imag(x) are the parts of x"),
    "InitList": ("a list in braces", "write one value"),
    "Label": ("a label", "write a loop"),
}
_UNARY = frozenset({"+", "-", "!", "~", "++", "--", "p++", "p--"})
_LITERALS = frozenset(
    (
        "int",
        "unsigned int",
        "long int",
        "unsigned long int",
        "long long int",
        "unsigned long long int",
        "float",
        "double",
    )
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its name, its type (the name of a dtype, or `TEMPLATE`), and whether it is a reference."""

    name: str
    type: str
    is_reference: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a body. Its return type is the name of a dtype, `TEMPLATE` or ``"void"``."""

    name: str
    returns: str
    parameters: tuple[Parameter, ...]
    tree: Any


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A parsed body.

    Attributes
    ----------
    code : str
        The text that the user wrote.
    template : str
        The name of the template's type.
    entry : Function
        The last function, which is computed for each element.
    functions : mapping
        All functions by name. Each calls only those before it.
    explicit : mapping
        The explicit types of calls such as ``f<T>(x)``, by the column of the function's name in the tree.
    refusal : callable
        Makes the error for an unsupported node of a tree: ``(node, what, advice) -> CompileError``.
    """

    code: str
    template: str
    entry: Function
    functions: Mapping[str, Function]
    explicit: Mapping[int, str]
    refusal: Callable[[Any, str, str], CompileError]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the parameters that are read, including scalars."""
        return tuple(one.name for one in self.entry.parameters if not one.is_reference)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the parameters that are references; empty if the entry returns its result."""
        return tuple(one.name for one in self.entry.parameters if one.is_reference)


@functools.lru_cache(maxsize=256)
def read(code: str) -> Body:
    """Parse a body.

    Raises
    ------
    CompileError
        If a construct is not supported. The message has line, column and advice.
    ArgumentError
        If `code` is not a string.
    LibraryNotFoundError
        If pycparser is not installed.
    """
    if not isinstance(code, str):
        raise ArgumentError(
            f"a body is the text of a function template; got {code!r}; "
            "write 'template <typename T> T name(T x) { return ...; }'"
        )
    return _Reader(to_c(code)).body()


class _Reader:
    def __init__(self, text: CText) -> None:
        self._text = text

    def body(self) -> Body:
        functions: dict[str, Function] = {}
        for place, (tree, offset) in enumerate(self._definitions()):
            function = self._function(tree, place)
            known = {COMPLEX_OF: 2, **{name: one.arguments for name, one in FUNCTIONS.items()}}
            self._check(tree.body, known | {name: len(one.parameters) for name, one in functions.items()})
            parameters = (one.name for one in function.parameters)
            self._check_names(tree.body, {"true", "false", *CONSTANTS, *parameters, *_declared_in(tree.body)})
            if function.name in functions or function.name in FUNCTIONS:
                raise self._refused(offset, f"a second function named {function.name}", "give it another name")
            functions[function.name] = function
        entry = list(functions.values())[-1]
        outputs = [one for one in entry.parameters if one.is_reference]
        if (entry.returns == "void") != bool(outputs):
            what = "returns nothing and writes no reference" if not outputs else "returns a value and writes references"
            raise self._refused(0, f"{entry.name} {what}", "return T, or return void and write T& out")
        for function in list(functions.values())[:-1]:
            if function.returns == "void" or any(one.is_reference for one in function.parameters):
                raise self._refused(0, f"{function.name} gives no value", "only the last function may write references")
        explicit = {self._head + place + 1: self._named(name) for place, name in self._text.explicit.items()}
        return Body(self._text.code, self._text.type_name, entry, functions, explicit, self._refusal)

    def _definitions(self) -> Iterator[tuple[Any, int]]:
        """Yield the tree of each function and where it begins."""
        parse, failed, definition = _parser()
        names = [*(name for name in TYPES if " " not in name and name not in KEYWORD_TYPES), AUTO, self._text.type_name]
        head = "".join(f"typedef int {name};" for name in dict.fromkeys(names))
        self._head = len(head)
        try:
            tree = parse(head + self._text.text)
        except failed as error:
            place, what = self._unread(lambda text: parse(head + text), failed)
            raise self._refused(place, what, "correct it as C would have it") from error
        for node in tree.ext:
            if isinstance(node, definition):
                yield node, self._place(node)
            elif type(node).__name__ != "Typedef":
                raise self._refused(self._place(node), "something else than a function", "a body has functions alone")

    def _unread(self, parse: Callable[[str], Any], failed: type[Exception]) -> tuple[int, str]:
        """Find a syntax error: the token after the longest valid beginning. pycparser does not always report it."""
        places = [begun for begun, _ in self._text.starts] + [len(self._text.text)]
        for at in range(len(places) - 1, 0, -1):
            try:
                parse(self._text.text[: places[at]])
            except failed as error:
                if "end of input" not in str(error):
                    continue
            break
        if at == len(places) - 1:
            return len(self._text.text) - 1, "the body ends too early: a brace, a parenthesis or a semicolon is missing"
        found = self._text.text[places[at] : places[at + 1]].strip()
        before = self._text.text[places[at - 1] : places[at]].strip()
        missing = "; perhaps a ';' is missing before it" if found == "}" or before.isidentifier() else ""
        return places[at], f"{found!r} cannot stand here{missing}"

    def _function(self, tree: Any, place: int) -> Function:
        kind = tree.decl.type
        parameters = []
        for node in kind.args.params if kind.args else ():
            if type(node).__name__ != "Decl":
                raise self._refused(self._place(node), "a parameter without a name", "name it")
            parameters.append(Parameter(node.name, self._type(node.type), (place, node.name) in self._text.references))
        returns = "void" if _names(kind.type) == "void" else self._type(kind.type)
        return Function(tree.decl.name, returns, tuple(parameters), tree.body)

    def _check(self, node: Any, known: Mapping[str, int]) -> None:
        """Raise if `node` or a node below it is not supported."""
        name = type(node).__name__
        if name not in _ALLOWED:
            what, advice = _WORDS.get(name, (f"{name} of C", "write it with if, for, while and assignments"))
            raise self._refused(self._place(node), what, advice)
        if name in ("TypeDecl", "Typename"):
            self._type(node)
            return
        if name == "FuncCall":
            self._check_call(node, known)
        elif name == "UnaryOp" and node.op not in _UNARY:
            raise self._refused(self._place(node), f"the operator {node.op}", "a body has no pointers and no sizes")
        elif name == "Constant" and (node.type not in _LITERALS or "p" in node.value.lower()):
            raise self._refused(self._place(node), f"the constant {node.value}", "write a decimal number")
        elif name == "Assignment" or (name == "UnaryOp" and node.op in ("++", "--", "p++", "p--")):
            target = node.lvalue if name == "Assignment" else node.expr
            if type(target).__name__ != "ID":
                raise self._refused(self._place(node), "an assignment to no variable", "name a variable on the left")
        for _, child in node.children():
            if not (name == "FuncCall" and child is node.name):
                self._check(child, known)

    def _check_names(self, node: Any, declared: Collection[str]) -> None:
        """Raise if a variable is named that its function declares nowhere."""
        if type(node).__name__ == "ID" and node.name not in declared:
            raise self._refused(self._place(node), f"nothing declares {node.name!r}", "declare it, or add a parameter")
        for of, child in node.children():
            if (type(node).__name__, of) != ("FuncCall", "name"):
                self._check_names(child, declared)

    def _check_call(self, node: Any, known: Mapping[str, int]) -> None:
        if type(node.name).__name__ == "StructRef":
            raise self._refused(self._place(node), "a method", "write a function: real(x), imag(x), conj(x)")
        called = getattr(node.name, "name", "")
        if called not in known:
            hint = "functions of <cmath> and those written before it can be called"
            raise self._refused(self._place(node), f"an unknown function {called!r}", hint)
        given = len(node.args.exprs) if node.args else 0
        if given != known[called]:
            raise self._refused(self._place(node), f"{called} with {given} arguments", f"give {known[called]}")

    def _named(self, name: str) -> str:
        return TEMPLATE if name == self._text.type_name else TYPES[name]

    def _type(self, node: Any) -> str:
        found = declared_type(node, self._text.type_name)
        if found is None:
            shown = _WORDS.get(type(node).__name__, (f"the type {_names(node) or type(node).__name__}",))[0]
            raise self._refused(
                self._place(node), shown, f"write {self._text.type_name}, bool, an integer, float or double"
            )
        return found

    def _place(self, node: Any) -> int:
        coord = getattr(node, "coord", None) or getattr(getattr(node, "type", None), "coord", None)
        return coord.column - 1 - self._head if coord is not None else 0

    def _refusal(self, node: Any, what: str, advice: str) -> CompileError:
        return self._refused(self._place(node), what, advice)

    def _refused(self, place: int, what: str, advice: str) -> CompileError:
        return refused(self._text.code, self._text.origin(max(place, 0)), what, advice)


def _declared_in(node: Any) -> Iterator[str]:
    if type(node).__name__ == "Decl":
        yield node.name
    for _, child in node.children():
        yield from _declared_in(child)


def _names(node: Any) -> str:
    while hasattr(node, "type"):
        node = node.type
    return " ".join(getattr(node, "names", ()))


def declared_type(node: Any, template: str) -> str | None:
    """Return the type that a declaration or a cast names: the name of a dtype, `TEMPLATE`, `AUTO`, or None."""
    while type(node).__name__ in ("Typename", "TypeDecl", "Decl"):
        node = node.type
    if type(node).__name__ != "IdentifierType":
        return None
    names = " ".join(node.names)
    if names in (template, AUTO):
        return TEMPLATE if names == template else AUTO
    if len(node.names) > 1:  # unsigned long long int, in any order
        names = " ".join(sorted((word for word in node.names if word not in ("int", "signed")), reverse=True))
    return TYPES.get(names or "int")


@functools.cache
def _parser() -> tuple[Callable[[str], Any], type[Exception], type]:
    """Return pycparser's parser, its error, and its node type for function definitions."""
    try:
        from pycparser import c_ast, c_parser
    except ImportError:
        raise LibraryNotFoundError(
            "bodies of kernels are read by pycparser, which is not installed; "
            f"install it with: {extras.pip_install('jit')}"
        ) from None
    return lambda text: c_parser.CParser().parse(text), c_parser.ParseError, c_ast.FuncDef
