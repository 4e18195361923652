"""Memory formats: whether the channels of images (N, C, H, W) are last in memory. Names and rules are torch's.

An op's output has its channels last if a rule of its schema says so. Softmax, layer_norm and reductions have no such
rule: as in torch, their results are in C order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cuassay.arrays.layout import is_channels_last, is_contiguous
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, ShapeError
from cuassay.ops import registry
from cuassay.ops.schema import Arguments

__all__ = [
    "asked",
    "copied",
    "every",
    "first",
    "new_like",
    "of",
    "suggest_memory_format",
    "wanted_of",
    "with_channels_last",
]

Array = Any
Shape = tuple[int, ...]

#: From the arguments by name and the shape of the output, of 4 dimensions, to whether its channels are last in memory.
Rule = Callable[[Arguments, Shape], bool]


def suggest_memory_format(array: Array) -> str:
    """Return the memory format that the strides of an array suggest, by the rule of torch's `suggest_memory_format`.

    Parameters
    ----------
    array : array
        An array of any kind and shape; only its shape and strides are read.

    Returns
    -------
    str
        ``"channels_last"`` if it has 4 dimensions (N, C, H, W) and its strides grow in the order C, W, H, N, with or
        without gaps; else ``"contiguous"``. Where axes of extent 1 make both true, their strides decide. Source:
        ``c10/core/MemoryFormat.h`` of PyTorch, ``is_channels_last_strides_2d``.

    Raises
    ------
    ArgumentError
        If `array` is not an array of any known device kind.
    """
    registry.owner_of(array, "the argument")
    return "channels_last" if is_channels_last(array.shape, array.strides) else "contiguous"


def with_channels_last(make: Callable[[Shape], Array], shape: Shape) -> Array:
    """Return an array of `shape`, (N, C, H, W), as a view of a new C-contiguous array (N, H, W, C)."""
    n, c, h, w = shape
    return make((n, h, w, c)).transpose(0, 3, 1, 2)


def new_like(array: Array, memory_format: str, make: Callable[[Shape], Array]) -> Array:
    """Return a new array of the shape of `array` in `memory_format`, from `make`, which gives arrays in C order.

    Raises
    ------
    ArgumentError
        If there is no such format.
    ShapeError
        If it is ``"channels_last"``, and the shape does not have 4 dimensions.
    """
    shape = tuple(array.shape)
    _check("empty_like", memory_format, shape)
    return with_channels_last(make, shape) if _is_last(array, memory_format) else make(shape)


def _check(name: str, memory_format: Any, shape: Shape) -> None:
    """Check that an array of `shape` can have `memory_format`, an argument of `name`.

    Raises
    ------
    ArgumentError
        If there is no such format.
    ShapeError
        If it is ``"channels_last"``, and the shape does not have 4 dimensions.
    """
    if not isinstance(memory_format, str) or memory_format not in ("contiguous", "channels_last", "preserve"):
        raise ArgumentError(
            f"{name}'s memory_format must be 'contiguous', 'channels_last' or 'preserve'; got {shown(memory_format)}"
        )
    if memory_format == "channels_last" and len(shape) != 4:
        raise ShapeError(
            f"{name}'s memory_format 'channels_last' needs 4 dimensions (N, C, H, W); got shape {shape}; give "
            "'contiguous' or 'preserve'"
        )


def wanted_of(array: Array, memory_format: str) -> str:
    """Return the format of a new array like `array`: what was asked for, or that of `array`."""
    return "channels_last" if _is_last(array, memory_format) else "contiguous"


def _is_last(array: Array, memory_format: str) -> bool:
    """Return whether a new array like `array` has its channels last, if `memory_format` was asked for."""
    if memory_format == "preserve":
        return is_channels_last(array.shape, array.strides)
    return memory_format == "channels_last"


# ------------------------------------------------------------------------------------------------ rules of schemas


def copied(bound: Arguments) -> Shape:
    """Return the shape of ``a``, which must be able to have the ``memory_format``: the shape rule of a copy."""
    shape = tuple(bound["a"].shape)
    _check("copy", bound["memory_format"], shape)
    return shape


def asked(bound: Arguments, shape: Shape) -> bool:
    """Give the output the ``memory_format`` that was asked for."""
    return _is_last(bound["a"], bound["memory_format"])


def of(name: str) -> Rule:
    """Make the rule that gives the output the format of the array `name`."""
    return lambda bound, shape: is_channels_last(bound[name].shape, bound[name].strides)


def every(bound: Arguments, shape: Shape) -> bool:
    """Put the channels last if they are last in each array of the list ``a``."""
    return all(is_channels_last(one.shape, one.strides) for one in bound["a"])


def first(names: Sequence[str]) -> Rule:
    """Make the rule of elementwise ops: the first of the arrays `names` that has the shape of the output decides.

    An array that is also C-contiguous, because of axes of extent 1, gives C order, as in torch's TensorIterator.
    """

    def rule(bound: Arguments, shape: Shape) -> bool:
        for name in names:
            array = bound[name]
            if getattr(array, "shape", None) == shape:
                strides = array.strides
                if strides[3] < strides[1]:  # most arrays; the call below costs as much as the rest of the rule
                    return False
                return is_channels_last(shape, strides) and not is_contiguous(shape, strides, array.dtype.itemsize)
        return False

    return rule
