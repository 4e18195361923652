"""Tuning of matrix products by ``torch.cuda.tunable``'s names; importing this loads no CUDA library.

While it is enabled, a product is tuned where it is first called with its layout: the algorithms of cuBLASLt, cuBLAS and
kernels of our own race on random operands, cold, in replays of graphs; the way without tuning is left for a gain above
2 % and above twice the spread (above the latter alone for a library's own first choice), by a candidate whose result
agrees. float32 products by parts (bf16x6 and the like) are not tuned: their kernel is chosen by size.

Never inside a capture, whoever began it: call once before, or what it met is tuned at the next call outside. What was
found is added to a file, one for each GPU model, driver and library version; other files are refused, never changed. A
choice in a file that cannot be used here is reported once, and the call uses the default instead.

Where we differ from torch: `set_max_tuning_duration` is for all candidates of a product together; results are checked
unless that is turned off, by tolerances of their dtype; a file that cannot be used raises `TuningError` with the field
that differs, or warns where it is only met; files are JSON lines; scaled and batched products are tuned as others are.
Results of one extent are not used for others: there is no ``dynamic_dims_mask``, nor a wildcard fallback.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cuassay.cuda.naming import DeviceLike, index_of
from cuassay.errors import ArgumentError, StateError

if TYPE_CHECKING:
    from cuassay.devices.cuda.blas.tuning import Tuner
    from cuassay.tune.results import Result

__all__ = [
    "enable",
    "get_cublaslt_requested_algo_count",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_rotating_buffer_size",
    "get_untuned_filename",
    "get_validators",
    "is_enabled",
    "mgpu_tune_gemm_in_file",
    "read_file",
    "record_untuned_enable",
    "record_untuned_is_enabled",
    "set_cublaslt_requested_algo_count",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "set_numerical_check_tolerances",
    "set_rotating_buffer_size",
    "set_untuned_filename",
    "tune_gemm_in_file",
    "tuning_enable",
    "tuning_is_enabled",
    "write_file",
    "write_file_on_exit",
]


def _tuner() -> Tuner:
    from cuassay.devices.cuda.driver.check import guarded

    with guarded("tuning"):
        from cuassay.devices.cuda.blas.tuning import tuner

    return tuner()


def _current() -> int:
    from cuassay import cuda

    return cuda.current_device()


# ------------------------------------------------------------------------------------------------ switches


def enable(val: bool = True) -> None:
    """Use what tuning found; and tune, or record, what it does not know, as these are on."""
    _tuner().configure(enabled=bool(val))


def is_enabled() -> bool:
    """Whether tuning takes part."""
    return _tuner().options.enabled


def tuning_enable(val: bool = True) -> None:
    """Tune products that are not known; off: known ones only are used."""
    _tuner().configure(tuning=bool(val))


def tuning_is_enabled() -> bool:
    """Whether unknown products are tuned."""
    return _tuner().options.tuning


def record_untuned_enable(val: bool = True) -> None:
    """Write products that are neither known nor tuned to a file: see `set_untuned_filename`."""
    _tuner().configure(recording=bool(val))


def record_untuned_is_enabled() -> bool:
    """Whether they are written down."""
    return _tuner().options.recording


# ------------------------------------------------------------------------------------------------ limits


def set_max_tuning_duration(duration: int) -> None:
    """Most milliseconds of the search for one product, all its candidates together."""
    _set_limits(seconds=_positive("a duration in ms", duration) * 1e-3)


def get_max_tuning_duration() -> int:
    """Most milliseconds of the search for one product."""
    return round(_tuner().options.limits.seconds * 1e3)


def set_max_tuning_iterations(iterations: int) -> None:
    """Most samples of one candidate, but for the few that the last comparison needs."""
    _set_limits(iterations=_positive("a number of iterations", iterations))


def get_max_tuning_iterations() -> int:
    """Most samples of one candidate."""
    return _tuner().options.limits.iterations


def _set_limits(**changed: Any) -> None:
    _tuner().configure(limits=replace(_tuner().options.limits, **changed))


def _positive(what: str, number: int) -> int:
    if number < 1:
        raise ArgumentError(f"{what} must be 1 or more; got {number!r}; give a positive whole number")
    return number


def set_cublaslt_requested_algo_count(count: int) -> None:
    """How many algorithms cuBLASLt is asked for, at each limit of workspace."""
    _tuner().configure(algorithms=_positive("a number of algorithms", count))


def get_cublaslt_requested_algo_count() -> int:
    """How many algorithms cuBLASLt is asked for."""
    return _tuner().options.algorithms


def set_rotating_buffer_size(buffer_size: int) -> None:
    """Set how many MiB the operands that a search rotates must exceed.

    0 uses the same operands each time; a negative number means three level-2 caches.
    """
    _tuner().configure(rotating_nbytes=None if buffer_size < 0 else buffer_size * 2**20)


def get_rotating_buffer_size() -> int:
    """MiB; -1: three level-2 caches."""
    nbytes = _tuner().options.rotating_nbytes
    return -1 if nbytes is None else nbytes // 2**20


def set_numerical_check_tolerances(enable: bool, atol: float | None = None, rtol: float | None = None) -> None:
    """By how much a result may differ from that without tuning: atol of its root mean square, plus rtol of the element.

    Without tolerances, those of its dtype.

    Raises
    ------
    ArgumentError
        If only one is given, or one is negative.
    """
    if (atol is None) != (rtol is None) or min(atol or 0.0, rtol or 0.0) < 0:
        raise ArgumentError(f"atol and rtol must both be 0 or more; got atol={atol!r}, rtol={rtol!r}; give both")
    _tuner().configure(checking=bool(enable), tolerances=None if atol is None or rtol is None else (rtol, atol))


# ------------------------------------------------------------------------------------------------ files


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """Keep results in this file, read when next asked for; ``%d`` in it is replaced by the device's index.

    What was found here and is in no file yet belongs to this one from here, as all results do in torch. Two GPUs of one
    model may share a file. An empty name: one in the cache folder, by GPU and versions.
    """
    _tuner().configure(path=_with_ordinal(filename) if insert_device_ordinal else filename)


def _with_ordinal(filename: str) -> str:
    """Before the extension, as torch does."""
    stem, dot, extension = filename.rpartition(".")
    return f"{stem}%d.{extension}" if dot and "/" not in extension else f"{filename}%d"


def get_filename() -> str:
    """The file of results for the current device."""
    return _tuner().path(_current())


def set_untuned_filename(filename: str) -> None:
    """Record untuned products in this file; ``%d`` in it is replaced by the device's index."""
    _tuner().configure(untuned=filename)


def get_untuned_filename() -> str:
    """The file of untuned products, for the current device."""
    return _tuner().named(_tuner().options.untuned, _current())


def get_results() -> tuple[Result, ...]:
    """What was found for the current device, with what its file held."""
    return _tuner().results(_current()).all()


def get_validators() -> tuple[tuple[str, str], ...]:
    """What results for the current device depend on: the GPU, the driver, the version of each library."""
    from cuassay.devices.cuda.blas.tuning import validators

    return tuple(validators(_current()).items())


def read_file(filename: str | None = None) -> bool:
    """Use the results in a file, by default that of the current device; plans are made again with them.

    Raises
    ------
    TuningError
        If it is absent, unreadable, cut off, or of another GPU, driver or version: which field, what it is, what it
        should be. Nothing is taken over then.
    """
    from cuassay.devices.cuda.blas import controls

    _tuner().results(_current()).read(get_filename() if filename is None else filename)
    controls.renew()
    return True


def write_file(filename: str | None = None) -> bool:
    """Add to a file what was found for the current device and is not in it; by default its own.

    Raises
    ------
    TuningError
        If the file is something else, or of another machine; it is left as it is.
    """
    _tuner().results(_current()).write(get_filename() if filename is None else filename)
    return True


def write_file_on_exit(val: bool) -> None:
    """Whether results reach the file by themselves: as they are found, not at exit; off: by `write_file` only."""
    _tuner().configure(writing=bool(val))


# ------------------------------------------------------------------------------------------------ offline


def tune_gemm_in_file(filename: str, *, tell: Callable[[dict[str, Any]], object] | None = None) -> None:
    """Tune the products that a file of untuned ones lists, on the current device; those known are left out.

    Parameters
    ----------
    filename : str
        What was recorded, on whatever GPU.
    tell : callable, optional
        Called with a row for each product, as it is found: what it is, times, gain, choice, reason.

    Raises
    ------
    TuningError
        If the file is something else, or unreadable.
    StateError
        If tuning is not enabled.
    """
    from cuassay.devices.cuda.blas import offline

    _must_tune()
    offline.tune(offline.problems_in([filename]), _current(), tell)


def mgpu_tune_gemm_in_file(filename_pattern: str, num_gpus: int, *, devices: Sequence[DeviceLike] = ()) -> None:
    """Tune the products of all files that match, on several GPUs, one process each; every one adds to its results.

    Parameters
    ----------
    filename_pattern : str
        Such as ``"untuned_?.jsonl"``.
    num_gpus : int
        Use the first `num_gpus` devices.
    devices : sequence of device, optional
        These instead.

    Raises
    ------
    TuningError
        If a file is something else, or none matches.
    StateError
        If tuning is not enabled, results are not written (`write_file_on_exit`), or a process failed.
    """
    from cuassay.devices.cuda.blas import offline

    _must_tune()
    chosen = [index_of(device) for device in devices] or list(range(num_gpus))
    offline.tune_on_several(offline.problems_in(sorted(glob.glob(filename_pattern))), chosen)  # noqa: PTH207
    _tuner().reread()


def _must_tune() -> None:
    options = _tuner().options
    if not (options.enabled and options.tuning):
        raise StateError("tuning is not enabled; call cuda.tunable.enable() and tuning_enable() first")
