"""Tuning of matrix products under ``torch.cuda.tunable``'s names; importing this loads no CUDA library.

While tuning is enabled, a product is tuned at the first call with its layout. The algorithms of cuBLASLt and cuBLAS and
the package's own kernels run on random operands with a cold cache, in graph replays. The default is replaced only by a
candidate whose result agrees and whose gain is above 2 % and above twice the spread; for a library's own first choice
the latter suffices. Split float32 products (bf16x6 and the like) are not tuned: their kernel is chosen by size.

Nothing is tuned inside a capture, whoever began it: call the product once before, or it is tuned at the next call
outside. Results are appended to a file per GPU model, driver and library version; files of others are rejected and
never changed. A choice in a file that cannot be used here is reported once, and the call uses the default instead.

Differences from torch: `set_max_tuning_duration` limits all candidates of a product together; results are checked by
tolerances of their dtype unless checking is turned off; an unusable file raises `TuningError` with the field that
differs, or warns if it was found automatically; files are JSON lines; scaled and batched products are tuned too.
Results of one extent are not used for others: there is no ``dynamic_dims_mask`` and no wildcard fallback.
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
    """Use tuning results, and tune or record unknown products if those switches are on."""
    _tuner().configure(enabled=bool(val))


def is_enabled() -> bool:
    """Return whether tuning results are used."""
    return _tuner().options.enabled


def tuning_enable(val: bool = True) -> None:
    """Set whether unknown products are tuned; otherwise only known results are used."""
    _tuner().configure(tuning=bool(val))


def tuning_is_enabled() -> bool:
    """Return whether unknown products are tuned."""
    return _tuner().options.tuning


def record_untuned_enable(val: bool = True) -> None:
    """Set whether products that are neither known nor tuned are written to a file; see `set_untuned_filename`."""
    _tuner().configure(recording=bool(val))


def record_untuned_is_enabled() -> bool:
    """Return whether they are written to a file."""
    return _tuner().options.recording


# ------------------------------------------------------------------------------------------------ limits


def set_max_tuning_duration(duration: int) -> None:
    """Set the most milliseconds that the search for one product may take, for all candidates together."""
    _set_limits(seconds=_positive("a duration in ms", duration) * 1e-3)


def get_max_tuning_duration() -> int:
    """Return the most milliseconds that the search for one product may take."""
    return round(_tuner().options.limits.seconds * 1e3)


def set_max_tuning_iterations(iterations: int) -> None:
    """Set the most samples per candidate, excluding the few that the last comparison needs."""
    _set_limits(iterations=_positive("a number of iterations", iterations))


def get_max_tuning_iterations() -> int:
    """Return the most samples per candidate."""
    return _tuner().options.limits.iterations


def _set_limits(**changed: Any) -> None:
    _tuner().configure(limits=replace(_tuner().options.limits, **changed))


def _positive(what: str, number: int) -> int:
    if number < 1:
        raise ArgumentError(f"{what} must be 1 or more; got {number!r}; give a positive whole number")
    return number


def set_cublaslt_requested_algo_count(count: int) -> None:
    """Set how many algorithms are requested from cuBLASLt, for each workspace limit."""
    _tuner().configure(algorithms=_positive("a number of algorithms", count))


def get_cublaslt_requested_algo_count() -> int:
    """Return how many algorithms are requested from cuBLASLt."""
    return _tuner().options.algorithms


def set_rotating_buffer_size(buffer_size: int) -> None:
    """Set how many MiB the operands that a search rotates must exceed.

    0 uses the same operands each time; a negative number means three level-2 caches.
    """
    _tuner().configure(rotating_nbytes=None if buffer_size < 0 else buffer_size * 2**20)


def get_rotating_buffer_size() -> int:
    """Return the limit in MiB; -1 means three level-2 caches."""
    nbytes = _tuner().options.rotating_nbytes
    return -1 if nbytes is None else nbytes // 2**20


def set_numerical_check_tolerances(enable: bool, atol: float | None = None, rtol: float | None = None) -> None:
    """Set how much a result may differ from the untuned one: atol times its root mean square plus rtol of the element.

    Without tolerances, those of the dtype apply.

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
    """Keep results in this file, read at the next query; ``%d`` in the name is replaced by the device's index.

    Results of this process that are in no file yet will belong to this file, as all results do in torch. Two GPUs of
    the same model may share a file. An empty name means the default file in the cache directory, by GPU and versions.
    """
    _tuner().configure(path=_with_ordinal(filename) if insert_device_ordinal else filename)


def _with_ordinal(filename: str) -> str:
    """Insert ``%d`` before the extension, as torch does."""
    stem, dot, extension = filename.rpartition(".")
    return f"{stem}%d.{extension}" if dot and "/" not in extension else f"{filename}%d"


def get_filename() -> str:
    """Return the file of results for the current device."""
    return _tuner().path(_current())


def set_untuned_filename(filename: str) -> None:
    """Record untuned products in this file; ``%d`` in it is replaced by the device's index."""
    _tuner().configure(untuned=filename)


def get_untuned_filename() -> str:
    """Return the file of untuned products for the current device."""
    return _tuner().named(_tuner().options.untuned, _current())


def get_results() -> tuple[Result, ...]:
    """Return the results for the current device, including those read from its file."""
    return _tuner().results(_current()).all()


def get_validators() -> tuple[tuple[str, str], ...]:
    """Return what results for the current device depend on: the GPU, the driver and the version of each library."""
    from cuassay.devices.cuda.blas.tuning import validators

    return tuple(validators(_current()).items())


def read_file(filename: str | None = None) -> bool:
    """Use the results in a file, by default the current device's file; existing plans are renewed with them.

    Raises
    ------
    TuningError
        If the file is absent, unreadable, truncated, or of another GPU, driver or version; the message names the field,
        its value and the expected value. Nothing is used then.
    """
    from cuassay.devices.cuda.blas import controls

    _tuner().results(_current()).read(get_filename() if filename is None else filename)
    controls.renew()
    return True


def write_file(filename: str | None = None) -> bool:
    """Append to a file the current device's results that are not in it; by default the device's own file.

    Raises
    ------
    TuningError
        If the file is not a results file, or is of another machine; it is left unchanged.
    """
    _tuner().results(_current()).write(get_filename() if filename is None else filename)
    return True


def write_file_on_exit(val: bool) -> None:
    """Set whether results are written as soon as they are found, and not at exit; otherwise only by `write_file`."""
    _tuner().configure(writing=bool(val))


# ------------------------------------------------------------------------------------------------ offline


def tune_gemm_in_file(filename: str, *, tell: Callable[[dict[str, Any]], object] | None = None) -> None:
    """Tune the products listed in a file of untuned products, on the current device; known products are skipped.

    Parameters
    ----------
    filename : str
        The recorded file, from any GPU.
    tell : callable, optional
        Called with a row for each product as soon as it is tuned: product, times, gain, choice, reason.

    Raises
    ------
    TuningError
        If the file is not a file of untuned products, or is unreadable.
    StateError
        If tuning is not enabled.
    """
    from cuassay.devices.cuda.blas import offline

    _must_tune()
    offline.tune(offline.problems_in([filename]), _current(), tell)


def mgpu_tune_gemm_in_file(filename_pattern: str, num_gpus: int, *, devices: Sequence[DeviceLike] = ()) -> None:
    """Tune the products of all matching files on several GPUs, one process each; each adds to its device's results.

    Parameters
    ----------
    filename_pattern : str
        A pattern, such as ``"untuned_?.jsonl"``.
    num_gpus : int
        Use the first `num_gpus` devices.
    devices : sequence of device, optional
        Use these devices instead.

    Raises
    ------
    TuningError
        If a file is not a file of untuned products, or none matches.
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
