"""How an allocator rounds, splits, limits and collects, and the string that configures it.

The string is a list such as ``max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]``, with the keys of
``PYTORCH_CUDA_ALLOC_CONF``. A key that is not mentioned keeps its value. Sizes of segments and blocks follow
torch's constants (``c10/core/AllocatorConfig.h``), so that its users' knowledge carries over.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cuassay.errors import ArgumentError, SettingError

__all__ = [
    "MIB",
    "MIN_BLOCK",
    "OPTIONS",
    "SMALL_REQUEST",
    "SMALL_SEGMENT",
    "AllocatorConfig",
    "Option",
    "checked_nbytes",
    "parse_config",
]

MIB = 2**20

#: Every block is a multiple of this many bytes.
MIN_BLOCK = 512

#: The largest remainder of a size modulo `MIN_BLOCK`, in bytes.
_REST = MIN_BLOCK - 1

#: The largest request of the small pool, in bytes.
SMALL_REQUEST = MIB

#: The bytes that the small pool takes from the device at a time; large segments are rounded up to a multiple of them.
SMALL_SEGMENT = 2 * MIB

#: Requests of at least this many bytes get a separate segment.
OWN_SEGMENT = 10 * MIB

#: Pairs of an upper bound (exclusive, in bytes; None: no bound) and the steps into which each power of two is divided.
Divisions = tuple[tuple[int | None, int], ...]

#: No power of two is divided: every size is rounded to `MIN_BLOCK`.
_PLAIN: Divisions = ((None, 0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorConfig:
    """One allocator's configuration.

    Attributes
    ----------
    backend : str
        ``"native"``, or ``"cudaMallocAsync"``: the driver's own pool. It is fixed when the allocator is made.
    expandable_segments : bool
        Whether memory is taken in pages, which grow ranges and are stitched, if the source has pages; otherwise it is
        taken in segments. It is on by default, unlike torch's.
    expandable_segments_reserve : float, int or None
        Addresses reserved for one stream at a time: a share of the device's memory, or bytes. None: 9/8 of the memory.
    expandable_segments_reserve_by_class : str
        Accepted without effect: streams have no classes here.
    release_lock_on_cudamalloc : bool
        Accepted without effect: the driver is never called with the lock held.
    throw_on_cudamalloc_oom : bool
        Accepted without effect: requests above the limit are always rejected before the driver is called.
    graph_capture_record_stream_reuse : bool
        Accepted without effect: memory that other streams used is held until the capture ends, which is always safe.
    max_split_size : int or None
        Bytes; larger blocks are neither split nor used for smaller requests. None: every block may be split. It has no
        effect on memory in pages.
    max_non_split_rounding : int
        The bytes by which a block above `max_split_size` may exceed its request.
    garbage_collection_threshold : float
        The share of the allowed memory above which old free segments are released before more is taken; 0 is off.
    roundup_power2_divisions : tuple of (bound, divisions)
        Requests below `bound` bytes are rounded to that many steps a power of two; up to 1 means to 512 bytes. This
        follows torch's documentation; in torch's code a bound is where its range begins, so that 256:2 applies from 256
        MiB on.
    large_segment_size : int
        The bytes taken at a time for requests of 1 to 10 MiB.
    per_process_memory_fraction : float
        The share of the device's memory that may be reserved.
    pinned_max_round_threshold : int
        Bytes; pinned requests from 1 MiB up to this size are rounded to a power of two. 0, unlike torch's default: none
        is.
    pinned_max_cached_size : int or None
        Bytes; larger pinned blocks are released to the system when they are freed. None: every block is kept for reuse.
    pinned_reserve_segment_size : int
        The bytes pinned at the first request, for it and those that follow.
    pinned_ahead : int
        The bytes that the background thread keeps pinned ahead of a growing demand.
    pinned_use_background_threads : bool
        Whether there is such a thread; it also takes back freed blocks when copies are done with them.
    pinned_use_cuda_host_register : bool
        Whether ordinary pages are mapped, touched by several threads and registered, or the driver makes them.
    pinned_num_register_threads : int
        The number of threads that touch and register pages.
    pinned_free_catch_all : bool
        Whether driver errors are ignored when pinned memory is released.
    """

    backend: str = "native"
    expandable_segments: bool = True
    expandable_segments_reserve: float | int | None = None
    expandable_segments_reserve_by_class: str = ""
    release_lock_on_cudamalloc: bool = True
    throw_on_cudamalloc_oom: bool = True
    graph_capture_record_stream_reuse: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int = 20 * MIB
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: Divisions = _PLAIN
    large_segment_size: int = 20 * MIB
    per_process_memory_fraction: float = 1.0
    pinned_max_round_threshold: int = 0
    pinned_max_cached_size: int | None = None
    pinned_reserve_segment_size: int = 0
    pinned_ahead: int = 64 * MIB
    pinned_use_background_threads: bool = True
    pinned_use_cuda_host_register: bool = True
    pinned_num_register_threads: int = 16
    pinned_free_catch_all: bool = False

    def round_size(self, nbytes: int) -> int:
        """Return the bytes of the block for a request of `nbytes`."""
        if self.roundup_power2_divisions is _PLAIN or nbytes <= MIN_BLOCK:
            return (nbytes + _REST) & ~_REST or MIN_BLOCK
        step, divisions = MIN_BLOCK, self._divisions(nbytes)
        if nbytes > MIN_BLOCK * divisions > MIN_BLOCK:
            step = (1 << (nbytes.bit_length() - 1)) // divisions
        return -(-nbytes // step) * step

    def _divisions(self, nbytes: int) -> int:
        for bound, divisions in self.roundup_power2_divisions:
            if bound is None or nbytes < bound:
                return divisions
        return 0

    def segment_size(self, nbytes: int) -> int:
        """Return the bytes to take from the device for a block of `nbytes`."""
        if nbytes <= SMALL_REQUEST:
            return SMALL_SEGMENT
        if nbytes < OWN_SEGMENT:
            return self.large_segment_size
        return least_segment(nbytes)

    def is_oversize(self, nbytes: int) -> bool:
        """Whether a block of this size must not be split."""
        return self.max_split_size is not None and nbytes >= self.max_split_size

    def may_serve(self, nbytes: int, block_nbytes: int) -> bool:
        """Whether a free block of `block_nbytes` may be given to a request of `nbytes`, rather than be wasted on it."""
        if self.max_split_size is None or block_nbytes < self.max_split_size:
            return True
        return self.is_oversize(nbytes) and block_nbytes < nbytes + self.max_non_split_rounding

    def __str__(self) -> str:
        """Return the string that `parse_config` reads back; options at their defaults are omitted."""
        plain = AllocatorConfig()
        return ",".join(
            f"{key}:{option.show(getattr(self, option.field))}"
            for key, option in OPTIONS.items()
            if getattr(self, option.field) != getattr(plain, option.field)
        )


def least_segment(nbytes: int) -> int:
    """Return the smallest segment that holds a block of `nbytes`."""
    return -(-nbytes // SMALL_SEGMENT) * SMALL_SEGMENT


@dataclass(frozen=True, slots=True)
class Option:
    """One key of the string: the field it sets, how its value is parsed and shown, and the rule for its value."""

    field: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str]
    rule: str


def _mebibytes(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise ValueError(text)
        return int(text) * MIB

    return parse


def _flag(text: str) -> bool:
    return {"True": True, "False": False}[text]


def _backend(text: str) -> str:
    return {name: name for name in ("native", "cudaMallocAsync")}[text]


def _reserve(text: str) -> float | int:
    unit = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}.get(text[-1:].upper())
    value = float(text[:-1]) * unit if unit else float(text)
    if not 0 < value < 2**60:
        raise ValueError(text)
    return int(value) if unit or value > _MOST_SHARE else value


def _threads(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 128 or int(text).bit_count() != 1:
        raise ValueError(text)
    return int(text)


def _share(low: float, high: float, *, open_ends: bool) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not (low < value < high if open_ends else low <= value <= high):
            raise ValueError(text)
        return value

    return parse


def _steps(text: str) -> int:
    if not text.isdigit() or int(text).bit_count() != 1:
        raise ValueError(text)
    return int(text)


def _divisions(text: str) -> Divisions:
    """Parse ``4`` for every size, or ``[256:1,512:2,>:4]``: upper bounds in MiB, and ``>`` for all sizes above."""
    if not text.startswith("["):
        return ((None, _steps(text)),)
    pairs = [pair.split(":") for pair in text[1:-1].split(",")]
    if any(len(pair) != 2 for pair in pairs) or [key for key, _ in pairs[:-1] if key == ">"] or not text.endswith("]"):
        raise ValueError(text)
    bounds = tuple((None if key == ">" else _steps(key) * MIB, _steps(value)) for key, value in pairs)
    sizes = [bound for bound, _ in bounds if bound is not None]
    if sizes != sorted(set(sizes)):
        raise ValueError(text)
    return bounds


def _show_mebibytes(value: int) -> str:
    return str(value // MIB)


def _show_divisions(value: Divisions) -> str:
    if len(value) == 1 and value[0][0] is None:
        return str(value[0][1])
    return "[" + ",".join(f"{'>' if bound is None else bound // MIB}:{steps}" for bound, steps in value) + "]"


#: The keys of the string: all of torch's, and `pinned_ahead_mb`.
OPTIONS: dict[str, Option] = {
    "backend": Option("backend", _backend, str, "native or cudaMallocAsync"),
    "expandable_segments": Option("expandable_segments", _flag, str, "True or False"),
    "expandable_segments_reserve": Option(
        "expandable_segments_reserve", _reserve, str, "a share such as 0.5, or bytes such as 40G, 512M or 42949672960"
    ),
    "expandable_segments_reserve_by_class": Option("expandable_segments_reserve_by_class", str, str, "any text"),
    "release_lock_on_cudamalloc": Option("release_lock_on_cudamalloc", _flag, str, "True or False"),
    "throw_on_cudamalloc_oom": Option("throw_on_cudamalloc_oom", _flag, str, "True or False"),
    "graph_capture_record_stream_reuse": Option("graph_capture_record_stream_reuse", _flag, str, "True or False"),
    "max_split_size_mb": Option("max_split_size", _mebibytes(20), _show_mebibytes, "whole mebibytes, 20 or more"),
    "max_non_split_rounding_mb": Option(
        "max_non_split_rounding", _mebibytes(20), _show_mebibytes, "whole mebibytes, 20 or more"
    ),
    "garbage_collection_threshold": Option(
        "garbage_collection_threshold", _share(0.0, 1.0, open_ends=True), str, "a share between 0 and 1, both excluded"
    ),
    "roundup_power2_divisions": Option(
        "roundup_power2_divisions",
        _divisions,
        _show_divisions,
        "a power of two such as 4, or a list by ascending powers of two in MiB, such as [256:1,1024:4,>:8]",
    ),
    "large_segment_size_mb": Option(
        "large_segment_size", _mebibytes(10), _show_mebibytes, "whole mebibytes, 10 or more"
    ),
    "per_process_memory_fraction": Option(
        "per_process_memory_fraction", _share(0.0, 1.0, open_ends=False), str, "a share from 0 to 1"
    ),
    "pinned_max_round_threshold_mb": Option(
        "pinned_max_round_threshold", _mebibytes(0), _show_mebibytes, "whole mebibytes"
    ),
    "pinned_max_cached_size_mb": Option(
        "pinned_max_cached_size", _mebibytes(1), _show_mebibytes, "whole mebibytes, 1 or more"
    ),
    "pinned_reserve_segment_size_mb": Option(
        "pinned_reserve_segment_size", _mebibytes(0), _show_mebibytes, "whole mebibytes"
    ),
    "pinned_ahead_mb": Option("pinned_ahead", _mebibytes(0), _show_mebibytes, "whole mebibytes; 0 pins nothing ahead"),
    "pinned_use_background_threads": Option("pinned_use_background_threads", _flag, str, "True or False"),
    "pinned_use_cuda_host_register": Option("pinned_use_cuda_host_register", _flag, str, "True or False"),
    "pinned_num_register_threads": Option("pinned_num_register_threads", _threads, str, "a power of two from 1 to 128"),
    "pinned_free_catch_all": Option("pinned_free_catch_all", _flag, str, "True or False"),
}

#: Numbers for `expandable_segments_reserve` above this are bytes.
_MOST_SHARE = 9 / 8

#: torch's other spellings of keys.
_ALIASES = {"release_lock_on_hipmalloc": "release_lock_on_cudamalloc"}

#: A key, a colon, and a value: a list in brackets, or anything up to the next comma.
_ENTRY = re.compile(r"\s*(?P<key>[^:,]*?)\s*:\s*(?P<value>\[[^]]*\]|[^,]*?)\s*(?:,|$)")


def parse_config(text: str, base: AllocatorConfig | None = None) -> AllocatorConfig:
    """Return `base` (None: the defaults) with the changes in `text`.

    Raises
    ------
    SettingError
        For a key that does not exist, or a value that breaks its rule; nothing is changed then.
    """
    changes, position = {}, 0
    while position < len(text.rstrip()):
        entry = _ENTRY.match(text, position)
        if entry is None:
            raise SettingError(f"{text[position:]!r} is not an option; write key:value, such as max_split_size_mb:128")
        option, value = _option(entry["key"]), entry["value"].replace(" ", "")
        try:
            changes[option.field] = option.parse(value)
        except (KeyError, ValueError) as error:
            raise SettingError(f"{entry['key']} must be {option.rule}; got {value!r}; correct it") from error
        position = entry.end()
    return replace(base or AllocatorConfig(), **changes)


def _option(key: str) -> Option:
    try:
        return OPTIONS[_ALIASES.get(key, key)]
    except KeyError:
        raise SettingError(f"there is no option {key!r}; options: {', '.join(OPTIONS)}") from None


def checked_nbytes(nbytes: Any) -> int:
    """Return the bytes of a request as an int. Raises `ArgumentError` unless it is an integer of 0 or more."""
    try:
        checked = operator.index(nbytes)
    except TypeError:
        checked = -1
    if checked < 0:
        raise ArgumentError(f"the size of a block must be an int of 0 or more bytes; got {nbytes!r}; correct it")
    return checked
