"""Shape rules of ops over lists of arrays: they check for equal shapes, a common dtype, and valid hyperparameters.

They are rules as in `cuassay.ops.shapes`; those of ops that make no array only check. They run when a call is made
or a plan is prepared, and not when a plan runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from cuassay.arrays.dtypes import FLOATS, HALVES, compute_dtype, dtype_name
from cuassay.core.numbers import as_real, as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.ops.arguments import flag
from cuassay.ops.schema import Arguments, ShapeRule

__all__ = ["adam", "aligned", "global_norm", "loss_scale", "maxima", "norms", "unscaled"]

Arrays = Sequence[Any]


def aligned(*names: str, one_dtype: bool = True, scalar: str = "") -> ShapeRule:
    """Make the rule for lists of equal length whose arrays are contiguous and have equal shapes at equal positions.

    The first list is written, so none of its arrays may also appear at another position. Views that overlap are not
    detected.

    Parameters
    ----------
    *names : str
        The lists; all but the first may instead be a number or an array of one element.
    one_dtype : bool
        Whether all lists share one dtype; otherwise each list has its own.
    scalar : str
        A parameter that must be a number or an array of one element, never a list.
    """

    def rule(bound: Arguments) -> tuple[int, ...]:
        lists = {name: bound[name] for name in names if not _is_scalar(bound[name])}
        _check_same_shapes(lists)
        _check_written(lists)
        if "alpha" in bound:
            _check_scalar("alpha", bound["alpha"], None)
        dtypes = {name: _dtype_of(name, arrays) for name, arrays in lists.items() if arrays}
        if one_dtype and len(set(dtypes.values())) > 1:
            found = ", ".join(f"{name} {dtype_name(dtype)}" for name, dtype in dtypes.items())
            raise DTypeError(f"the lists must have one dtype; got {found}; cast one with foreach_copy_")
        for name in (*names[1:], *([scalar] if scalar else [])):
            if name not in lists:
                _check_scalar(name, bound[name], dtypes[names[0]])
        return ()

    return rule


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, list | tuple)


def _check_scalar(name: str, value: Any, dtype: Any) -> None:
    """Check for a Python number, or a single number on the device in the dtype that the lists are computed in."""
    if hasattr(value, "dtype") and dtype is not None:
        check_one(name, value, dtype_name(compute_dtype(dtype)))
    elif not isinstance(value, Real):
        raise ArgumentError(
            f"{name} is {shown(value)}; give a list of arrays, a real number, or an array of one element"
        )


def check_one(name: str, array: Any, *dtypes: str) -> None:
    """Check that `array` holds one element of one of `dtypes`. Raises `ShapeError`, `DTypeError`."""
    if math.prod(array.shape) != 1:
        raise ShapeError(f"{name} must have one element; got shape {tuple(array.shape)}; give a 0-d array")
    if dtype_name(array.dtype) not in dtypes:
        raise DTypeError(f"{name} must be {' or '.join(dtypes)}; got {dtype_name(array.dtype)}; cast it")


def _check_same_shapes(lists: Mapping[str, Arrays]) -> None:
    (first, arrays), *others = lists.items()
    for name, other in others:
        if len(other) != len(arrays):
            raise ArgumentError(f"{first} has {len(arrays)} arrays and {name} {len(other)}; give as many in each")
        for place, (left, right) in enumerate(zip(arrays, other, strict=True)):
            if left.shape != right.shape:
                raise ShapeError(
                    f"{name}[{place}] must have the shape of {first}[{place}], {tuple(left.shape)}; "
                    f"got {tuple(right.shape)}; reshape one, or see whether the lists are in the same order"
                )
    for name, some in lists.items():
        _check_contiguous(name, some)


def _check_written(lists: Mapping[str, Arrays]) -> None:
    """Check that the first list, which is written, has each array once; others may have it at the same position."""
    (first, arrays), *others = lists.items()
    places = {id(array): place for place, array in reversed([*enumerate(arrays)])}
    for name, some in ((first, arrays), *others):
        for place, array in enumerate(some):
            if places.get(id(array), place) != place:
                raise _twice(name, place, first, places[id(array)])


def _check_apart(lists: Mapping[str, Arrays], *, shared: str = "") -> None:
    """Check that no array appears twice in all lists; the list `shared`, which is only read, may repeat its arrays."""
    seen: dict[int, tuple[str, int]] = {}
    for name, arrays in lists.items():
        for place, array in enumerate(arrays):
            former = seen.setdefault(id(array), (name, place))
            if former != (name, place) and (former[0] != name or name != shared):
                raise _twice(name, place, *former)


def _twice(name: str, place: int, former: str, at: int) -> ArgumentError:
    return ArgumentError(
        f"{name}[{place}] is the array that {former}[{at}] is, and one of the two would be written while the other is "
        "used; give each array once, and a copy where both are meant"
    )


def _check_contiguous(name: str, arrays: Arrays) -> None:
    """Check that the arrays are contiguous, because kernels over lists iterate over bytes, not axes."""
    for place, array in enumerate(arrays):
        if not _is_contiguous(array):
            raise ArgumentError(
                f"{name}[{place}] is not C-contiguous: shape {tuple(array.shape)}, strides {tuple(array.strides)}; "
                "give a contiguous array, or its transpose if that is one"
            )


def _is_contiguous(array: Any) -> bool:
    """Decide by strides, which arrays of every kind have; a `Meta` has none and counts as contiguous."""
    strides, expected = getattr(array, "strides", None), array.dtype.itemsize
    if strides is None or 0 in array.shape:
        return True
    for extent, stride in zip(reversed(array.shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _dtype_of(name: str, arrays: Arrays) -> Any:
    dtype = arrays[0].dtype
    for place, array in enumerate(arrays):
        if array.dtype != dtype:
            raise DTypeError(
                f"{name} must have one dtype; {name}[0] is {dtype_name(dtype)}, {name}[{place}] "
                f"{dtype_name(array.dtype)}; put the arrays of each dtype into a list (a parameter group) of their own"
            )
    return dtype


def norms(bound: Arguments) -> tuple[int, ...]:
    """Return the shape (n,), one number per array of a list that must not be empty."""
    _dtype_of("a", bound["a"])
    if bound["ord"] not in (2, math.inf):
        raise ArgumentError(f"ord must be 2 or infinity; got {shown(bound['ord'])}; give 2 or math.inf")
    return (len(bound["a"]),)


def maxima(bound: Arguments) -> tuple[int, ...]:
    """Return the shape (n,), one number per array; each array must have elements, and strides do not matter."""
    _dtype_of("a", bound["a"])
    for place, array in enumerate(bound["a"]):
        if 0 in array.shape:
            raise ShapeError(
                f"the maximum of no elements is undefined; got a[{place}] of shape {tuple(array.shape)}; leave it out"
            )
    return (len(bound["a"]),)


def global_norm(bound: Arguments) -> tuple[int, ...]:
    """Check for gradients of one dtype, and for one float32 element in each other array."""
    _dtype_of("grads", bound["grads"])
    check_ones(bound, "norm", "found_inf", "grad_scale")
    flag("accumulate", bound["accumulate"])
    return ()


def unscaled(bound: Arguments) -> tuple[int, ...]:
    """Check as `global_norm` does; the gradients are written, so each may appear only once."""
    _check_written({"grads": bound["grads"]})
    _dtype_of("grads", bound["grads"])
    check_ones(bound, "found_inf", "inv_scale")
    return ()


def check_ones(bound: Arguments, *names: str) -> None:
    for name in names:
        if hasattr(bound[name], "dtype"):
            check_one(name, bound[name], "float32")
        elif bound[name] is not None:
            raise ArgumentError(
                f"{name} must be an array of the device; got {shown(bound[name])}; give a float32 array"
            )


# ------------------------------------------------------------------------------------------------ Adam


def adam(bound: Arguments) -> tuple[int, ...]:
    """Check that gradients and states match the parameters, and that the hyperparameters are valid for Adam."""
    lists = {name: bound[name] for name in ("params", "grads", "exp_avgs", "exp_avg_sqs")}
    lists |= {name: bound[name] for name in ("max_exp_avg_sqs", "masters") if bound[name]}
    _check_same_shapes(lists)
    are_written = bound["grad_scale"] is not None or bound["max_norm"] is not None or bound["zero_grads"]
    _check_apart(lists, shared="" if are_written else "grads")
    _check_adam_dtypes({name: dtype_name(_dtype_of(name, arrays)) for name, arrays in lists.items()})
    steps, count = bound["steps"], len(bound["params"])
    if tuple(steps.shape) != (count,) or dtype_name(steps.dtype) != "float32":
        raise ArgumentError(
            f"steps must be ({count},) float32, one number a parameter; got {tuple(steps.shape)} "
            f"{dtype_name(steps.dtype)}; make it with zeros({count}, 'float32')"
        )
    check_ones(bound, "grad_scale", "found_inf", "norm")
    check_hyperparameters(bound)
    for name in ("decoupled", "maximize", "zero_grads"):
        flag(name, bound[name])
    _check_stochastic(bound)
    return ()


def loss_scale(bound: Arguments) -> tuple[int, ...]:
    """Check the arrays of a loss scale, and the factors and interval that change it."""
    for name in ("scale", "inv_scale", "found_inf"):
        check_one(name, bound[name], "float32")
    check_one("growth_tracker", bound["growth_tracker"], "int32")
    growth, backoff, interval = bound["growth_factor"], bound["backoff_factor"], bound["growth_interval"]
    if not 1 < (as_real(growth) or 0) < math.inf:
        raise ArgumentError(f"growth_factor must be a number above 1; got {shown(growth)}; 2.0 is usual")
    if not 0 < (as_real(backoff) or 0) < 1:
        raise ArgumentError(f"backoff_factor must be a number between 0 and 1; got {shown(backoff)}; 0.5 is usual")
    if (whole := as_whole(interval)) is None or whole < 1:
        raise ArgumentError(
            f"growth_interval must be a whole number of steps, 1 or more; got {shown(interval)}; see 2000"
        )
    return ()


#: The dtypes allowed for the two moments, by the dtype of the parameters.
_STATES: dict[str, tuple[str, ...]] = {
    "float64": ("float64",),
    "float32": ("float32", "bfloat16"),
    "bfloat16": ("bfloat16", "float32"),
    "float16": ("float16", "float32"),
}


def _check_adam_dtypes(dtypes: Mapping[str, str]) -> None:
    params = dtypes["params"]
    if params not in FLOATS:
        raise DTypeError(f"params must be one of {', '.join(FLOATS)}; got {params}; cast them")
    allowed = {"grads": (params, "float32") if params in HALVES else (params,), "exp_avgs": _STATES[params]}
    allowed["exp_avg_sqs"] = allowed["max_exp_avg_sqs"] = (dtypes["exp_avgs"],)
    allowed["masters"] = ("float32",) if params in HALVES else ()
    for name, dtype in dtypes.items():
        if name != "params" and dtype not in allowed[name]:
            raise DTypeError(
                f"{name} for {params} params must be {' or '.join(allowed[name]) or 'omitted'}; got {dtype}; "
                "cast the list with foreach_copy_"
            )


def check_hyperparameters(bound: Arguments) -> None:
    """Check lr, betas, eps, weight decay and max_norm on the host. Raises `ArgumentError`, `DTypeError`."""
    lr = bound["lr"]
    if hasattr(lr, "dtype"):
        check_one("lr", lr, "float32", "float64")
    else:
        _check_number("lr", lr, 0, math.inf)
    for name in ("beta1", "beta2"):
        _check_number(name, bound[name], 0, 1)
    for name in ("eps", "weight_decay"):
        _check_number(name, bound[name], 0, math.inf)
    if bound["max_norm"] is not None:
        _check_number("max_norm", bound["max_norm"], 0, math.inf)
        if bound["norm"] is None:
            raise ArgumentError("max_norm needs the gradients' norm; got norm=None; compute it with global_norm_")


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    found = None if isinstance(value, bool) else as_real(value)
    if found is None or not low <= found < high:
        until = "finite" if high == math.inf else f"below {high}"
        raise ArgumentError(f"{name} must be a number, {low} or more and {until}; got {shown(value)}; correct it")


def _check_stochastic(bound: Arguments) -> None:
    if bound["seed"] is None:
        return
    if (seed := as_whole(bound["seed"])) is None or not 0 <= seed < 2**64:
        raise ArgumentError(
            f"seed must be a whole number from 0 to 2**64 - 1, or None; got {shown(bound['seed'])}; correct it"
        )
    stored = {dtype_name(bound[name][0].dtype) for name in ("params", "exp_avgs") if bound[name]}
    if "bfloat16" not in stored:
        raise DTypeError(
            f"stochastic rounding (a seed) is for bfloat16 params or states; got {' and '.join(sorted(stored))}; "
            "omit seed"
        )
