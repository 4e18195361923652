"""The Adam step on lists of NumPy arrays: the readable reference.

Called by `cuassay.ops`; OpSpec: `cuassay.testing.specs.optim`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import FLOATS, compute_dtype, dtype_name
from cuassay.arrays.philox import philox4x32
from cuassay.devices.cpu.multi_tensor import as_computed, foreach_zero_
from cuassay.ops import registry

__all__ = ["register", "stochastic_bits"]

Array = NDArray[Any]
Arrays = Sequence[Array]

#: One call of Philox serves this many neighbours with 16 bits each.
_GROUP = 8

#: The lists that are rounded, each with separate random numbers, and the number of such streams in a step.
_STREAMS = {"params": 0, "exp_avgs": 2, "exp_avg_sqs": 3, "max_exp_avg_sqs": 4}
_STREAMS_A_STEP = 6


def fused_adam_(
    params: Arrays,
    grads: Arrays,
    exp_avgs: Arrays,
    exp_avg_sqs: Arrays,
    max_exp_avg_sqs: Arrays,
    masters: Arrays,
    steps: Array,
    lr: Any,
    grad_scale: Any,
    found_inf: Any,
    norm: Any,
    *,
    zero_grads: bool,
    seed: int | None,
    **hyper: Any,
) -> None:
    """Take one step, tensor by tensor; if `found_inf` is set, only gradients to be zeroed change."""
    if found_inf is None or not np.any(found_inf != 0):
        steps += np.float32(1)
        factor = _factor(grad_scale, norm, hyper["max_norm"])
        rate = float(np.asarray(lr).reshape(()))
        for place, param in enumerate(params):
            dtype = compute_dtype(param.dtype)
            grad = as_computed(grads[place]).astype(dtype) * dtype.type(factor)
            if grad_scale is not None or hyper["max_norm"] is not None:
                grads[place][...] = grad.astype(grads[place].dtype)
            states = {"exp_avgs": exp_avgs[place], "exp_avg_sqs": exp_avg_sqs[place]}
            if max_exp_avg_sqs:
                states["max_exp_avg_sqs"] = max_exp_avg_sqs[place]
            weight = masters[place] if masters else param
            new = _updated(as_computed(weight), grad, states, float(steps[place]), rate, **hyper)
            if masters:
                masters[place][...] = new["params"]
                param[...] = new.pop("params").astype(param.dtype)
            for name, values in new.items():
                _write(states.get(name, param), values, seed, int(steps[place]), place, _STREAMS[name])
    if zero_grads:
        foreach_zero_(grads)


def _write(target: Array, values: Array, seed: int | None, step: int, tensor: int, stream: int) -> None:
    """Round `values` to `target`; with a seed, bfloat16 is rounded stochastically."""
    if seed is None or dtype_name(target.dtype) != "bfloat16":
        target[...] = values.astype(target.dtype)
    else:
        bits = stochastic_bits(seed, step, tensor, target.size, stream)
        target[...] = _rounded(values, bits.reshape(target.shape))


def _factor(grad_scale: Any, norm: Any, max_norm: float | None) -> float:
    """Return the factor of the gradients: unscaling, then clipping to a norm of at most `max_norm`."""
    factor = 1.0 if grad_scale is None else 1.0 / float(grad_scale.reshape(()))
    if max_norm is None:
        return factor
    clip = max_norm / (float(norm.reshape(())) + 1e-6)
    return factor * (1.0 if clip >= 1 else clip)


def _updated(
    p: Array,
    g: Array,
    states: dict[str, Array],
    count: float,
    lr: float,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
    max_norm: float | None,
) -> dict[str, Array]:
    """Return the new parameters and states in the dtype of the computation."""
    real = p.dtype.type
    g = -g if maximize else g
    if decoupled:
        p = p - real(lr * weight_decay) * p
    else:
        g = g + real(weight_decay) * p
    m, v = (states[name].astype(p.dtype) for name in ("exp_avgs", "exp_avg_sqs"))
    m = real(beta1) * m + real(1 - beta1) * g
    v = real(beta2) * v + real(1 - beta2) * (g * g)
    new = {"exp_avgs": m, "exp_avg_sqs": v}
    if "max_exp_avg_sqs" in states:
        v = new["max_exp_avg_sqs"] = np.maximum(states["max_exp_avg_sqs"].astype(p.dtype), v)
    step_size, root = real(lr / _rest(beta1, count)), real(1 / math.sqrt(_rest(beta2, count)))
    return {"params": p - step_size * m / (np.sqrt(v) * root + real(eps)), **new}


def _rest(beta: float, count: float) -> float:
    """Return ``1 - beta**count`` without cancellation."""
    return -math.expm1(count * math.log(beta)) if beta else 1.0


def stochastic_bits(seed: int, step: int, tensor: int, size: int, stream: int) -> NDArray[np.uint32]:
    """Return 16 random bits for each element, from seed, step, the tensor's place in the list, element and `stream`."""
    groups = -(-size // _GROUP)
    counter = np.zeros((groups, 4), np.uint32)
    counter[:, 0] = step * _STREAMS_A_STEP + stream
    subsequence = np.arange(groups, dtype=np.uint64) | np.uint64(tensor << 40)
    counter[:, 2], counter[:, 3] = subsequence.astype(np.uint32), subsequence >> np.uint64(32)
    words = philox4x32(counter, np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32))
    return np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1).reshape(-1)[:size]


def _rounded(values: Array, bits: NDArray[np.uint32]) -> Array:
    """Round float32 to bfloat16, up with a probability equal to the discarded fraction: add 16 random bits, cut 16."""
    words = values.astype(np.float32).view(np.uint32)
    finite = (words & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    moved = np.where(finite, words + bits, words) & np.uint32(0xFFFF0000)
    return moved.view(np.float32)


def register() -> None:
    """Add the implementation to the registry."""
    registry.implement("fused_adam_", kind="cpu", dtypes=FLOATS)(fused_adam_)
