"""The state of a parameter group between steps: moments, maxima, master weights, step counts, and a cached plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any

import numpy as np

from cuassay import devices, ops
from cuassay.arrays.dtypes import FLOATS, HALVES, as_dtype, dtype_name
from cuassay.core.device import Device
from cuassay.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from cuassay.ops import Plan, registry
from cuassay.ops.schema import Meta

__all__ = ["FIXED", "CachedPlan", "State", "arguments", "host_number"]

Array = Any
Arrays = Sequence[Any]

#: From a list parameter of the op to the name of one entry in a state_dict. `step` is one element of `State.steps`.
_STATE_NAMES = {
    "exp_avgs": "exp_avg",
    "exp_avg_sqs": "exp_avg_sq",
    "max_exp_avg_sqs": "max_exp_avg_sq",
    "masters": "master",
}

#: Hyperparameters that are passed to the op under the same name.
_PASSED = ("lr", "eps", "weight_decay", "maximize", "seed")

#: Hyperparameters that determine the states, so they cannot change afterwards.
FIXED = ("amsgrad", "master_weights", "state_dtype")


def _one_device(params: Arrays) -> Device:
    first, *others = (registry.device_of(param, "a parameter") for param in params)
    for place, other in enumerate(others, 1):
        if other != first:
            raise DeviceError(
                f"a parameter group needs all parameters on one device; params[0] is on {first}, params[{place}] on "
                f"{other}; make a group for each device"
            )
    return first


class CachedPlan:
    """A plan that is reused while its op is called with the same arrays and arguments."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._sources: dict[str, Arrays] = {}
        self._lists: dict[str, tuple[Any, ...]] = {}
        self._others: dict[str, Any] = {}

    def run(self, op: ops.Op, lists: Mapping[str, Arrays], others: Mapping[str, Any]) -> None:
        """Run the op, after rebinding the arguments that changed since the last call."""
        if self._plan is None:
            changed: dict[str, Any] = {**lists, **others}
        else:
            changed = {name: arrays for name, arrays in lists.items() if not self._is_same(name, arrays)}
            changed |= {name: value for name, value in others.items() if _differs(value, self._others[name])}
        if changed:
            self._bind(op, changed, lists, others)
        if self._plan is not None:
            self._plan.run()

    def _is_same(self, name: str, arrays: Arrays) -> bool:
        """Return whether the plan was made for these arrays. A tuple is compared as a whole, a list by its elements."""
        former = self._lists[name]
        if arrays is self._sources[name] and type(arrays) is tuple:
            return True
        return len(arrays) == len(former) and all(map(is_, arrays, former))

    def _bind(
        self, op: ops.Op, changed: Mapping[str, Any], lists: Mapping[str, Arrays], others: Mapping[str, Any]
    ) -> None:
        """Make a plan with `changed`. After an error there is no plan, so that the next step makes a new one."""
        former, self._plan = self._plan, None
        fresh = {name: list(value) if name in lists else value for name, value in changed.items()}
        self._plan = op.prepare(**fresh) if former is None else former.rebind(**fresh)
        self._sources = dict(lists)
        self._lists = {name: tuple(arrays) for name, arrays in lists.items()}
        self._others = dict(others)


def _differs(value: Any, former: Any) -> bool:
    """Compare numbers by value and arrays by identity. NaN differs from itself."""
    if value is former:
        return False
    return hasattr(value, "dtype") or hasattr(former, "dtype") or value != former


def _past_boundary(param: Array) -> int:
    """Return how many elements past a 16-byte boundary an array begins; 0 if it does not expose its address."""
    if not hasattr(type(param), "__cuda_array_interface__") or not hasattr(param, "data"):
        return 0
    itemsize = int(param.dtype.itemsize)
    return int(param.data.ptr) // itemsize % max(1, 16 // itemsize)


class State:
    """The state of a group: moments, maxima, master weights, step counts, and the cached plan of its step."""

    def __init__(self, group: Mapping[str, Any]) -> None:
        params = group["params"]
        self.fixed = {name: group[name] for name in FIXED}
        self.device = _one_device(params)
        dtype = as_dtype(params[0].dtype)
        if dtype_name(dtype) not in FLOATS:
            raise DTypeError(f"parameters must be one of {', '.join(FLOATS)}; got {dtype_name(dtype)}; cast them")
        master = bool(group["master_weights"])
        if master and dtype_name(dtype) not in HALVES:
            raise DTypeError(
                f"master_weights are for {' and '.join(HALVES)} parameters; got {dtype_name(dtype)}; omit it"
            )
        wanted = group["state_dtype"] or ("float32" if master else dtype)
        self.lists = {
            "exp_avgs": self._zeros(params, wanted),
            "exp_avg_sqs": self._zeros(params, wanted),
            "max_exp_avg_sqs": self._zeros(params, wanted) if group["amsgrad"] else (),
            "masters": self._masters(params) if master else (),
        }
        self.steps = devices.zeros((len(params),), "float32", self.device)
        self._kept = CachedPlan()

    def _empty(self, params: Arrays, dtype: Any) -> tuple[Array, ...]:
        """Return one array per parameter, as a tuple, which a step compares as a whole."""
        return tuple(self._aligned_like(param, dtype) for param in params)

    def _aligned_like(self, param: Array, dtype: Any) -> Array:
        """Return an uninitialized array with the alignment of `param`, so that a kernel can vectorize both equally."""
        skipped = _past_boundary(param)
        if not skipped:
            return devices.empty(tuple(param.shape), dtype, self.device)
        return devices.empty((param.size + skipped,), dtype, self.device)[skipped:].reshape(param.shape)

    def _zeros(self, params: Arrays, dtype: Any) -> tuple[Array, ...]:
        made = self._empty(params, dtype)
        ops.foreach_zero_(list(made))
        return made

    def _masters(self, params: Arrays) -> tuple[Array, ...]:
        made = self._empty(params, "float32")
        ops.foreach_copy_(list(made), list(params))
        return made

    def step(self, group: Mapping[str, Any], grads: Arrays, given: Mapping[str, Any], decoupled: bool) -> None:
        """Run one step of this group."""
        for name, value in self.fixed.items():
            if group[name] is not value and group[name] != value:
                raise ArgumentError(
                    f"{name} was {value!r} when the states were made; got {group[name]!r}; make another optimizer"
                )
        lists = {"params": group["params"], "grads": grads, **self.lists}
        self._kept.run(ops.fused_adam_, lists, {"steps": self.steps, **hyperparameters(group, decoupled), **given})

    def data(self) -> list[dict[str, Any]]:
        """Return a dict of NumPy arrays for each parameter."""
        counts = devices.to_host(self.steps)
        found: list[dict[str, Any]] = [{"step": np.array(count)} for count in counts]
        for name, arrays in self.lists.items():
            for entry, array in zip(found, arrays, strict=False):
                entry[_STATE_NAMES[name]] = devices.to_host(array)
        return found

    def check(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Raise `ArgumentError` or `ShapeError` if `entries` do not fit these states."""
        wanted = {"step", *(_STATE_NAMES[name] for name, arrays in self.lists.items() if arrays)}
        for place, entry in enumerate(entries):
            if set(entry) != wanted:
                raise ArgumentError(
                    f"the state of parameter {place} has {', '.join(sorted(entry))}; this optimizer keeps "
                    f"{', '.join(sorted(wanted))}; build it with the same options"
                )
            for name, arrays in self.lists.items():
                if arrays and np.shape(entry[_STATE_NAMES[name]]) != tuple(arrays[place].shape):
                    raise ShapeError(
                        f"{_STATE_NAMES[name]} of parameter {place} must have shape {tuple(arrays[place].shape)}; "
                        f"got {np.shape(entry[_STATE_NAMES[name]])}; load it into a model of the same shapes"
                    )
            if np.shape(entry["step"]) not in ((), (1,)) or np.asarray(entry["step"]).dtype.kind not in "iuf":
                raise ArgumentError(
                    f"step of parameter {place} must be one number; got {entry['step']!r}; give what state_dict gave"
                )

    def load(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Write `entries` into the states in place."""
        counts = np.array([float(np.asarray(entry["step"]).reshape(())) for entry in entries], np.float32)
        ops.copy(devices.from_host(counts, self.device), out=self.steps)
        for name, arrays in self.lists.items():
            for entry, array in zip(entries, arrays, strict=False):
                ops.copy(devices.from_host(_as(entry[_STATE_NAMES[name]], array.dtype), self.device), out=array)


def _as(values: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return saved numbers in `dtype`. NumPy's files store bfloat16 as two bytes without a type."""
    array = np.ascontiguousarray(values).reshape(np.shape(values))
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    return array.astype(dtype, copy=False)


def hyperparameters(group: Mapping[str, Any], decoupled: bool) -> dict[str, Any]:
    """Return the op's arguments other than lists. NumPy scalars, as from schedules, become Python numbers."""
    betas = group["betas"]
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ArgumentError(f"betas must be two numbers from 0 to 1, 1 left out; got {betas!r}; 0.9, 0.999 are usual")
    found = {**{name: group[name] for name in _PASSED}, "beta1": betas[0], "beta2": betas[1]}
    return {**{name: host_number(value) for name, value in found.items()}, "decoupled": decoupled}


def host_number(value: Any) -> Any:
    """Convert a NumPy scalar, which an op would treat as a host array, to a Python number. Return others unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def arguments(group: Mapping[str, Any], state: State, decoupled: bool) -> dict[str, Any]:
    """Return the arguments with which the op's shape rule checks a group, using gradients that fit."""
    grads = [Meta(tuple(param.shape), as_dtype(param.dtype)) for param in group["params"]]
    lists = {"params": list(group["params"]), "grads": grads, **state.lists}
    none = {"grad_scale": None, "found_inf": None, "norm": None, "max_norm": None, "zero_grads": False}
    return {**lists, "steps": state.steps, **hyperparameters(group, decoupled), **none}
