"""Check that a test leaves device memory, the current stream and the precision mode as they were.

Every generated check runs inside `guarded`, and your own tests may use it too. `products_as_asked` is for tests of
computations: it finds float32 products that are computed in a lower precision than asked for, such as an unwanted TF32.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.arrays.rounding import round_tf32, round_to, split
from cuassay.core.device import Device
from cuassay.core.precision import current_precision, resolved
from cuassay.core.units import format_bytes
from cuassay.ops import Call, interpose, products
from cuassay.testing.tolerance import MODE_EPS

__all__ = [
    "LeakError",
    "computed_precision",
    "guarded",
    "memory_returned",
    "precision_kept",
    "products_as_asked",
    "stream_kept",
]


class LeakError(AssertionError):
    """A block has left more device memory in use than before."""


@contextmanager
def guarded(device: str | Device) -> Iterator[None]:
    """Apply all guards of this module; the `AssertionError` says what the block has left changed."""
    __tracebackhide__ = True
    with ExitStack() as stack:
        for guard in (memory_returned, stream_kept):
            stack.enter_context(guard(device))
        stack.enter_context(precision_kept())
        yield


@contextmanager
def memory_returned(device: str | Device) -> Iterator[None]:
    """Raise `LeakError` if more device memory is in use after the block than before.

    This works for kinds whose backend has ``memory_in_use(index)``, the live bytes of this process. The driver's free
    memory cannot be used, because pools keep memory and other processes take it. If arrays of an earlier test, left in
    reference cycles, are collected inside the block, they hide a leak of as many bytes. Collecting before each block
    would double its time.
    """
    found = Device(device)
    in_use = getattr(devices.backend(found.kind), "memory_in_use", None)
    before = 0 if in_use is None else in_use(found.index)
    yield
    if in_use is None:
        return
    left = in_use(found.index) - before
    for generation in range(3):  # arrays in reference cycles do not count as a leak, and new ones are in generation 0
        if left <= 0:
            return
        gc.collect(generation)
        left = in_use(found.index) - before
    if left > 0:
        raise LeakError(
            f"{found}: {format_bytes(left)} ({left:,} bytes) of device memory are still in use after the test; "
            "a cache, a list or an attribute holds an array of it: drop it"
        )


@contextmanager
def stream_kept(device: str | Device) -> Iterator[None]:
    """Raise `AssertionError` if another stream is current after the block."""
    found = Device(device)
    backend = devices.backend(found.kind)
    before = backend.current_stream(found.index)
    yield
    after = backend.current_stream(found.index)
    if after != before:
        raise AssertionError(f"{found}: the current stream is {after!r} after the test, it was {before!r}")


@contextmanager
def precision_kept() -> Iterator[None]:
    """Raise `AssertionError` if another precision mode is in force after the block."""
    before = current_precision()
    yield
    if current_precision() != before:
        raise AssertionError(f"the precision mode is {current_precision()!r} after the test, it was {before!r}")


# ------------------------------------------------------------------------------------------------ stray precision

#: The most rows and columns of each product that are compared.
_MOST_COMPARED = 64


@dataclass(frozen=True, slots=True)
class _Product:
    """A product inside a call's result: ``result = rest + factor * (a @ b)``."""

    a: Any
    b: Any
    result: Any
    rest: Any = None
    factor: Any = 1.0

    def on_host(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Some rows of `a`, some columns of `b`, and their product."""
        part = slice(_MOST_COMPARED)
        looked_at = self.a[..., part, :], self.b[..., part], self.result[..., part, part]
        a, b, product = map(devices.to_host, looked_at)
        if self.rest is not None:
            rest = np.broadcast_to(devices.to_host(self.rest), self.result.shape)
            product = product.astype(np.float64) - rest[..., part, part]
        return a, b, product / self.factor


def _plain(given: Mapping[str, Any], result: Any) -> Iterator[_Product]:
    yield _Product(given["a"], given["b"], result)


def _added(given: Mapping[str, Any], result: Any) -> Iterator[_Product]:
    if given.get("activation") is None and given["alpha"] != 0:
        rest = None if given["beta"] == 0 else devices.to_host(given["c"]) * given["beta"]
        yield _Product(given["a"], given["b"], result, rest, given["alpha"])


def _layer(given: Mapping[str, Any], result: Any) -> Iterator[_Product]:
    if given["activation"] is None:
        yield _Product(given["a"], given["weight"].T, result, given["bias"])


def _grouped(given: Mapping[str, Any], result: Any) -> Iterator[_Product]:
    a, b = given["a"], given["b"]
    for group, (first, last) in enumerate(products.groups(given["offs"], len(b), len(a))):
        yield _Product(a[first:last], b[group], result[first:last])


#: Op name to a function that yields the products in its result, from the arguments by name.
_PRODUCTS: dict[str, Callable[[Mapping[str, Any], Any], Iterator[_Product]]] = {
    "matmul": _plain,
    "mm": _plain,
    "bmm": _plain,
    "addmm": _added,
    "baddbmm": _added,
    "linear": _layer,
    "grouped_mm": _grouped,
}


def computed_precision(a: NDArray[Any], b: NDArray[Any], result: NDArray[Any]) -> str:
    """The mode in which `result`, a float32 product of `a` and `b`, was computed: the one whose result is closest.

    If a lower mode represents the operands exactly, its result is the same, and "ieee" is returned.
    """
    found, least = "ieee", _distance(result, np.matmul(a.astype(np.float64), b.astype(np.float64)))
    for mode, multiply in _LOWER_MODES.items():
        distance = _distance(result, multiply(a, b))
        if 2 * distance < least:  # in doubt, the more precise mode is assumed
            found, least = mode, distance
    return found


def _of_rounded(rounding: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[..., NDArray[Any]]:
    return lambda a, b: np.matmul(rounding(a).astype(np.float64), rounding(b).astype(np.float64))


def _of_two_parts(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    (a0, a1), (b0, b1) = ([part.astype(np.float64) for part in split(x, "bfloat16", 2)] for x in (a, b))
    return np.asarray(np.matmul(a0, b0 + b1) + np.matmul(a1, b0))


#: Functions that compute a product in each mode below float32, with exact sums; the most precise mode comes first.
_LOWER_MODES: dict[str, Callable[..., NDArray[Any]]] = {
    "bf16x3": _of_two_parts,
    "tf32": _of_rounded(round_tf32),
    "fp16": _of_rounded(lambda x: round_to(x, "float16")),
    "bf16": _of_rounded(lambda x: round_to(x, "bfloat16")),
}


def _distance(result: NDArray[Any], expected: NDArray[Any]) -> float:
    with np.errstate(all="ignore"):
        return float(np.nan_to_num(np.linalg.norm((result - expected).ravel()), nan=np.inf))


@contextmanager
def products_as_asked() -> Iterator[None]:
    """Raise `AssertionError` if a float32 product in the block is computed in a lower precision than asked for.

    The message names the op, its shapes and both modes. Calls of `matmul` (of matrices and stacks), `mm`, `bmm`,
    `addmm`, `baddbmm` and `linear` without activation, and `grouped_mm`, are compared. Plans, products of vectors and
    `slow_conv2d` are not. The guard reads results, so it cannot be used in a capture.
    """

    def watch(call: Call, proceed: Callable[[Call], Any]) -> Any:
        found = _PRODUCTS.get(call.op.name)
        given = call.arguments if found is None else _arguments_before(call)
        result = proceed(call)
        if found is not None and result.dtype == np.float32:
            for product in found(given, result):
                _check_product(call, product)
        return result

    with interpose(watch):
        yield


def _arguments_before(call: Call) -> Mapping[str, Any]:
    """The arguments, with a copy of the array that the result may overwrite."""
    name = call.op.schema.accumulates
    if not name or call.out is None:
        return call.arguments
    return {**call.arguments, name: devices.to_host(call.arguments[name])}


def _check_product(call: Call, product: _Product) -> None:
    a, b = product.a, product.b
    if a.dtype != np.float32 or b.dtype != np.float32 or not product.result.size or min(a.ndim, b.ndim) < 2:
        return
    found = computed_precision(*product.on_host())
    asked = resolved(call.arguments.get("precision"))
    if MODE_EPS.get(found, 0.0) > MODE_EPS.get(asked, 0.0):
        raise AssertionError(
            f"{call.op.name} of {tuple(a.shape)} and {tuple(b.shape)} was asked for in {asked!r}, computed in {found!r}"
        )
