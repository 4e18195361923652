"""``with autocast("cuda"):`` calls of `cuassay.ops` inside compute in the dtype that `cuassay.amp.policy` gives them.

It sees calls of our ops alone, through `cuassay.ops.interpose`, on plain NumPy, CuPy and simulated arrays. Operators
(``a @ b``) and other libraries' functions on those arrays are not ours to intercept. A call with ``out=`` runs in the
dtypes it gets, as torch's do: the caller has chosen one already. So does a plan, which `Op.prepare` makes of the arrays
as they are.
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

#: As torch's: float16 for accelerators, bfloat16 for the host.
_DEFAULT = {"cpu": "bfloat16"}
_CASTABLE = frozenset((*HALVES, "float32"))


@dataclass(frozen=True, slots=True)
class _Region:
    """What holds inside a block for one kind of device."""

    dtype: str
    enabled: bool
    cache_enabled: bool
    weights: frozenset[int] = frozenset()


@dataclass
class _State(threading.local):
    """What is open in a thread, outermost first; the regions that hold, by kind; the weights cast so far.

    Each weight is kept alive with its own.
    """

    opened: list[tuple[autocast, _Region]] = field(default_factory=list)
    regions: Mapping[str, _Region] = field(default_factory=dict)
    watching: AbstractContextManager[None] = field(default_factory=nullcontext)
    cache: dict[tuple[int, str], tuple[Any, Any]] = field(default_factory=dict)


_state = _State()


class autocast(Handle, ContextDecorator):  # noqa: N801  torch's name
    """Ops inside the block choose their dtype; also a decorator. The inner one of two of the same kind holds.

    Parameters
    ----------
    device_type : str
        The kind of device whose arrays are meant: ``"cuda"``, ``"sim"``, ``"cpu"``; one region speaks of one kind.
    dtype : dtype, optional
        ``float16`` or ``bfloat16``; without one, float16 on accelerators and bfloat16 on cpu.
    enabled : bool
        False: inside, ops run in the dtypes they get.
    cache_enabled : bool, optional
        Whether `weights` are cast once a region. None: as around it, or True.
    weights : iterable of array
        Arrays cast once, and then again only in the next outermost region: name those that no one writes inside. torch
        knows them by ``requires_grad``, which plain arrays do not have. While a graph is captured they are cast
        again, inside the graph: a replay uses the weights as they are then.

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
        """Another region like this one, to be entered by itself."""
        return autocast(self.device_type, self.dtype, self._enabled, self._cache_enabled, weights=self._weights)

    def __enter__(self) -> Self:
        """From here, in this thread."""
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
        """To here; with the outermost region the cache goes. Raises `StateError` where this thread did not enter it."""
        place = next((at for at in range(len(_state.opened) - 1, -1, -1) if _state.opened[at][0] is self), None)
        if place is None:
            raise StateError(f"{self!r} is not open in this thread; leave it in the thread that entered it")
        del _state.opened[place]
        _state.regions = _holding()
        if not _state.opened:
            _state.cache.clear()
            _state.watching.__exit__(None, None, None)


def _saved() -> Restore:
    """The regions that are open here, to be entered again where others may be open."""
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
    """Arrays, as a tuple. Raises `ArgumentError`."""
    if not isinstance(weights, Iterable) or registry.backend_of(type(weights)) is not None:
        raise ArgumentError(f"weights must be an iterable of arrays; got {shown(weights)}; give a list of them")
    found = tuple(weights)
    for place, weight in enumerate(found):
        registry.owner_of(weight, f"weights[{place}]")
    return found


def _holding() -> dict[str, _Region]:
    """The innermost region of each kind."""
    return {owner.device_type: region for owner, region in _state.opened}


def _known(device_type: str) -> str:
    kind = Device(device_type).kind
    if kind not in devices.kinds():
        raise DeviceError(f"autocast knows no kind of device {kind!r}; give one of {', '.join(devices.kinds())}")
    return kind


def _default_dtype(kind: str) -> str:
    """As torch's: bfloat16 on the host, float16 on accelerators."""
    return _DEFAULT.get(kind, "float16")


def _lower(dtype: Any) -> str:
    name = dtype_name(as_dtype(dtype))
    if name not in HALVES:
        raise ArgumentError(f"autocast lowers to {' or '.join(HALVES)}; got {name}; leave the block out for it")
    return name


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether ops of this thread on arrays of that kind choose their dtype here. Raises `DeviceError` for no kind."""
    region = _state.regions.get(_known(device_type))
    return region is not None and region.enabled


def get_autocast_dtype(device_type: str = "cuda") -> str:
    """The dtype products are computed in inside the block, or would be in one that names none."""
    kind = _known(device_type)
    region = _state.regions.get(kind)
    return _default_dtype(kind) if region is None else region.dtype


def clear_autocast_cache() -> None:
    """Forget the weights cast so far in this thread: after writing one inside a region."""
    _state.cache.clear()


class _Caches:
    """Casts of weights, kept apart by capture.

    A cast from before a capture would be frozen into the graph; a cast in a capture has no values before a replay.
    """

    def capture_begin(self, capture: object, device: Device) -> None:
        """Weights are cast inside."""
        clear_autocast_cache()

    def capture_end(self, capture: object, device: Device) -> None:
        """What was cast inside stays inside."""
        clear_autocast_cache()

    def capture_forget(self, capture: object, device: Device) -> None:
        """Nothing is kept."""


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
    """Of the kind of its arrays: all are of one, or the call will say so."""
    for param in call.op.schema.arrays:
        for _, array in param.members(call.arguments[param.name]):
            backend = registry.backend_for(array)
            if backend is not None:
                return _state.regions.get(backend.kind)
    return None


def _widest(call: Call) -> str:
    names = {name for value in call.arguments.values() for name in _names(value)}
    return next(iter(names)) if len(names) == 1 else "float32"  # float16 and bfloat16 hold one another only there


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
    """With `cast_inputs`, a function of yours gets its floating arrays in that dtype, and runs without autocast.

    Without `cast_inputs` it runs as it is. As in torch, float64 arrays are not cast, nor anything outside a region.
    There is no ``custom_bwd``: a backward pass over plain arrays is a function as any other.
    """
    kind = _known(device_type)
    if function is None:
        return lambda given: custom_fwd(given, device_type=kind, cast_inputs=cast_inputs)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if cast_inputs is None or not is_autocast_enabled(kind):
            return function(*args, **kwargs)
        region, target = replace(_state.regions[kind], weights=frozenset()), dtype_name(as_dtype(cast_inputs))
        with autocast(kind, enabled=False):
            given = [_converted(value, target, region) for value in args]
            return function(*given, **{name: _converted(value, target, region) for name, value in kwargs.items()})

    return run
