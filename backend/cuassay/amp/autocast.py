"""Inside ``with autocast("cuda"):`` calls of `cuassay.ops` compute in the dtype that `cuassay.amp.policy` says.

Autocast only sees calls of our ops, through `cuassay.ops.interpose`, on plain NumPy, CuPy and simulated arrays. It
cannot intercept operators (``a @ b``) or other libraries' functions on those arrays. As in torch, a call with ``out=``
runs in the dtypes of its arguments, because the caller has already chosen one. So does a plan of `Op.prepare`, which is
made for the given arrays.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ContextDecorator, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar, overload

from cuassay import devices
from cuassay.amp.policy import Rule, rule_of
from cuassay.arrays.dtypes import HALVES, as_dtype, dtype_name
from cuassay.core import participants, surroundings
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.core.surroundings import Restore
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, CapabilityError, DeviceError, StateError
from cuassay.ops import Call, cast, interpose, registry

__all__ = ["autocast", "clear_autocast_cache", "custom_fwd", "get_autocast_dtype", "is_autocast_enabled"]

Function = TypeVar("Function", bound=Callable[..., Any])

#: As in torch: bfloat16 for the host; all other kinds use float16.
_DEFAULT = {"cpu": "bfloat16"}
_CASTABLE = frozenset((*HALVES, "float32"))


@dataclass(frozen=True, slots=True)
class _Region:
    """The settings of a block for one kind of device."""

    dtype: str
    enabled: bool
    cache_enabled: bool
    weights: frozenset[int] = frozenset()


@dataclass
class _State(threading.local):
    """The autocast state of a thread: open regions, outermost first; the innermost by kind; and the cast weights.

    A cached cast keeps its weight alive, so that the id of the weight is not reused.
    """

    opened: list[tuple[autocast, _Region]] = field(default_factory=list)
    regions: Mapping[str, _Region] = field(default_factory=dict)
    watching: AbstractContextManager[None] = field(default_factory=nullcontext)
    cache: dict[tuple[int, str], tuple[Any, Any]] = field(default_factory=dict)


_state = _State()


class autocast(Handle, ContextDecorator):  # noqa: N801  torch's name
    """A context manager and decorator in which ops choose their dtype. An inner region of the same kind overrides it.

    Parameters
    ----------
    device_type : str
        The kind of device whose arrays are cast: ``"cuda"``, ``"sim"``, ``"cpu"``.
    dtype : dtype, optional
        ``float16`` or ``bfloat16``; by default float16 on accelerators and bfloat16 on cpu.
    enabled : bool
        If False, ops inside run in the dtypes of their arguments.
    cache_enabled : bool, optional
        Whether `weights` are cast only once per region. None means the value of the enclosing region, or True.
    weights : iterable of array
        Arrays that are cast once per outermost region. Name only arrays that are not written inside. torch recognizes
        them by ``requires_grad``, which plain arrays do not have. In a graph capture they are cast again inside the
        graph, so that a replay uses their current values.

    Raises
    ------
    ArgumentError
        If the kind is unknown, the dtype is not a 16-bit floating dtype, or a weight is not an array.

    Examples
    --------
    >>> import numpy as np
    >>> from cuassay import ops
    >>> from cuassay.amp import autocast
    >>> with autocast("cpu"):
    ...     print(ops.matmul(np.ones((2, 3), "f4"), np.ones((3, 2), "f4")).dtype)
    bfloat16
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
        *,
        weights: Iterable[Any] = (),
    ) -> None:
        self.device_type = _known(device_type)
        self.dtype = _default_dtype(self.device_type) if dtype is None else _lower(dtype)
        self._enabled = enabled
        self._cache_enabled = cache_enabled
        self._weights = _checked(weights)

    def __repr__(self) -> str:
        return f"autocast({self.device_type!r}, {self.dtype}, enabled={self._enabled})"

    def again(self) -> autocast:
        """Return a new region with the same settings, which can be entered independently."""
        return autocast(self.device_type, self.dtype, self._enabled, self._cache_enabled, weights=self._weights)

    def __enter__(self) -> Self:
        """Open the region in this thread."""
        around = _state.regions.get(self.device_type)
        caching = (around.cache_enabled if around else True) if self._cache_enabled is None else self._cache_enabled
        weights = frozenset(map(id, self._weights)) | (around.weights if around else frozenset())
        if not _state.opened:
            _state.watching = interpose(_interposed)
            _state.watching.__enter__()
        _state.opened.append((self, _Region(self.dtype, self._enabled, caching, weights)))
        _state.regions = _holding()
        participants.join(self.device_type, _CACHES)
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the region; the outermost one also drops the cache. Raises `StateError` if not open in this thread."""
        place = next((at for at in range(len(_state.opened) - 1, -1, -1) if _state.opened[at][0] is self), None)
        if place is None:
            raise StateError(f"{self!r} is not open in this thread; leave it in the thread that entered it")
        del _state.opened[place]
        _state.regions = _holding()
        if not _state.opened:
            _state.cache.clear()
            _state.watching.__exit__(None, None, None)


def _saved() -> Restore:
    """Save the open regions. The result enters them again, in place of regions that are open then."""
    opened = [owner for owner, _ in _state.opened]

    @contextmanager
    def entered() -> Iterator[None]:
        with ExitStack() as regions:
            for kind in _state.regions:
                regions.enter_context(autocast(kind, enabled=False))
            for one in opened:
                regions.enter_context(one.again())
            yield

    return entered


surroundings.register(_saved)


def _checked(weights: Any) -> tuple[Any, ...]:
    """Return the weights as a tuple. Raises `ArgumentError` if they are not an iterable of arrays."""
    if not isinstance(weights, Iterable) or registry.backend_of(type(weights)) is not None:
        raise ArgumentError(f"weights must be an iterable of arrays; got {shown(weights)}; give a list of them")
    found = tuple(weights)
    for place, weight in enumerate(found):
        registry.owner_of(weight, f"weights[{place}]")
    return found


def _holding() -> dict[str, _Region]:
    """Return the innermost region of each kind."""
    return {owner.device_type: region for owner, region in _state.opened}


def _known(device_type: str) -> str:
    kind = Device(device_type).kind
    if kind not in devices.kinds():
        raise DeviceError(f"autocast knows no kind of device {kind!r}; give one of {', '.join(devices.kinds())}")
    return kind


def _default_dtype(kind: str) -> str:
    """Return the default dtype, as in torch: bfloat16 on the host, float16 on accelerators."""
    return _DEFAULT.get(kind, "float16")


def _lower(dtype: Any) -> str:
    name = dtype_name(as_dtype(dtype))
    if name not in HALVES:
        raise ArgumentError(f"autocast lowers to {' or '.join(HALVES)}; got {name}; leave the block out for it")
    return name


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Return whether autocast is enabled for this kind in this thread. Raises `DeviceError` for an unknown kind."""
    region = _state.regions.get(_known(device_type))
    return region is not None and region.enabled


def get_autocast_dtype(device_type: str = "cuda") -> str:
    """Return the dtype of the open region, or the default dtype of a region if none is open."""
    kind = _known(device_type)
    region = _state.regions.get(kind)
    return _default_dtype(kind) if region is None else region.dtype


def clear_autocast_cache() -> None:
    """Drop the cached casts of this thread. Call this after writing a weight inside a region."""
    _state.cache.clear()


class _Caches:
    """Drops cached casts at the borders of captures.

    A cast from before a capture would be frozen into the graph. A cast in a capture has no values before a replay.
    """

    def capture_begin(self, capture: object, device: Device) -> None:
        """Drop the casts made before the capture."""
        clear_autocast_cache()

    def capture_end(self, capture: object, device: Device) -> None:
        """Drop the casts made in the capture."""
        clear_autocast_cache()

    def capture_forget(self, capture: object, device: Device) -> None:
        """Do nothing, because nothing is kept for a capture."""


_CACHES = _Caches()


def _interposed(call: Call, proceed: Callable[[Call], Any]) -> Any:
    rule = rule_of(call.op.name)
    if rule is None or call.out is not None:
        return proceed(call)
    region = _region_of(call)
    if region is None or not region.enabled:
        return proceed(call)
    if rule is Rule.REFUSED:
        raise CapabilityError(
            f"{call.op.name} is not safe under autocast: no dtype makes it right; call it on float32 arrays inside "
            "autocast(..., enabled=False), or give it another rule with custom_rule"
        )
    target = {Rule.LOWER: region.dtype, Rule.FLOAT32: "float32"}.get(rule) or _widest(call)
    arguments = {name: _converted(value, target, region) for name, value in call.arguments.items()}
    return proceed(replace(call, arguments=arguments))


def _region_of(call: Call) -> _Region | None:
    """Return the region for the kind of the first array. The call itself raises if kinds are mixed."""
    for param in call.op.schema.arrays:
        for _, array in param.members(call.arguments[param.name]):
            backend = registry.backend_for(array)
            if backend is not None:
                return _state.regions.get(backend.kind)
    return None


def _widest(call: Call) -> str:
    names = {name for value in call.arguments.values() for name in _names(value)}
    return next(iter(names)) if len(names) == 1 else "float32"  # also for float16 with bfloat16


def _names(value: Any) -> Iterator[str]:
    for one in value if isinstance(value, list | tuple) else (value,):
        if _is_castable(one):
            yield dtype_name(one.dtype)


def _is_castable(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and registry.backend_for(value) is not None and dtype_name(dtype) in _CASTABLE


def _converted(value: Any, target: str, region: _Region) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_converted(one, target, region) for one in value)
    if not _is_castable(value) or dtype_name(value.dtype) == target:
        return value
    if not region.cache_enabled or id(value) not in region.weights:
        return cast(value, dtype=target)
    kept = _state.cache.get((id(value), target))
    if kept is None:
        kept = _state.cache[id(value), target] = value, cast(value, dtype=target)
    return kept[1]


@overload
def custom_fwd(function: Function, *, device_type: str, cast_inputs: Any = None) -> Function: ...


@overload
def custom_fwd(*, device_type: str, cast_inputs: Any = None) -> Callable[[Function], Function]: ...


def custom_fwd(
    function: Function | None = None, *, device_type: str, cast_inputs: Any = None
) -> Function | Callable[[Function], Function]:
    """Decorate a function so that autocast casts its inputs and does not apply inside it.

    There is no ``custom_bwd``, because a backward pass over plain arrays is an ordinary function.

    Parameters
    ----------
    function : callable, optional
        The function; without it, a decorator is returned.
    device_type : str
        The kind of device whose regions matter.
    cast_inputs : dtype, optional
        The dtype to which floating-point arrays are cast inside a region; as in torch, float64 arrays are not cast.
        Without it the function is called unchanged.
    """
    kind = _known(device_type)
    if function is None:
        return lambda decorated: custom_fwd(decorated, device_type=kind, cast_inputs=cast_inputs)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if cast_inputs is None or not is_autocast_enabled(kind):
            return function(*args, **kwargs)
        region, target = replace(_state.regions[kind], weights=frozenset()), dtype_name(as_dtype(cast_inputs))
        with autocast(kind, enabled=False):
            given = [_converted(value, target, region) for value in args]
            return function(*given, **{name: _converted(value, target, region) for name, value in kwargs.items()})

    return run
