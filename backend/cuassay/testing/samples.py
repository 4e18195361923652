"""Seeded inputs: arrays by shape, layout and range, made on the host, the same numbers on every machine.

Decides how numbers are drawn and laid out; which shapes an operation is given is decided in its OpSpec. One generator
feeds tests and benchmarks. Only the raw stream of NumPy's Philox is used, which NumPy keeps stable between
versions (NEP 19); its distributions it may change.
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
from cuassay.testing.declared import Declared

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
    "over_lists",
]

Shape = tuple[int, ...]

#: The range of numbers where none is asked for.
SPAN = (-3.0, 3.0)

#: What a sample is for; each generated check takes the samples of one kind.
Kind = Literal["values", "empty", "scalar", "broadcast", "promotion", "python", "extremal"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a view of some base array gets the wanted shape: the base's shape, and the view of it."""

    base: Callable[[Shape], Shape]
    view: Callable[[Any, Shape], Any]


def _every(step: slice) -> Callable[[Any, Shape], Any]:
    return lambda base, shape: base[(..., *(step,) * len(shape))]  # with the dots a view even in 0-d


#: Elements on both sides of an array whose surroundings are watched: more than one vector access, and aligned as it is.
MARGIN = 256

#: Only basic indexing and reshapes that are views, so that every array type can follow.
LAYOUTS: dict[str, Layout] = {
    "contiguous": Layout(lambda shape: shape, lambda base, shape: base),
    "transposed": Layout(lambda shape: shape[::-1], lambda base, shape: base.T),
    "reversed": Layout(lambda shape: shape, _every(slice(None, None, -1))),
    "strided": Layout(lambda shape: tuple(2 * extent for extent in shape), _every(slice(1, None, 2))),
    "odd_stride": Layout(
        lambda shape: (*shape[:-1], 3 * shape[-1]) if shape else shape,
        lambda base, shape: base[..., 2::3] if shape else base,
    ),
    # The first columns of a wider array: elements of a row are adjacent, rows are not.
    "pitched": Layout(
        lambda shape: (*shape[:-1], shape[-1] + 3) if shape else shape,
        lambda base, shape: base[..., : shape[-1]] if shape else base,
    ),
    # Three elements in: a pointer that no vector load wider than the element may touch.
    "offset": Layout(lambda shape: (_size(shape) + 3,), lambda base, shape: base[3:].reshape(shape)),
    # Contiguous and aligned, with poison on both sides: what a tail reads beyond the array shows in the result.
    "inside": Layout(
        lambda shape: (_size(shape) + 2 * MARGIN,),
        lambda base, shape: base[MARGIN : MARGIN + _size(shape)].reshape(shape),
    ),
}


def _size(shape: Shape) -> int:
    return int(np.prod(shape, dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class HostArray:
    """An input before it has a device: contiguous numbers, and the layout its view will have.

    Attributes
    ----------
    values : numpy.ndarray
        What the array holds, C-contiguous.
    layout : str
        One of `LAYOUTS`.
    span : tuple of two floats, optional
        The range that was asked for; None where none was.
    is_free : bool
        Drawn by `Samples` without a range: checks may fill it with numbers of any size.
    """

    values: NDArray[Any]
    layout: str = "contiguous"
    span: tuple[float, float] | None = None
    is_free: bool = False

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return self.values.dtype

    def laid_out(self, layout: str) -> HostArray:
        """The same numbers in another layout."""
        return replace(self, layout=layout)

    def base(self) -> NDArray[Any]:
        """The array underneath the view, its unused elements poisoned with the largest finite number."""
        layout = LAYOUTS[self.layout]
        base = np.full(layout.base(self.shape), _poison(self.dtype), self.dtype)
        layout.view(base, self.shape)[...] = self.values
        return base

    def on(self, device: Any) -> Any:
        """A fresh array on `device`, in this layout."""
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
    """One call: positional and named arguments, and a label that failures print.

    `HostArray` and `numpy.ndarray` arguments, alone or in a list, are moved to the device under test. `kind` says which
    check takes the call: ``"values"`` most of them, the others one each: ``"empty"`` (no elements), ``"scalar"`` (0-d),
    ``"broadcast"`` (shapes of different lengths), ``"promotion"`` (two dtypes), ``"python"`` (Python numbers next to
    arrays) and ``"extremal"`` (infinities, NaN and other edges of the dtype).

    Raises
    ------
    SpecError
        If `args` is not a tuple, or nothing tests samples of that `kind`.
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
        """Arguments as NumPy arrays: the sample's own, to be read only."""
        return self._changed(_to_numpy)

    def copied(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments as fresh NumPy arrays, for a function of a user's, which may write them."""
        return self._changed(lambda value: value.copy() if isinstance(value := _to_numpy(value), np.ndarray) else value)

    def on(self, device: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments as fresh arrays on `device`."""
        return self._changed(lambda value: _to_device(value, device))

    def laid_out(self, layout: str, *, only_first: bool = False) -> Sample:
        """The same call with every array, or the first one alone, in another layout."""
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
        """Arguments with each array, as NumPy's, changed; what `change` gives back unchanged stays the sample's own."""

        def put(value: Any) -> Any:
            array = _to_numpy(value)
            new = change(array)
            return value if new is array else new

        return self._changed(put)

    def _changed(self, change: Callable[[Any], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args = tuple(over_lists(value, change) for value in self.args)
        return args, {name: over_lists(value, change) for name, value in self.kwargs.items()}


def is_sorted(array: NDArray[Any]) -> bool:
    """Whether the numbers along the last axis are in order, as a function may require of edges or offsets."""
    return array.ndim > 0 and array.shape[-1] > 2 and bool((array[..., 1:] >= array[..., :-1]).all())


def is_permutation(array: NDArray[Any]) -> bool:
    """Whether the integers are each place once, in another order than theirs: a function may write where they say."""
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size < 3 or is_sorted(array):
        return False
    return bool(np.array_equal(np.sort(array), np.arange(array.size)))


def each(args: Iterable[Any], kwargs: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Every argument of a call, those in lists one by one."""
    for value in (*args, *(kwargs or {}).values()):
        yield from value if isinstance(value, list) else (value,)


def over_lists(value: Any, change: Callable[[Any], Any]) -> Any:
    """`change` of an argument; of those in a list, one by one."""
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
    """Makes the arrays of one test; what it makes depends on the seed, the salt and the order of the calls only.

    Parameters
    ----------
    seed : int
        The run's base seed (setting ``CUASSAY_SEED``).
    dtype : str
        Dtype of an array where none is given.
    salt : str
        Tells one operation's numbers from another's.
    """

    def __init__(self, seed: int, dtype: str, salt: str = "") -> None:
        self.seed = seed
        self.dtype = dtype
        self._stream = np.random.Philox(key=seed + (zlib.crc32(f"{salt}:{dtype}".encode()) << 64))

    def __repr__(self) -> str:
        return f"Samples(seed {self.seed}, {self.dtype})"

    def __call__(
        self,
        shape: int | Shape,
        *,
        low: float | None = None,
        high: float | None = None,
        dtype: str | None = None,
        layout: str = "contiguous",
    ) -> HostArray:
        """Uniform numbers in ``[low, high)``, by default -3 to 3; integers include `high`, unsigned ones start at 0.

        With either end given the function is taken to be meant for this range: no check goes beyond it by more than a
        rounding of its least number.
        """
        is_free = low is None and high is None
        span = (SPAN[0] if low is None else low, SPAN[1] if high is None else high)
        if low is not None and high is not None and low > high:
            raise SpecError(f"make: low={low!r} is above high={high!r}; exchange them")
        values = self._values(as_shape(shape), as_dtype(dtype or self.dtype), *span)
        return HostArray(np.asarray(values), layout, None if is_free else span, is_free)

    def full(self, shape: int | Shape, value: Any, *, dtype: str | None = None) -> HostArray:
        """The same number everywhere."""
        return HostArray(np.full(shape, value, as_dtype(dtype or self.dtype)))

    def of(self, values: Iterable[Any], *, dtype: str | None = None) -> HostArray:
        """These numbers, in one dimension."""
        return HostArray(np.array(list(values)).astype(as_dtype(dtype or self.dtype)))

    def extremal(self, *, largest: bool = True, dtype: str | None = None) -> HostArray:
        """What a dtype's edge is made of: zeros of both signs, subnormals, the largest numbers, infinities, NaN.

        Without `largest` it is for a function of unknown steps, which may overflow where the wider reference does not,
        and take subnormals for 0, as CuPy's float32 does, of which infinity makes NaN. Complex numbers get finite edges
        only: C and NumPy differ on infinity times a complex number.
        """
        return HostArray(_extremal(as_dtype(dtype or self.dtype), largest=largest))

    def far(self) -> HostArray:
        """Finite numbers whose exponentials are not: a function that shifts its argument first takes them.

        For functions with a reference only: one that overflows on the way would be its own excuse.
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
            return (least + np.floor((most - least) * self._uniform(shape))).astype(np.int64).astype(dtype)
        return (low + (high - low) * self._uniform(shape)).astype(dtype)

    def _uniform(self, shape: Shape) -> NDArray[np.float64]:
        raw = np.asarray(self._stream.random_raw(_size(shape)), dtype=np.uint64)
        return np.asarray((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)


#: Numbers after which a benchmark's large array repeats itself. A prime, so that no row equals another one.
BENCH_TILE = 1_048_573


class BenchSamples(Samples):
    """The numbers of benchmarks: a large array repeats its first `BENCH_TILE` numbers.

    Drawing 100 million numbers takes seconds, and measuring what uses them takes milliseconds.
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
    edges = [0.0, tiny / eps, 1.0, eps]  # a normal number starts where a unit of 1 is the smallest subnormal
    if largest:
        edges += [tiny, dtypes.largest(dtype)]
    if name not in COMPLEX:
        edges += [np.inf, np.nan]  # float8_e4m3fn has no infinity: the cast makes it NaN
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array([sign * edge for edge in edges for sign in (1.0, -1.0)]).astype(dtype)


def normalized(drawn: Iterable[Any]) -> Iterator[Sample]:
    """What a spec's generator gave, each as a labelled `Sample`: a tuple is the arguments, an array the only one."""
    for position, one in enumerate(drawn):
        sample = one if isinstance(one, Sample) else Sample(one if isinstance(one, tuple) else (one,))
        yield sample if sample.label else replace(sample, label=f"{position}: {_described(sample)}")


def joined(shape: Shape) -> str:
    """A shape as failures print it, such as 3x5."""
    return "x".join(map(str, shape)) or "0-d"


def _described(sample: Sample) -> str:
    shapes = [joined(one.shape) for one in each(sample.args) if hasattr(one, "shape")]
    told = [f"shape{'s' * (len(shapes) > 1)} {', '.join(shapes)}"] if shapes else []
    return ", ".join([*told, *(f"{name}={value!r}" for name, value in sample.kwargs.items())])
