"""Read public lists of matrix products from a file of shapes, as products of row-major matrices.

The file is JSON, and each list in it names its origin. Models list the (n, k) of their weights and the values of m.
DeepBench lists column-major (m, n, k) and which operand is transposed. The result includes the layout of each operand,
because it affects the choice of a kernel as much as the extents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from cuassay.errors import ArgumentError

__all__ = ["DEEPBENCH_COUNT", "GemmShape", "evenly", "read_shapes", "spread_out"]

T = TypeVar("T")

#: How many of DeepBench's shapes are used.
DEEPBENCH_COUNT = 60

_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmShape:
    """The product ``(m, k) @ (k, n)``.

    Attributes
    ----------
    m, n, k : int
        The extents.
    layout : str
        The layout of each operand: ``N`` if its rows are contiguous, ``T`` if its columns are. A linear layer is
        ``NT``.
    dtype, out_dtype : str
        The dtype of both operands, and that of the result.
    """

    m: int
    n: int
    k: int
    layout: str = "NT"
    dtype: str = "bfloat16"
    out_dtype: str = "bfloat16"

    @property
    def flops(self) -> int:
        """The number of floating-point operations in the definition."""
        return 2 * self.m * self.n * self.k

    def __str__(self) -> str:
        to = "" if self.out_dtype == self.dtype else f" to {self.out_dtype}"
        return f"{self.m}x{self.n}x{self.k} {self.layout}{to}"


def read_shapes(path: str | Path) -> dict[str, tuple[GemmShape, ...]]:
    """Read the products of a file, by the names of its lists. Several lists may contain the same product.

    Raises
    ------
    ArgumentError
        If the file cannot be read, or is not a file of shapes.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        found = {name: tuple(reader(data[name])) for name, reader in _READERS.items() if name in data}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"{path} gives no shapes: {error!r}; it must have the form of suites/data/gemm_shapes.json"
        ) from error
    if not found:
        raise ArgumentError(f"{path} gives no shapes: it has none of the lists {', '.join(_READERS)}")
    return found


def _layers(data: Mapping[str, Any]) -> Iterator[GemmShape]:
    """Yield the linear layers of a model."""
    for n, k in data["nk"]:
        for m in data["m"]:
            yield GemmShape(m=m, n=n, k=k)


def _deepseek(data: Mapping[str, Any]) -> Iterator[GemmShape]:
    """Yield forward products (m, n, k), gradients of inputs (m, k, n) and of weights (n, m, k), as in the source."""
    for n, k in data["nk_bf16_out"]:
        for m in sorted({*data["m_forward"], *data["readme_2025_m"]}):
            yield GemmShape(m=m, n=n, k=k)
        for m in data["m_backward"]:
            yield GemmShape(m=m, n=k, k=n, layout="NN")
            yield GemmShape(m=n, n=m, k=k, layout="TN")
    for n, k in data["nk_fp32_out"]:
        for m in data["m_forward"]:
            yield GemmShape(m=m, n=n, k=k, out_dtype="float32")


def _deepbench(data: Mapping[str, Any]) -> Iterator[GemmShape]:
    """Yield shapes evenly from training and inference.

    A column-major product is the row-major product of the transposes in reverse order.
    """
    listed = chain.from_iterable(data["sets"].values())
    for m, n, k, transpose_a, transpose_b in evenly(list(dict.fromkeys(map(tuple, listed))), DEEPBENCH_COUNT):
        yield GemmShape(m=n, n=m, k=k, layout=f"{'NT'[transpose_b]}{'NT'[transpose_a]}")


def _squares(extents: Iterable[int]) -> Iterator[GemmShape]:
    for extent in extents:
        yield GemmShape(m=extent, n=extent, k=extent, layout="NN")


_READERS: dict[str, Callable[[Any], Iterator[GemmShape]]] = {
    "deepseek_v3": _deepseek,
    "llama3_8b": _layers,
    "llama3_70b_tp1": _layers,
    "llama3_405b_tp8": _layers,
    "gpt2_124m_nanogpt": _layers,
    "square": _squares,
    "deepbench": _deepbench,
}


def evenly(items: Sequence[T], count: int) -> list[T]:
    """Return `count` equally spaced items, beginning with the first; all items if there are not more."""
    if count >= len(items):
        return list(items)
    return [items[place * len(items) // count] for place in range(count)]


def spread_out(items: Sequence[T]) -> list[T]:
    """Return all items in an order whose every beginning covers the list evenly, by the golden ratio.

    A loop over them that is cut short has then covered all parts of the list equally.
    """
    return [items[place] for place in sorted(range(len(items)), key=lambda place: place * _GOLDEN % 1.0)]
