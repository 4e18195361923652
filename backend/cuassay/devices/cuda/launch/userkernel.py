"""A user's CUDA C++ kernel as a callable, which checks its arguments against the kernel's signature.

The signature is read from the source if the kernel is a plain function. For a template the driver still reports the
number and the sizes of the parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.nearest import did_you_mean
from cuassay.core.words import shown
from cuassay.devices.cuda.launch.block import Dims, Launch
from cuassay.devices.cuda.launch.launch import Kernel, Loaded
from cuassay.devices.cuda.launch.source import Compiled, compile_source
from cuassay.errors import ArgumentError, DeviceError, DTypeError
from cuassay.ops import registry

__all__ = ["CheckedLaunch", "UserKernel", "compile_kernel", "parse_reads", "parse_signature"]

#: C type to dtype name; other types are not checked.
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

#: The type that a Python number is passed as. An int is also accepted for an unsigned parameter of 64 bits.
_PYTHON: dict[type, str] = {bool: "bool", int: "int64", float: "float64"}

#: What to do on a kind of device that runs no kernels.
_ELSEWHERE = (
    'on cpu and sim, let the function compute the same without the kernel: if xp.__name__ != "cupy": return ...'
)


def parse_signature(source: str, name: str) -> tuple[str, ...] | None:
    """Return the parameters of kernel `name` as ``"float32"`` or ``"float32*"``; ``"?"`` if the type is unknown.

    Returns
    -------
    tuple of str or None
        None for a template, or if the text has no such kernel.
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


def parse_reads(source: str, name: str) -> tuple[bool, ...]:
    """Return, for each parameter of kernel `name`, whether it points to ``const``; empty if there is no such kernel.

    Templates are read too, because const does not depend on the type.
    """
    found = re.search(rf"__global__[^;{{}}]*?\b{re.escape(_plain_name(name))}\s*\(", _COMMENTS.sub(" ", source))
    if found is None:
        return ()
    text = _COMMENTS.sub(" ", source)[found.end() :]
    return tuple(map(_is_read, _top_level(text)))


def _plain_name(name: str) -> str:
    """Return ``add`` for the name expression ``ns::add<float, 4>``."""
    return name.partition("<")[0].rpartition("::")[2].strip()


def _top_level(text: str) -> list[str]:
    """Split the parameter list at the start of `text` at its commas, except for those inside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "(<[{") - (letter in ")>]}")
        if depth < 0:
            break
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _is_read(text: str) -> bool:
    """Whether a parameter points to const: ``const float*``, ``float const*``; not ``float* const``."""
    pointed, star, _ = text.partition("*")
    return bool(star) and text.count("*") == 1 and re.search(r"\bconst\b", pointed) is not None


def _parameter(text: str) -> str:
    pointers = text.count("*") + text.count("[")
    plain = re.sub(r"\[[^]]*\]", " ", _QUALIFIERS.sub(" ", text).replace("*", " "))
    words = plain.split()
    kind = _C_TYPES.get(" ".join(words), _C_TYPES.get(" ".join(words[:-1]), "?"))  # the last word may be its name
    return kind + "*" if pointers == 1 else "?*" if pointers else kind


class CheckedLaunch(Launch):
    """An argument block that checks, at each launch, whether its arrays have the dtypes of the kernel's signature."""

    __slots__ = ("_has_foreign", "_name", "_signature", "_typed")

    def __init__(self, handle: int, types: Sequence[type], name: str, signature: Sequence[str]) -> None:
        super().__init__(handle, types)
        self._name, self._signature = name, signature
        self._typed = tuple((start, place, _element(signature[place])) for start, place in self.address_words)
        own = {place for _, place in self.address_words}
        self._has_foreign = any(wanted.endswith("*") for place, wanted in enumerate(signature) if place not in own)

    def write(self, arguments: Sequence[Any]) -> None:
        """Store `arguments`, whose types are the block's; raise `DTypeError` if an array has the wrong dtype."""
        if self._has_foreign:
            check_arguments(self._name, self._signature, arguments)
        words = self.words
        for start, place, dtype in self._typed:
            array = arguments[place]
            if dtype is not None and array.dtype is not dtype:
                check_arguments(self._name, self._signature, arguments)
            words[start] = array.data.ptr
        for start, place, store in self._others:
            store(words, start, arguments[place])

    def bind(self, grid: Dims, block: Dims, shared: int = 0, stream: int = 0) -> Callable[[], int]:
        """See `Launch`; raise `ArgumentError` if an extent is less than 1."""
        check_shape("grid", grid)
        check_shape("block", block)
        return super().bind(grid, block, shared, stream)


def _element(kind: str) -> Any:
    """Return the dtype that a parameter of `kind` points to, or None if it is unknown."""
    return as_dtype(kind[:-1]) if kind.endswith("*") and kind != "?*" else None


class UserKernel(Kernel):
    """A kernel from `compile_kernel`: ``kernel(grid, block, (arguments...), stream=None, shared=0)``.

    Arguments are checked against the signature before any device is used, and dtypes again at each launch. `reads` says
    which parameters point to const, as far as the source shows.
    """

    def __init__(
        self,
        build: Callable[[str], Compiled],
        name: str,
        signature: tuple[str, ...] | None,
        shared_memory: int,
        reads: tuple[bool, ...] = (),
    ) -> None:
        super().__init__(build, name, shared_memory)
        self.signature = signature
        self.reads = reads

    def __call__(
        self, grid: Dims, block: Dims, arguments: Sequence[Any], *, stream: Any = None, shared: int = 0
    ) -> None:
        """Check `arguments` against the signature, then launch; see `Kernel`."""
        if not self._by_device:  # once loaded, the argument blocks check
            self._check(grid, block, arguments)
        Kernel.__call__(self, grid, block, arguments, stream=stream, shared=shared)

    def bind(self, grid: Dims, block: Dims, arguments: Sequence[Any], *, shared: int = 0) -> Callable[[], None]:
        """Check `arguments` against the signature, then prepare the launch; see `Kernel`."""
        self._check(grid, block, arguments)
        return super().bind(grid, block, arguments, shared=shared)

    def _check(self, grid: Dims, block: Dims, arguments: Sequence[Any]) -> None:
        check_shape("grid", grid)
        check_shape("block", block)
        refuse_other_kinds(self.name, arguments)
        if self.signature is not None:
            check_arguments(self.name, self.signature, arguments)

    def _admit(self, loaded: Loaded, types: tuple[type, ...], arguments: Sequence[Any] | None) -> list[Launch]:
        if arguments is not None:
            refuse_other_kinds(self.name, arguments)
            if self.signature is not None:
                check_arguments(self.name, self.signature, arguments)
        return super()._admit(loaded, types, arguments)

    def _new_launch(self, loaded: Loaded, types: Sequence[type]) -> Launch:
        return CheckedLaunch(loaded.handle, types, self.name, self.signature or ("?",) * len(types))


def check_shape(what: str, dims: Any) -> None:
    """Raise `ArgumentError` unless `dims` is one to three positive integers."""
    numbers = tuple(dims) if isinstance(dims, tuple | list) else (dims,)
    if not 1 <= len(numbers) <= 3 or any(not isinstance(n, int | np.integer) or n < 1 for n in numbers):
        raise ArgumentError(f"{what} must be one to three whole numbers of 1 or more; got {dims!r}")


def refuse_other_kinds(name: str, arguments: Sequence[Any]) -> None:
    """Raise `DeviceError` if an argument is an array of a device without CUDA, such as a simulated one."""
    for argument in arguments:
        if type(argument) in _PYTHON or isinstance(argument, np.generic | np.ndarray):
            continue
        owner = registry.backend_of(type(argument))
        if owner is not None and not hasattr(argument, "__cuda_array_interface__"):
            raise DeviceError(
                f"{name}: a kernel runs only on a CUDA device; got an array of kind {owner.kind!r}; {_ELSEWHERE}"
            )


def check_arguments(name: str, signature: Sequence[str], arguments: Sequence[Any]) -> None:
    """Check that the number and the kinds of `arguments` match `signature`.

    Raises
    ------
    ArgumentError
        If the number is wrong.
    DTypeError
        If a kind is wrong.
    """
    if len(arguments) != len(signature):
        raise ArgumentError(
            f"{name}({', '.join(signature)}) has {len(signature)} parameters; got {len(arguments)} arguments; "
            "give one for each parameter"
        )
    for position, (wanted, argument) in enumerate(zip(signature, arguments, strict=True)):
        got = _kind(argument)
        if got is None or wanted in {"?", got} or (wanted, type(argument)) == ("uint64", int):
            continue
        if wanted != "?*" or not got.endswith("*"):
            found = f"{type(argument).__name__} ({got})"
            raise DTypeError(f"{name}: parameter {position} is {wanted}; got {found}; {_advice(wanted, argument)}")


def _kind(argument: Any) -> str | None:
    """Return the parameter type that `argument` fits, or None if it is unknown."""
    if isinstance(argument, np.ndarray):
        raise DTypeError(
            "a kernel cannot read host memory; got numpy.ndarray; copy it to a CUDA device (cupy.asarray); "
            + _ELSEWHERE
        )
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
    """Make a kernel of CUDA C++ source callable; see `cuassay.cuda.compile_kernel` for parameters and errors."""
    _check_name(source, name)

    def build(target: str) -> Compiled:
        return compile_source(source, name_expressions=[name], arch=target, options=options, include=include)

    if arch is not None:
        build(arch)
    known = tuple(signature) if signature is not None else parse_signature(source, name)
    return UserKernel(build, name, known, shared_memory, parse_reads(source, name))


#: The name of a kernel in its definition, after an attribute such as ``__launch_bounds__(256)``.
_DEFINED = re.compile(r"__global__[^;{}()]*(?:\([^()]*\)[^;{}()]*?)?\b(\w+)\s*\(")

#: What may define a kernel that the text itself does not name: a header, or a macro that pastes names together.
_DEFINES_MORE = re.compile(r"#\s*include\s*(?!<cuda_(?:fp16|bf16|fp8)\.h>)|##")


def _check_name(source: str, name: str) -> None:
    """Raise `ArgumentError` if the text does not name the kernel and includes nothing that may define it."""
    text, plain = _COMMENTS.sub(" ", source), _plain_name(name)
    is_named = "__global__" in text and re.search(rf"\b{re.escape(plain)}\b", text)
    if not plain or is_named or _DEFINES_MORE.search(text):
        return
    kernels = list(dict.fromkeys(_DEFINED.findall(text)))
    if not kernels:
        raise ArgumentError(
            f"the source of kernel {name!r} defines no kernel; got {shown(source)}; give CUDA C++, and for a file its "
            "text: Path(...).read_text()"
        )
    raise ArgumentError(
        f"the source defines no kernel {name!r}{did_you_mean(plain, kernels)}; it defines {', '.join(kernels)}; "
        "give the name of one"
    )
