"""The kinds of devices: from a kind's name to its module, loaded at first use.

Built-in kinds are in one table. Others register by the entry point group ``cuassay.devices``: the name is the kind, and
the value is a module with a ``BACKEND`` (see `cuassay.core.protocols.Backend`). Nothing here imports a driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache, partial
from importlib import import_module, metadata
from typing import Any

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.arrays.layout import as_shape
from cuassay.arrays.subclasses import host_array
from cuassay.core.capability import Capabilities
from cuassay.core.device import Device
from cuassay.core.nearest import did_you_mean, usual_kind
from cuassay.core.protocols import Backend, PinnedMemory
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, CapabilityError, CuassayError, DeviceError, OutOfMemoryError, ShapeError
from cuassay.ops import formats, registry
from cuassay.ops.arguments import flag
from cuassay.ops.operation import Op
from cuassay.ops.outputs import is_read_only

__all__ = [
    "BUILT_IN",
    "ENTRY_POINT_GROUP",
    "backend",
    "capabilities",
    "copy",
    "empty",
    "empty_like",
    "empty_pinned",
    "find",
    "from_host",
    "full",
    "is_pinned",
    "kinds",
    "namespace",
    "supported_dtypes",
    "to_host",
    "unknown_kind",
    "why_unsupported",
    "zeros",
]

ENTRY_POINT_GROUP = "cuassay.devices"
"""The entry point group by which another package registers a device kind."""

BUILT_IN: dict[str, tuple[str, str]] = {
    "cpu": ("cuassay.devices.cpu", "numpy"),
    "sim": ("cuassay.devices.sim", "cuassay.devices.sim"),
    "cuda": ("cuassay.devices.cuda", "cupy"),
    "meta": ("cuassay.devices.meta", "cuassay.devices.meta"),
}
"""The built-in kinds: each with its module, and the package that its array types come from."""


@cache
def _modules() -> dict[str, str]:
    """Map each kind to its module's name, built-in kinds first; an entry point cannot replace a built-in kind."""
    found = {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return {kind: module for kind, (module, _) in BUILT_IN.items()} | {
        kind: module for kind, module in sorted(found.items()) if kind not in BUILT_IN
    }


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds, present or not, without loading any."""
    return tuple(_modules())


def backend(kind: str) -> Backend:
    """Return the backend of `kind`, loading it if necessary.

    Raises
    ------
    DeviceError
        If no kind has that name.
    """
    named: object = kind  # callers without a type checker pass anything
    if not isinstance(named, str) or named not in _modules():
        raise DeviceError(unknown_kind(named))
    return _load(kind)


def unknown_kind(kind: object) -> str:
    """Return the message for a `kind` that no installed package provides: the nearest name, and all names."""
    if isinstance(kind, Device):
        return f"there is no device kind {kind!r}, which is a device; give its kind, {kind.kind!r}"
    return (
        f"there is no device kind {shown(kind)}{did_you_mean(usual_kind(str(kind)), kinds())}; "
        f"known: {', '.join(kinds())}; "
        f"install the package that adds another kind (entry point group {ENTRY_POINT_GROUP!r})"
    )


@cache
def _load(kind: str) -> Backend:
    loaded: Backend = import_module(_modules()[kind]).BACKEND
    registry.register_backend(loaded)
    return loaded


def find(name: str | Device) -> Device:
    """Return the device of that name, which must exist.

    Raises
    ------
    DeviceError
        If its kind is unknown or absent, or has fewer devices.
    """
    device = Device(name)
    found = backend(device.kind)
    reason = found.why_absent()
    if reason is not None:
        raise DeviceError(f"{device} does not exist: {reason}")
    if device.index >= found.count():
        last = Device(device.kind, found.count() - 1)
        raise DeviceError(
            f"{device} does not exist; {found.count()} {device.kind} devices are here; the last is {last}"
        )
    return device


@cache
def _capabilities(device: Device) -> Capabilities:
    found = backend(device.kind)
    return Capabilities(device, lambda name: found.probe(device.index, name))


def capabilities(name: str | Device) -> Capabilities:
    """Return what an existing device can do; answers are cached. Raises `DeviceError` if it does not exist."""
    return _capabilities(find(name))


def why_unsupported(op: Op, name: str | Device, dtype: Any) -> str | None:
    """Return why `op` does not run in `dtype` on this device (no kernel, or no capability), or None if it does."""
    _check_op(op)
    device = find(name)
    if not isinstance(dtype, str):
        dtype = dtype_name(as_dtype(dtype))
    if dtype not in op.dtypes(device.kind):
        return f"{device}: {op.name} has no kernel for {dtype}"
    return capabilities(device).missing(f"storage:{dtype}") or capabilities(device).missing(
        f"{op.schema.op_class}:{dtype}"
    )


def supported_dtypes(op: Op, name: str | Device) -> tuple[str, ...]:
    """Return the registry dtypes in which `op` runs on this device: a kernel exists and the device supports it."""
    _check_op(op)
    return tuple(dtype for dtype in op.schema.dtypes if why_unsupported(op, name, dtype) is None)


def _check_op(op: Any) -> None:
    if not isinstance(op, Op):
        raise ArgumentError(f"op must be an operation; got {shown(op)}; give one such as cuassay.ops.add")


def namespace(name: str | Device) -> Any:
    """Return the device's array namespace, ``xp``: NumPy's names, with arrays made on that device.

    If the device is current, as in every test of it, this is NumPy or CuPy itself, so that ``xp is cupy`` works. CuPy
    always makes arrays on the device that is current at the time of the call.
    """
    device = find(name)
    return backend(device.kind).namespace(device.index)


@cache
def _place(name: str | Device) -> tuple[Backend, int]:
    """Return the backend and index of a name, cached because finding a device takes longer than making an array."""
    device = find(name)
    return backend(device.kind), device.index


def empty(shape: int | Sequence[int], dtype: Any, device: str | Device, *, stream: Any = None) -> Any:
    """Return an uninitialised C-contiguous array on `device`.

    Parameters
    ----------
    shape : int or sequence of int
        The extents.
    dtype : str or numpy.dtype
        The type of the elements.
    device : str or Device
        The device.
    stream : object, optional
        The stream whose order the memory follows; None is the device's current stream. On kind cuda it may be a cuassay
        or CuPy stream, an address, or any object with ``__cuda_stream__``.

    Raises
    ------
    OutOfMemoryError
        If there is not enough memory.
    CapabilityError
        If the device has no arrays of `dtype`.
    DeviceError
        If `stream` belongs to another device.
    ShapeError
        If an extent is not a whole number, or is below 0.
    """
    owner, index = _place(device)
    try:
        extents = shape if type(shape) is tuple else as_shape(shape)
        if extents and min(extents) < 0:  # two negative extents give a positive size
            raise ValueError("negative extents are not allowed")  # noqa: TRY301  reported with the others below
        return owner.empty(extents, dtype, index) if stream is None else owner.empty(extents, dtype, index, stream)
    except CuassayError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise ShapeError(f"{shown(shape)} is not a shape: {error}; give whole numbers, 0 or more") from error


def full(shape: int | Sequence[int], fill_value: Any, dtype: Any, device: str | Device, *, stream: Any = None) -> Any:
    """Return a C-contiguous array on `device` filled with `fill_value` on `stream`; see `empty` for the parameters.

    Raises
    ------
    ArgumentError
        If `fill_value` is not a single number that `dtype` can hold; other errors as in `empty`.
    """
    owner, index = _place(device)
    array = empty(shape, dtype, device, stream=stream)
    try:
        with owner.activate(index), nullcontext() if stream is None else owner.use_stream(stream):
            array.fill(fill_value)
    except CuassayError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(
            f"fill_value must be one number that {dtype_name(array.dtype)} can hold; got {shown(fill_value)}; give one"
        ) from error
    return array


def zeros(shape: int | Sequence[int], dtype: Any, device: str | Device, *, stream: Any = None) -> Any:
    """Return a C-contiguous array of zeros on `device`, filled on `stream`; see `empty` for parameters and errors."""
    return full(shape, 0, dtype, device, stream=stream)


def empty_like(
    array: Any, *, dtype: Any = None, device: Any = None, stream: Any = None, memory_format: str = "preserve"
) -> Any:
    """Return an uninitialised array with the shape of `array`, and by default its dtype, device and memory format.

    Raises
    ------
    ArgumentError
        If `array` is not an array of any known device kind; other errors as in `empty` and `cuassay.ops.copy`.
    """
    home = registry.device_of(array, "the argument")
    make = partial(empty, dtype=array.dtype if dtype is None else dtype, device=home if device is None else device)
    return formats.new_like(array, memory_format, partial(make, stream=stream))


def from_host(array: Any, device: str | Device) -> Any:
    """Return a copy on `device` of a `numpy.ndarray`, or of anything `numpy.asarray` accepts; strides keep their order.

    Raises
    ------
    DeviceError
        If `device` does not exist.
    CapabilityError
        If it has no arrays of that dtype.
    ArgumentError
        If it is or holds a masked array, an `np.matrix` or another subclass with its own rules, or NumPy cannot make a
        single array of it.
    """
    found = find(device)
    return backend(found.kind).from_host(host_array(array), found.index)


def to_host(array: Any) -> Any:
    """Return a copy of a device array as `numpy.ndarray`, after waiting for it.

    Raises
    ------
    ArgumentError
        If `array` is not an array of any known device kind.
    """
    return registry.owner_of(array, "the argument").to_host(array)


def empty_pinned(shape: int | tuple[int, ...], dtype: Any, device: str | Device) -> Any:
    """Return an uninitialised C-contiguous host array that `device` copies to and from asynchronously.

    On CUDA it is a `numpy.ndarray`; on the simulated device it is an array that detects reads that come too early.

    Raises
    ------
    CapabilityError
        If host memory cannot be pinned for this device.
    OutOfMemoryError
        If there is not enough host memory.
    ShapeError
        If an extent is not a whole number, or is below 0.
    """
    found = find(device)
    capabilities(found).require(["pinned_memory"])
    extents = as_shape(shape)
    try:
        return _transfers(found.kind).empty_pinned(extents, dtype, found.index)
    except CuassayError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(
            f"no host memory to pin for shape {extents}; got: {error}; use fewer elements"
        ) from error
    except (OverflowError, ValueError) as error:
        raise ShapeError(f"{shown(shape)} is too large a shape; got: {error}; use fewer elements") from error


def is_pinned(array: Any) -> bool:
    """Whether `array` is in pinned host memory of any device kind loaded so far."""
    return any(isinstance(one, PinnedMemory) and one.is_pinned(array) for one in registry.backends())


def copy(src: Any, dst: Any, *, non_blocking: bool = False) -> Any:
    """Copy `src` into `dst`, of the same shape and dtype, in order of the current stream of the device involved.

    Between host and device it is ``dst.copy_(src, non_blocking=True)`` of torch: with pinned host memory the call
    returns at once, and until the copy is done (wait for its stream, or for an event recorded after it) neither array
    may be written, and `dst` may not be read. Dropping the arrays is safe, because their memory is not reused before.
    Copies from or to pageable host memory make the host wait, silently, as in torch.

    Parameters
    ----------
    src, dst : array
        Arrays of the host, or of a device; two devices must be of the same kind.
    non_blocking : bool
        Whether not to wait if host memory is pinned.

    Returns
    -------
    array
        `dst`.

    Raises
    ------
    ArgumentError
        If shapes or dtypes differ; between two devices' arrays it is the `ShapeError` or `DTypeError` of ``ops.copy``.
    CapabilityError
        If the kinds cannot copy to each other in stream order.
    CaptureError
        If the host would have to wait while the stream is being captured.
    """
    origin, target = _device_kind(src), _device_kind(dst)
    if origin is not None and target is not None:
        return registry.op("copy")(src, out=dst)
    for array, name in ((src, "src"), (dst, "dst")):
        if not is_pinned(array):
            registry.owner_of(array, f"copy's {name}")
    if is_read_only(dst):
        raise ArgumentError(f"copy's dst is read-only; got shape {tuple(dst.shape)}; give a writable array")
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise ArgumentError(
            f"copy takes two arrays of one shape and dtype; got {src.shape}, {dtype_name(src.dtype)} and {dst.shape}, "
            f"{dtype_name(dst.dtype)}; cast or reshape first"
        )
    kind = origin or target
    if kind is None:
        dst[...] = src
    else:
        _transfers(kind).transfer(src, dst, non_blocking=flag("non_blocking", non_blocking))
    return dst


def _device_kind(array: Any) -> str | None:
    """Return the device kind that `array` is on, or None on the host."""
    owner = registry.backend_of(type(array))
    return None if owner is None or owner.kind == "cpu" else owner.kind


@cache
def _transfers(kind: str) -> PinnedMemory:
    found = backend(kind)
    if not isinstance(found, PinnedMemory):
        raise CapabilityError(f"{kind}: copies in stream order are not offered; use cuassay.ops.copy, which waits")
    return found


def _load_for_type(array_type: type) -> bool:
    """Load the kind of an unknown array type: by module for built-in kinds, otherwise every matching external kind."""
    module = f"{array_type.__module__}."
    root = module.partition(".")[0]
    wanted = [kind for kind, (_, package) in BUILT_IN.items() if module.startswith(f"{package}.")] or [
        kind for kind in kinds() if kind not in BUILT_IN and _modules()[kind].partition(".")[0] == root
    ]
    for kind in wanted:
        _load(kind)
    return bool(wanted)


registry.set_loaders(for_type=_load_for_type, for_kind=lambda kind: _load(kind) if kind in _modules() else None)
