"""A user's own CUDA C++ as something callable: compiled like ours, its arguments checked against its signature.

The signature is read from the source where the kernel is a plain function; of a template the driver still tells the
number and the sizes of the parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuassay.devices.cuda.block import Dims
from cuassay.devices.cuda.launch import Kernel
from cuassay.devices.cuda.source import Compiled, compile_source
from cuassay.errors import ArgumentError, DTypeError

__all__ = ["UserKernel", "compile_kernel", "parse_signature"]

#: C type to the dtype's name; a type that is not here is not checked.
_C_TYPES: dict[str, str] = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "long": "int64",
    "long long": "int64",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "size_t": "uint64",
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

_QUALIFIERS = re.compile(r"\b(const|volatile|__restrict__|restrict|__grid_constant__|struct)\b")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

#: What a Python number is passed as. An int also serves an unsigned parameter of 64 bits.
_PYTHON: dict[type, str] = {bool: "bool", int: "int64", float: "float64"}


def parse_signature(source: str, name: str) -> tuple[str, ...] | None:
    """The parameters of kernel `name` as ``"float32"`` or ``"float32*"``; ``"?"`` where unknown.

    Returns
    -------
    tuple of str or None
        None for a template, or where no such kernel is found in the text.
    """
    text = _COMMENTS.sub(" ", source)
    found = re.search(
        rf"(?P<template>template\s*<[^;{{}}]*>\s*)?(extern\s+\"C\"\s+)?__global__[^;{{}}()]*(\([^()]*\)[^;{{}}()]*)?"
        rf"\b{re.escape(name)}\s*\((?P<parameters>[^)]*)\)",
        text,
    )
    if found is None or found["template"]:
        return None
    parameters = found["parameters"].strip()
    return () if parameters in ("", "void") else tuple(map(_parameter, parameters.split(",")))


def _parameter(text: str) -> str:
    pointers = text.count("*") + text.count("[")
    plain = re.sub(r"\[[^]]*\]", " ", _QUALIFIERS.sub(" ", text).replace("*", " "))
    words = plain.split()
    kind = _C_TYPES.get(" ".join(words), _C_TYPES.get(" ".join(words[:-1]), "?"))  # the last word may be its name
    return kind + "*" if pointers == 1 else "?*" if pointers else kind


class UserKernel(Kernel):
    """A kernel from `compile_kernel`: ``kernel(grid, block, (arguments...), stream=None, shared=0)``."""

    def __init__(
        self, build: Callable[[str], Compiled], name: str, signature: tuple[str, ...] | None, shared_memory: int
    ) -> None:
        super().__init__(build, name)
        self.signature = signature
        self._shared_memory = shared_memory
        self._accepted: set[tuple[Any, ...]] = set()  # what was found right once is not looked at again

    def __call__(
        self, grid: Dims, block: Dims, arguments: Sequence[Any], *, stream: Any = None, shared: int = 0
    ) -> None:
        """Check `arguments` against the signature, then launch; see `Kernel`."""
        self._check(grid, block, arguments)
        super().__call__(grid, block, arguments, stream=stream, shared=shared or self._shared_memory)

    def bind(self, grid: Dims, block: Dims, arguments: Sequence[Any], *, shared: int = 0) -> Callable[[], None]:
        """Check `arguments` against the signature, then make the launch ready; see `Kernel`."""
        self._check(grid, block, arguments)
        return super().bind(grid, block, arguments, shared=shared or self._shared_memory)

    def _check(self, grid: Dims, block: Dims, arguments: Sequence[Any]) -> None:
        seen = (*map(_shape_key, (grid, block)), *[(type(one), getattr(one, "dtype", None)) for one in arguments])
        if seen in self._accepted:
            return
        check_shape("grid", grid)
        check_shape("block", block)
        if self.signature is not None:
            check_arguments(self.name, self.signature, arguments)
        if len(self._accepted) < _MOST_ACCEPTED:
            self._accepted.add(seen)


#: Forms of call that are remembered; grids may come in any number.
_MOST_ACCEPTED = 1024


def _shape_key(dims: Dims) -> Any:
    if isinstance(dims, list):
        return tuple(dims)
    return dims if isinstance(dims, int | tuple) else repr(dims)


def check_shape(what: str, dims: Any) -> None:
    """Raise unless `dims` is one to three positive integers."""
    numbers = tuple(dims) if isinstance(dims, tuple | list) else (dims,)
    if not 1 <= len(numbers) <= 3 or any(not isinstance(n, int | np.integer) or n < 1 for n in numbers):
        raise ArgumentError(f"{what} must be one to three whole numbers of 1 or more; got {dims!r}")


def check_arguments(name: str, signature: Sequence[str], arguments: Sequence[Any]) -> None:
    """Raise unless number and kinds of `arguments` are those of `signature`.

    Raises
    ------
    ArgumentError
        If the number is wrong.
    DTypeError
        If a kind is.
    """
    if len(arguments) != len(signature):
        raise ArgumentError(
            f"{name}({', '.join(signature)}) has {len(signature)} parameters; got {len(arguments)} arguments; give each"
        )
    for position, (wanted, argument) in enumerate(zip(signature, arguments, strict=True)):
        got = _kind(argument)
        if got is None or wanted in {"?", got} or (wanted, type(argument)) == ("uint64", int):
            continue
        if wanted != "?*" or not got.endswith("*"):
            found = f"{type(argument).__name__} ({got})"
            raise DTypeError(f"{name}: parameter {position} is {wanted}; got {found}; {_advice(wanted, argument)}")


def _kind(argument: Any) -> str | None:
    """The parameter that `argument` fits, or None where that is not known here."""
    if isinstance(argument, np.ndarray):
        raise DTypeError("a kernel cannot read host memory; got numpy.ndarray; copy it to the device: cupy.asarray")
    if isinstance(argument, np.generic):
        return str(argument.dtype.name)
    dtype = getattr(argument, "dtype", None)
    return f"{dtype.name}*" if isinstance(dtype, np.dtype) else _PYTHON.get(type(argument))


def _advice(wanted: str, argument: Any) -> str:
    if wanted.endswith("*"):
        return f"give a device array of {wanted[:-1]}, or declare the parameter otherwise"
    if type(argument) in _PYTHON:
        widest = {bool: "bool", int: "long long", float: "double"}[type(argument)]
        return f"give numpy.{wanted}(...), or declare the parameter as {widest}"
    return f"give a {wanted}, or declare the parameter otherwise"


def compile_kernel(
    source: str,
    name: str,
    *,
    signature: Sequence[str] | None = None,
    arch: str | None = None,
    options: Sequence[str] = (),
    include: Sequence[str | Path] = (),
    shared_memory: int = 0,
) -> UserKernel:
    """Make a kernel of CUDA C++ source callable; parameters and errors are those of `cuassay.cuda.compile_kernel`."""

    def build(target: str) -> Compiled:
        return compile_source(source, name_expressions=[name], arch=target, options=options, include=include)

    if arch is not None:
        build(arch)
    known = tuple(signature) if signature is not None else parse_signature(source, name)
    return UserKernel(build, name, known, shared_memory)
