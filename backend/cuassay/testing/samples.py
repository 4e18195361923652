"""Make seeded inputs on the host: arrays by shape, layout and range, with the same numbers on every machine.

This module decides how numbers are drawn and laid out; an OpSpec decides which shapes an operation gets. Tests and
benchmarks use the same generator. Of NumPy's Philox only the raw stream is used, which NumPy keeps stable between
versions (NEP 19), unlike its distributions.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays import dtypes
from cuassay.arrays.dtypes import COMPLEX, INTEGERS, as_dtype, dtype_name, epsilon, smallest_subnormal
from cuassay.arrays.layout import as_shape
from cuassay.devices import from_host
from cuassay.errors import SpecError
from cuassay.testing.asked import asked_dtype, refuse_unknown
from cuassay.testing.declared import Declared
from cuassay.testing.layouts import LAYOUTS, MARGIN, Layout

__all__ = [
    "BENCH_TILE",
    "LAYOUTS",
    "MARGIN",
    "SPAN",
    "BenchSamples",
    "HostArray",
    "Kind",
    "Layout",
    "Sample",
    "Samples",
    "each",
    "is_permutation",
    "is_sorted",
    "joined",
    "normalized",
    "over_arguments",
    "over_lists",
]

Shape = tuple[int, ...]

#: The range of numbers if none is requested.
SPAN = (-3.0, 3.0)

#: The purpose of a sample; each generated check uses the samples of some kinds.
Kind = Literal["values", "empty", "scalar", "broadcast", "promotion", "python", "extremal"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def _size(shape: Shape) -> int:
    return int(np.prod(shape, dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class HostArray:
    """An input that is not on a device yet: its numbers, and the layout of the array that will hold them.

    Attributes
    ----------
    values : numpy.ndarray
        The numbers, C-contiguous.
    layout : str
        A key of `LAYOUTS`.
    span : tuple of two floats, optional
        The requested range; None if there is none.
    is_free : bool
        Whether `Samples` drew the numbers without a requested range; checks may then use numbers of any size.
    """

    values: NDArray[Any]
    layout: str = "contiguous"
    span: tuple[float, float] | None = None
    is_free: bool = False

    def __post_init__(self) -> None:
        """Make an array of a number: NumPy's functions return one for an array without an axis."""
        object.__setattr__(self, "values", np.asarray(self.values))

    @property
    def shape(self) -> Shape:
        """The shape of the array."""
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        return self.values.dtype

    def laid_out(self, layout: str) -> HostArray:
        """The same numbers in another layout."""
        return replace(self, layout=layout)

    def base(self) -> NDArray[Any]:
        """The base array of the view, with its unused elements set to the largest finite number."""
        layout = LAYOUTS[self.layout]
        if self.layout == "contiguous":
            return np.array(self.values, order="C")
        base = np.full(layout.base(self.shape), _poison(self.dtype), self.dtype)
        layout.view(base, self.shape)[...] = self.values
        return base

    def on(self, device: Any) -> Any:
        """A new array on `device`, in this layout."""
        return LAYOUTS[self.layout].view(from_host(self.base(), device), self.shape)

    def __repr__(self) -> str:
        return f"HostArray({self.shape}, {dtype_name(self.dtype)}, {self.layout})"


def _poison(dtype: np.dtype[Any]) -> Any:
    if dtype == np.bool_:
        return True
    if dtype_name(dtype) in INTEGERS:
        return np.iinfo(dtype).max
    return dtypes.largest(dtype)


@dataclass(frozen=True, slots=True)
class Sample(Declared):
    """One call: positional and keyword arguments, and a label that failures print.

    `HostArray` and `numpy.ndarray` arguments, alone or in a list, are moved to the device under test. `kind` decides
    which checks use the call. Most checks use ``"values"``. One check each uses ``"empty"`` (no elements), ``"scalar"``
    (0-d), ``"broadcast"`` (shapes of different lengths), ``"promotion"`` (two dtypes), ``"python"`` (Python numbers
    next to arrays) and ``"extremal"`` (infinities, NaN and other special numbers of the dtype).

    Raises
    ------
    SpecError
        If `args` is not a tuple, or `kind` is unknown.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    kind: Kind = "values"

    def __post_init__(self) -> None:
        if not isinstance(self.args, tuple):
            raise SpecError(f"a Sample takes a call's arguments as a tuple; got {self.args!r}; write Sample((a, b))")
        if self.kind not in KINDS:
            raise SpecError(f"a sample has kind {self.kind!r}; give one of {', '.join(KINDS)}")

    def host(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as NumPy arrays; they are shared with the sample, so do not write to them."""
        return self._changed(_to_numpy)

    def copied(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as new NumPy arrays, for a user's function, which may write to them."""
        return self._changed(lambda value: value.copy() if isinstance(value := _to_numpy(value), np.ndarray) else value)

    def on(self, device: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as new arrays on `device`."""
        return self._changed(lambda value: _to_device(value, device))

    def laid_out(self, layout: str, *, only_first: bool = False) -> Sample:
        """The same call with every array, or only the first, in another layout."""
        met = False

        def put(value: Any) -> Any:
            nonlocal met
            if not isinstance(value, HostArray | np.ndarray) or (only_first and met):
                return value
            met = True
            return _laid_out(value, layout)

        args, kwargs = self._changed(put)
        return replace(self, args=args, kwargs=kwargs, label=f"{self.label}, {layout}")

    def changed(self, change: Callable[[Any], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with `change` applied to each NumPy array; an array that it returns itself stays as it was."""

        def put(value: Any) -> Any:
            array = _to_numpy(value)
            new = change(array)
            return value if new is array else new

        return self._changed(put)

    def _changed(self, change: Callable[[Any], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return over_arguments(self.args, self.kwargs, change)


def is_sorted(array: NDArray[Any]) -> bool:
    """Whether the numbers along the last axis are sorted, as a function may require of edges or offsets."""
    return array.ndim > 0 and array.shape[-1] > 2 and bool((array[..., 1:] >= array[..., :-1]).all())


def is_permutation(array: NDArray[Any]) -> bool:
    """Whether the integers are each index once, unsorted: a function may use them as places to write to."""
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size < 3 or is_sorted(array):
        return False
    return bool(np.array_equal(np.sort(array), np.arange(array.size)))


def each(args: Iterable[Any], kwargs: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """The arguments of a call, with the members of lists as separate items."""
    for value in (*args, *(kwargs or {}).values()):
        yield from value if isinstance(value, list) else (value,)


def over_arguments(
    args: Iterable[Any], kwargs: Mapping[str, Any], change: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Apply `change` to each argument of a call, and to each member of a list among them."""
    return tuple(over_lists(one, change) for one in args), {k: over_lists(one, change) for k, one in kwargs.items()}


def over_lists(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to an argument, or to each member of a list."""
    return [over_lists(one, change) for one in value] if isinstance(value, list) else change(value)


def _laid_out(value: Any, layout: str) -> Any:
    if isinstance(value, np.ndarray):
        return HostArray(np.ascontiguousarray(value), layout)
    return value.laid_out(layout) if isinstance(value, HostArray) else value


def _to_numpy(value: Any) -> Any:
    return value.values if isinstance(value, HostArray) else value


def _to_device(value: Any, device: Any) -> Any:
    if isinstance(value, HostArray):
        return value.on(device)
    return from_host(value, device) if isinstance(value, np.ndarray) else value


class Samples:
    """Makes the arrays of one test. They depend only on the seed, the salt and the order of the calls.

    Parameters
    ----------
    seed : int
        The base seed of the run (setting ``CUASSAY_SEED``).
    dtype : str
        The default dtype of arrays.
    salt : str
        Makes the numbers of different operations different.
    """

    def __init__(self, seed: int, dtype: str, salt: str = "") -> None:
        self.seed = seed
        self.dtype = dtype
        self._owner = salt
        self._stream = np.random.Philox(key=seed + (zlib.crc32(f"{salt}:{dtype}".encode()) << 64))

    def __repr__(self) -> str:
        return f"Samples(seed {self.seed}, {self.dtype})"

    def __call__(
        self,
        shape: int | Shape,
        *others: Any,
        low: float | None = None,
        high: float | None = None,
        dtype: str | None = None,
        layout: str = "contiguous",
        **unknown: Any,
    ) -> HostArray:
        """Make uniform random numbers in ``[low, high)``, by default -3 to 3.

        Integers include `high`, and unsigned integers start at 0. If `low` or `high` is given, the function is assumed
        to be meant for this range: checks exceed it at most by a rounding of its least number.
        """
        refuse_unknown((shape, *others), unknown, self._owner)
        is_free = low is None and high is None
        span = (SPAN[0] if low is None else low, SPAN[1] if high is None else high)
        if low is not None and high is not None and low > high:
            raise SpecError(f"make: low={low!r} is above high={high!r}; exchange them")
        values = self._values(as_shape(shape), asked_dtype(dtype or self.dtype, self._owner), *span)
        return HostArray(np.asarray(values), layout, None if is_free else span, is_free)

    def full(self, shape: int | Shape, value: Any, *, dtype: str | None = None) -> HostArray:
        """Make an array with the same number everywhere."""
        return HostArray(np.full(shape, value, asked_dtype(dtype or self.dtype, self._owner)))

    def of(self, values: Iterable[Any], *, dtype: str | None = None) -> HostArray:
        """Make a one-dimensional array of these numbers."""
        return HostArray(np.array(list(values)).astype(asked_dtype(dtype or self.dtype, self._owner)))

    def extremal(self, *, largest: bool = True, dtype: str | None = None) -> HostArray:
        """Make an array of special numbers: zeros of both signs, subnormals, the largest numbers, infinities, NaN.

        Without `largest` the array suits a function of unknown steps. These may overflow where the wider reference does
        not. They may also flush subnormals to 0, as CuPy does in float32, which infinity turns into NaN. Complex arrays
        have only finite numbers, because C and NumPy differ on infinity times a complex number.
        """
        return HostArray(_extremal(asked_dtype(dtype or self.dtype, self._owner), largest=largest))

    def far(self) -> HostArray:
        """Make finite numbers whose exponentials overflow, unless the function shifts its argument first.

        Only for functions with a reference: a function that is its own reference would overflow on both sides.
        """
        most = 2 * math.log(dtypes.largest(as_dtype(self.dtype)))
        return self.of([-most, -1, 0, 1, most])

    def _values(self, shape: Shape, dtype: np.dtype[Any], low: float, high: float) -> NDArray[Any]:
        if dtype == np.bool_:
            return self._uniform(shape) < 0.5
        if dtype_name(dtype) in COMPLEX:
            parts = [low + (high - low) * self._uniform(shape) for _ in range(2)]
            return (parts[0] + 1j * parts[1]).astype(dtype)
        if dtype_name(dtype) in INTEGERS:
            limits = np.iinfo(dtype)
            least, most = max(int(low), limits.min), min(int(high), limits.max) + 1
            steps = np.asarray(np.floor((most - least) * self._uniform(shape)))
            if most <= _EXACT >= -least:
                return (least + steps).astype(np.int64).astype(dtype)
            return np.add(steps.astype(np.uint64), np.uint64(least % 2**64)).astype(dtype)  # wraps around to the sum
        return (low + (high - low) * self._uniform(shape)).astype(dtype)

    def _uniform(self, shape: Shape) -> NDArray[np.float64]:
        raw = np.asarray(self._stream.random_raw(_size(shape)), dtype=np.uint64)
        return np.asarray((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)


#: Float64 holds every integer up to this one.
_EXACT = 2**53

#: The length after which a benchmark's large array repeats. It is a prime, so that no two rows are equal.
BENCH_TILE = 1_048_573


class BenchSamples(Samples):
    """Makes arrays for benchmarks; a large array repeats its first `BENCH_TILE` numbers.

    Drawing 100 million numbers would take seconds, although a measurement takes milliseconds.
    """

    def _values(self, shape: Shape, dtype: np.dtype[Any], low: float, high: float) -> NDArray[Any]:
        if _size(shape) <= BENCH_TILE:
            return super()._values(shape, dtype, low, high)
        return np.resize(super()._values((BENCH_TILE,), dtype, low, high), shape)


def _extremal(dtype: np.dtype[Any], *, largest: bool) -> NDArray[Any]:
    name = dtype_name(dtype)
    if dtype == np.bool_:
        return np.array([False, True])
    if name in INTEGERS:
        if not largest:
            return np.array([0, 1, 2], dtype)
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1], dtype)
    tiny, eps = smallest_subnormal(dtype), epsilon(dtype)
    edges = [0.0, tiny / eps, 1.0, eps]  # the smallest normal number is the smallest subnormal divided by epsilon
    if largest:
        edges += [tiny, dtypes.largest(dtype)]
    if name not in COMPLEX:
        edges += [np.inf, np.nan]  # float8_e4m3fn has no infinity, so the cast makes it NaN
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array([sign * edge for edge in edges for sign in (1.0, -1.0)]).astype(dtype)


def normalized(drawn: Iterable[Any], *, first: int = 0) -> Iterator[Sample]:
    """Make labelled samples of what a spec's function yields: a tuple holds the arguments, an array is the only one.

    The labels count from `first`.
    """
    for position, one in enumerate(drawn, first):
        sample = one if isinstance(one, Sample) else Sample(one if isinstance(one, tuple) else (one,))
        yield sample if sample.label else replace(sample, label=f"{position}: {_described(sample)}")


def joined(shape: Shape) -> str:
    """A shape as failures print it, such as 3x5."""
    return "x".join(map(str, shape)) or "0-d"


def _described(sample: Sample) -> str:
    shapes = [joined(one.shape) for one in each(sample.args) if hasattr(one, "shape")]
    told = [f"shape{'s' * (len(shapes) > 1)} {', '.join(shapes)}"] if shapes else []
    return ", ".join([*told, *(f"{name}={value!r}" for name, value in sample.kwargs.items())])
