"""Adam and AdamW: parameter groups, their states, and steps that call `cuassay.ops.fused_adam_` once per group.

The op defines what a step computes. This module holds what outlives a step: states, hyperparameters, and one plan per
group, which is kept as long as steps use the same arrays. A step does not wait for the device and can be captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cuassay import devices, ops
from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DeviceError
from cuassay.ops import registry
from cuassay.ops.arguments import flag, output_shape
from cuassay.optim.state import FIXED, CachedPlan, State, arguments, host_number

__all__ = ["Adam", "AdamW"]

Array = Any
Arrays = Sequence[Any]


class Adam:
    """Adam (arXiv 1412.6980), fused: one launch per step and group on CUDA for any number of parameters.

    Parameters
    ----------
    params : sequence of array, or sequence of dict
        Contiguous parameters of one dtype and device, or groups of them, ``{"params": [...], "lr": ...}``. They are
        written in place.
    lr : float or array
        The learning rate. An array of one element on the parameters' device may be changed between replays of a
        captured step.
    betas, eps, weight_decay, amsgrad, maximize
        As in ``torch.optim.Adam``. The decay is added to the gradient; `AdamW` decouples it.
    master_weights : bool
        For float16 or bfloat16 parameters: keep and update a float32 copy, from which the parameters are rounded.
    state_dtype : dtype, optional
        The dtype of the moments: float32 or bfloat16. By default float32 with master weights, else that of the
        parameters.
    seed : int, optional
        The seed for stochastic rounding of bfloat16 parameters and states; without it they are rounded to nearest.
        Without master weights, rounding to nearest would lose small updates.

    Attributes
    ----------
    param_groups : list of dict
        ``params`` and the hyperparameters, as in torch. Changes apply from the next step on. `amsgrad`,
        `master_weights` and `state_dtype` cannot be changed.
    grad_norm : array or None
        The global 2-norm of the gradients of the last step that computed it, () float32, on the device.

    Raises
    ------
    ArgumentError, DTypeError, DeviceError
        If a group mixes dtypes or devices, or a hyperparameter is out of range, such as a NaN rate or a negative beta.

    Notes
    -----
    Differences from torch: arrays carry no gradient, so gradients are passed to `step`; every parameter needs a
    gradient; the step counts of a group are one array; moments are float32 with master weights.
    """

    #: Lets a scaler pass its scale and flag to `step`, so that the host does not wait for the device.
    _step_supports_amp_scaling = True

    _decoupled = False

    def __init__(
        self,
        params: Sequence[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        amsgrad: bool = False,
        maximize: bool = False,
        master_weights: bool = False,
        state_dtype: Any = None,
        seed: int | None = None,
    ) -> None:
        self.defaults: dict[str, Any] = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "master_weights": master_weights,
            "state_dtype": state_dtype,
            "seed": seed,
        }
        self.param_groups: list[dict[str, Any]] = []
        self.grad_norm: Array | None = None
        self._states: list[State] = []
        self._norms: list[CachedPlan] = []
        listed = _listed("params", params)
        for group in listed if listed and isinstance(listed[0], Mapping) else [{"params": listed}]:
            self.add_param_group(group)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(group['params']):,}" for group in self.param_groups)
        return f"{type(self).__name__}({counts} parameters, lr {', '.join(str(g['lr']) for g in self.param_groups)})"

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add a group of parameters. Hyperparameters in `group` override the defaults.

        Raises
        ------
        ArgumentError
            If the group has an unknown name, no parameters, or a parameter that another group holds.
        """
        if "params" not in group:
            raise ArgumentError(f"a parameter group needs 'params'; got {', '.join(map(repr, group))}; add its arrays")
        unknown = sorted(set(group) - {"params", *self.defaults})
        if unknown:
            raise ArgumentError(
                f"a parameter group has no {', '.join(map(repr, unknown))}; it has params, {', '.join(self.defaults)}"
            )
        full = {**self.defaults, **group, "params": tuple(_listed("params", group["params"]))}
        for name in ("amsgrad", "maximize", "master_weights"):
            full[name] = flag(name, full[name])
        if full["state_dtype"] is not None:
            full["state_dtype"] = dtype_name(as_dtype(full["state_dtype"]))  # a string, which can be saved
        twice = _first_held(full["params"], {id(param) for known in self.param_groups for param in known["params"]})
        if twice is not None or not full["params"]:
            what = "no parameters" if twice is None else f"params[{twice}] twice"
            raise ArgumentError(f"a parameter group got {what}; give each parameter once, and at least one")
        state = State(full)
        output_shape(ops.fused_adam_.schema, arguments(full, state, self._decoupled))
        self.param_groups.append(full)
        self._states.append(state)

    def step(
        self,
        grads: Sequence[Any],
        *,
        grad_scale: Array | None = None,
        found_inf: Array | None = None,
        max_norm: float | None = None,
        check_finite: bool = False,
        zero_grads: bool = False,
    ) -> None:
        """Update every parameter by its gradient, in the order of the current stream.

        A step is one fused pass per group. Clipping and checking add one pass that reads the gradients. If the same
        sequence of gradients is passed again, its arrays are compared by identity (25 ns each; a tuple as a whole).
        Binding new arrays costs microseconds each.

        Parameters
        ----------
        grads : sequence of array
            One gradient per parameter, in their order. With several groups, one such sequence per group.
        grad_scale : array, optional
            (1,) or () float32. Gradients are divided by it in place.
        found_inf : array, optional
            (1,) or () float32. If it is not 0, nothing is updated or counted.
        max_norm : float, optional
            Clip the gradients in place to this global 2-norm over all groups.
        check_finite : bool
            First set `found_inf` to 1 if an element of a gradient is not finite, else to 0.
        zero_grads : bool
            Set the gradients to 0 afterwards, even if the step was skipped.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError, DeviceError
            If gradients or states do not fit the parameters, or a hyperparameter is out of range.

        Notes
        -----
        The plan of the step keeps a reference to the gradients until a step gets other ones. A float64 gradient whose
        square overflows counts as not finite for `check_finite` and has an infinite norm.
        """
        lists = self._by_group(grads)
        if check_finite and found_inf is None:
            raise ArgumentError(
                "check_finite needs found_inf to write to; got None; give a float32 array of one element"
            )
        if max_norm is not None or check_finite:
            self._measure(lists, grad_scale, found_inf if check_finite else None)
        given = {
            "grad_scale": grad_scale,
            "found_inf": found_inf,
            "norm": None if max_norm is None else self.grad_norm,
            "max_norm": max_norm,
            "zero_grads": zero_grads,
        }
        for group, state, arrays in zip(self.param_groups, self._states, lists, strict=True):
            state.step(group, arrays, given, self._decoupled)

    def _by_group(self, grads: Sequence[Any]) -> Sequence[Arrays]:
        """Return the gradients of each group."""
        if len(self.param_groups) > 1 and len(grads) != len(self.param_groups):
            raise ArgumentError(
                f"step needs one sequence of gradients a group; got {len(grads)} for {len(self.param_groups)} groups; "
                f"give a list of {len(self.param_groups)} lists"
            )
        return [grads] if len(self.param_groups) == 1 else grads

    def _measure(self, lists: Sequence[Arrays], grad_scale: Array | None, found_inf: Array | None) -> None:
        """Run the norm pass of each group. Each pass adds to the results of the previous ones."""
        if len({state.device for state in self._states}) > 1:
            raise DeviceError("a norm over several devices is not offered; clip the groups of each device apart")
        if self.grad_norm is None:
            self.grad_norm = devices.empty((), "float32", self._states[0].device)
        self._norms += [CachedPlan() for _ in lists[len(self._norms) :]]
        for place, (kept, grads) in enumerate(zip(self._norms, lists, strict=True)):
            given = {"norm": self.grad_norm, "found_inf": found_inf, "grad_scale": grad_scale, "accumulate": place > 0}
            kept.run(ops.global_norm_, {"grads": grads}, given)

    # ------------------------------------------------------------------------------------------------ plain data

    def state_dict(self) -> dict[str, Any]:
        """Return states and hyperparameters as plain data in torch's form. Waits for the device.

        Returns
        -------
        dict
            ``state`` maps the number of a parameter to NumPy arrays ``step``, ``exp_avg``, ``exp_avg_sq`` and, if they
            are kept, ``max_exp_avg_sq`` and ``master``. ``param_groups`` holds hyperparameters, and ``params`` as
            numbers.
        """
        found: dict[str, Any] = {"state": {}, "param_groups": []}
        for group, state in zip(self.param_groups, self._states, strict=True):
            first = len(found["state"])
            found["state"].update(enumerate(state.data(), first))
            plain = {name: _plain(value) for name, value in group.items() if name != "params"}
            found["param_groups"].append({**plain, "params": [*range(first, len(found["state"]))]})
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load states and hyperparameters from the result of `state_dict`. States are written in place.

        Raises
        ------
        ArgumentError, ShapeError
            If the groups, parameters or options differ, or a value is invalid. Nothing is changed then.
        """
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(f"the state is a mapping; got {shown(state_dict)}; give what state_dict gave")
        missing = [name for name in ("param_groups", "state") if name not in state_dict]
        if missing:
            raise ArgumentError(f"the state lacks {', '.join(missing)}; give what state_dict gave")
        groups, numbered = state_dict["param_groups"], state_dict["state"]
        if not all(isinstance(group, Mapping) and "params" in group for group in groups):
            raise ArgumentError("the state's param_groups are not groups with params; give what state_dict returned")
        sizes = [len(group["params"]) for group in groups]
        if sizes != [len(group["params"]) for group in self.param_groups]:
            raise ArgumentError(
                f"the state is of groups of {sizes} parameters; this optimizer has "
                f"{[len(group['params']) for group in self.param_groups]}; build it as the saved one was"
            )
        lost = [number for group in groups for number in group["params"] if number not in numbered]
        if lost:
            raise ArgumentError(f"the state lacks that of parameters {lost[:10]}; give what state_dict gave")
        entries = [[numbered[number] for number in group["params"]] for group in groups]
        for group, state, saved, one in zip(self.param_groups, self._states, groups, entries, strict=True):
            state.check(one)
            wanted = {**group, **_loadable(group, saved)}
            ops.fused_adam_.schema.shape(arguments(wanted, state, self._decoupled))
        for group, state, saved, one in zip(self.param_groups, self._states, groups, entries, strict=True):
            state.load(one)
            _restore(group, saved)


class AdamW(Adam):
    """Adam with decoupled weight decay (arXiv 1711.05101): ``p -= lr * weight_decay * p`` comes first. See `Adam`."""

    _decoupled = True

    def __init__(
        self,
        params: Sequence[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, **options)


def _listed(name: str, arrays: Any) -> list[Any]:
    if hasattr(arrays, "dtype") or isinstance(arrays, str) or not isinstance(arrays, Iterable):
        got = "one array" if hasattr(arrays, "dtype") else shown(arrays)
        raise ArgumentError(f"{name} must be a sequence of arrays; got {got}; give [{name}]")
    return list(arrays)


def _first_held(params: Sequence[Any], held: set[int]) -> int | None:
    """Return the index of the first parameter whose id is in `held` or that occurs twice, or None."""
    for place, param in enumerate(params):
        if id(param) in held:
            return place
        held.add(id(param))
    return None


def _plain(value: Any) -> Any:
    """Return a number or string that JSON can hold. Reading the number of an array waits for the device."""
    if isinstance(value, tuple | list):
        return [host_number(one) for one in value]
    if hasattr(value, "dtype") and not isinstance(value, np.generic):
        return float(devices.to_host(value).reshape(()))
    return host_number(value)


def _restore(group: dict[str, Any], saved: Mapping[str, Any]) -> None:
    """Load hyperparameters from `saved`. A rate that is an array is written in place."""
    for name, value in _loadable(group, saved).items():
        if name == "lr" and hasattr(group["lr"], "dtype") and not isinstance(group["lr"], np.generic):
            lr = group["lr"]
            ops.copy(_to_device_of(np.full(lr.shape, value, lr.dtype), lr), out=lr)
        else:
            group[name] = value


def _loadable(group: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `saved` that a group loads."""
    found = {name: value for name, value in saved.items() if name in group and name not in ("params", *FIXED)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def _to_device_of(host: np.ndarray[Any, Any], like: Array) -> Array:
    """Copy `host` to the device of `like`."""
    return devices.from_host(host, registry.device_of(like, "a parameter"))
