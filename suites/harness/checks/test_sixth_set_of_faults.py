"""The sixth set of wrong functions, each found by a check that its right twin passes; and classes like theirs.

The set is in suites/data/faults/sixth_set.py. Of its 40 faults 31 were found at its first run.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS

SET = runpy.run_path(str(Path(__file__).parents[2] / "data" / "faults" / "sixth_set.py"))
PAIRS = {pair.name: pair for pair in SET["PAIRS"]}

#: The check that names each fault.
FOUND = {
    "tile_sum": "values",
    "half_sum": "accumulation",
    "half_dot": "accumulation",
    "peak": "values",
    "reverse_cumsum": "second_call",
    "spread": "values",
    "logsumexp": "zero_size",
    "median": "values",
    "rms_norm": "units",
    "layer_norm": "values",
    "softmax": "inputs_unchanged",
    "gelu": "constants",
    "relu": "stress",
    "hard_tanh": "signed_zeros",
    "scores": "values",
    "causal": "values",
    "causal_fill": "units",
    "cross_entropy": "values",
    "bce": "units",
    "huber": "values",
    "adam": "units",
    "sgd": "values",
    "scatter_add": "values",
    "segment_max": "values",
    "top_k": "stress",
    "sort_down": "stress",
    "argmax": "halves",
    "quantise": "halves",
    "dequantise": "stress",
    "absdiff": "values",
    "bucket": "full_range",
    "midpoint": "full_range",
    "fixed": "units",
    "hann": "values",
    "vdot": "values",
    "phase": "values",
    "flatten": "aliasing",
    "ravel": "second_call",
    "positions": "second_call",
    "workspace": "aliasing",
}

Function = Callable[..., Any]


def run(check: str, fn: Function, declared: dict[str, Any]) -> None:
    spec = OpSpec(fn=fn, name="function", **declared)
    found = CHECKS[check]
    found(spec, "cpu:0", *((np.dtype(spec.dtypes[0]),) if found.per_dtype else ()))


def test_every_fault_of_the_set_is_in_the_table() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize(("name", "check"), FOUND.items(), ids=FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str, check: str) -> None:
    pair = PAIRS[name]

    run(check, pair.right, pair.declared)
    with pytest.raises(AssertionError):
        run(check, pair.wrong, pair.declared)


# ------------------------------------------------------------------------------------------------ classes like theirs


def rows(make: Any) -> list[Any]:
    return [make((3, 33))]


def squares(make: Any) -> list[Any]:
    return [make((6, 6))]


def float16_rows(make: Any) -> list[Any]:
    return [(make((4, 16)), make((16, 5)))]


def powers(make: Any) -> list[Any]:
    return [Sample((make((4, 5)),), {"k": 0})]


def quantised(xp: Any, a: Any, rounded: Function) -> Any:
    scale = xp.abs(a).max(axis=-1, keepdims=True) / 127
    return rounded(a / scale).astype("int8")


def written_if_small(xp: Any, a: Any) -> Any:
    if a.size > 64:
        return a + 1
    a += 1
    return a * 1


SQRT_HALF, SQRT_HALF_CUT = 0.70710678, 0.707106

#: Of each class: the check, what is declared, the wrong function, its right twin, and what the failure says.
CLASSES: dict[str, tuple[str, dict[str, Any], Function, Function, str]] = {
    "an exponential that overflows": (
        "units",
        {"reference": lambda a: np.logaddexp(0, a), "samples": rows},
        lambda xp, a: xp.log(1 + xp.exp(a)),
        lambda xp, a: xp.logaddexp(a, xp.zeros_like(a)),
        "far beyond the samples",
    ),
    "a minimum that starts at a million": (
        "units",
        {"reference": lambda a: a.min(-1), "samples": rows},
        lambda xp, a: xp.minimum(a.min(axis=-1), xp.asarray(1e6, a.dtype)),
        lambda xp, a: a.min(axis=-1),
        "constant replace infinity",
    ),
    "a fraction by way of int32": (
        "units",
        {"reference": lambda a: a - np.trunc(a), "samples": rows, "dtypes": ("float64",)},
        lambda xp, a: a - a.astype("int32").astype(a.dtype),
        lambda xp, a: a - xp.trunc(a),
        "wrong for others",
    ),
    "an absolute value by squares": (
        "units",
        {"reference": np.abs, "samples": rows, "dtypes": ("complex64",), "result_dtype": "float32"},
        lambda xp, a: xp.sqrt(a.real**2 + a.imag**2),
        lambda xp, a: xp.abs(a),
        "far beyond the samples",
    ),
    "an epsilon inside the root, for a small variance": (
        "units",
        {
            "reference": lambda a, v: a / (np.sqrt(v) + 1e-8),
            "samples": lambda make: [(make(64), make(64, low=0, high=1))],
        },
        lambda xp, a, v: a / xp.sqrt(v + 1e-8),
        lambda xp, a, v: a / (xp.sqrt(v) + 1e-8),
        "right for the sample's own numbers",
    ),
    "a sum of int32 that wraps around": (
        "stress",
        {"reference": lambda a: a.mean(-1), "samples": rows, "dtypes": ("int32",), "result_dtype": "float64"},
        lambda xp, a: xp.sum(a, axis=-1, dtype="int32").astype("float64") / a.shape[-1],
        lambda xp, a: xp.sum(a, axis=-1, dtype="int64").astype("float64") / a.shape[-1],
        "integers of the whole range",
    ),
    "uint8 that is read as int8": (
        "stress",
        {"reference": lambda a: a / 255, "samples": rows, "dtypes": ("uint8",), "result_dtype": "float32"},
        lambda xp, a: a.view("int8").astype("float32") / 255,
        lambda xp, a: a.astype("float32") / 255,
        "integers of the whole range",
    ),
    "int32 by way of float32": (
        "stress",
        {"reference": lambda a: a.astype(np.int64) + 1, "samples": rows, "dtypes": ("int32",)},
        lambda xp, a: (a.astype("float32") + 1).astype("int32"),
        lambda xp, a: a + 1,
        "integers of the whole range",
    ),
    "a NaN that the reference ignores": (
        "stress",
        {"reference": lambda a: np.fmax.reduce(a, axis=-1), "samples": rows},
        lambda xp, a: a.max(axis=-1),
        lambda xp, a: xp.where(xp.isnan(a), xp.asarray(-np.inf, a.dtype), a).max(axis=-1),
        "a NaN is not ignored",
    ),
    "halves away from zero": (
        "halves",
        {"reference": np.rint},
        lambda xp, a: xp.sign(a) * xp.floor(xp.abs(a) + 0.5),
        lambda xp, a: xp.rint(a),
        "half-way between two results",
    ),
    "halves after a scale of the largest": (
        "halves",
        {"reference": lambda a: quantised(np, a, np.rint), "samples": rows, "result_dtype": "int8"},
        lambda xp, a: quantised(xp, a, lambda b: xp.floor(b + 0.5)),
        lambda xp, a: quantised(xp, a, xp.rint),
        "half-way between two results",
    ),
    "a scale that is rounded to float16": (
        "accumulation",
        {"reference": lambda a: a * 0.1, "samples": rows, "dtypes": ("float16",), "result_dtype": "float32"},
        lambda xp, a: (a * xp.asarray(0.1, a.dtype)).astype("float32"),
        lambda xp, a: a.astype("float32") * 0.1,
        "not better than float16",
    ),
    "pi to six digits": (
        "constants",
        {"reference": lambda a: a * np.pi, "samples": rows},
        lambda xp, a: a * 3.14159,
        lambda xp, a: a * 3.1415927,
        "the constant 3.14159 is wrong: with 3.141592654",
    ),
    "a global that is cut off": (
        "constants",
        {"reference": lambda a: np.tanh(a * np.sqrt(0.5)), "samples": rows},
        lambda xp, a: xp.tanh(a * SQRT_HALF_CUT),
        lambda xp, a: xp.tanh(a * SQRT_HALF),
        "the constant 0.707106 is wrong",
    ),
    "a batch of one that is squeezed away": (
        "sizes",
        {"reference": lambda a: a.sum(-1), "samples": rows},
        lambda xp, a: xp.squeeze(a.sum(axis=-1, keepdims=True)),
        lambda xp, a: a.sum(axis=-1),
        "shape is",
    ),
    "a diagonal of squares only": (
        "sizes",
        {"reference": np.diagonal, "samples": squares},
        lambda xp, a: a.reshape(-1)[:: a.shape[0] + 1][: a.shape[0]].copy(),
        lambda xp, a: xp.diagonal(a).copy(),
        "out of tolerance",
    ),
    "an input written where it is small": (
        "sizes",
        {"reference": lambda a: a + 1, "samples": rows},
        written_if_small,
        lambda xp, a: a + 1,
        "writes an input of this size",
    ),
    "an option with the other sign": (
        "second_call",
        {"reference": lambda a, k=0: np.tril(a, k), "samples": powers},
        lambda xp, a, k=0: xp.tril(a, -k),
        lambda xp, a, k=0: xp.tril(a, k),
        "an option's value that no sample has",
    ),
    "the input itself where nothing is clipped": (
        "aliasing",
        {"reference": lambda a: np.clip(a, -3, 3), "samples": rows},
        lambda xp, a: a if bool((xp.abs(a) <= 3).all()) else xp.clip(a, -3, 3),
        lambda xp, a: xp.clip(a, -3, 3),
        "for ordinary numbers",
    ),
}


@pytest.mark.parametrize("name", CLASSES)
def test_the_class_is_found_and_its_right_twin_passes(name: str) -> None:
    check, declared, wrong, right, said = CLASSES[name]
    declared = {"dtypes": ("float32",), **declared}

    run(check, right, declared)
    with pytest.raises(AssertionError, match=said):
        run(check, wrong, declared)


def floors_of_products(xp: Any, a: Any) -> Any:
    return xp.floor(a * 1e6).astype("int64")


#: Right functions that checks of these classes have refused, or might.
RIGHT: dict[str, tuple[str, Function, dict[str, Any]]] = {
    "a floor that rounding in float32 decides": (
        "values",
        floors_of_products,
        {"reference": lambda a: floors_of_products(np, a), "samples": rows, "result_dtype": "int64"},
    ),
    "an exponential that overflows beyond the range that was asked for": (
        "units",
        lambda xp, a: xp.log(1 + xp.exp(a)),
        {"reference": lambda a: np.logaddexp(0, a), "samples": lambda make: [make((3, 33), low=-20, high=20)]},
    ),
    "a constant of float32": (
        "constants",
        lambda xp, a: a * float(np.float32(np.pi)),
        {"reference": lambda a: a * np.pi, "samples": rows},
    ),
    "a hash, in which integers wrap around": (
        "stress",
        lambda xp, a: (a * 73) ^ (a >> 3),
        {"reference": lambda a: (a * 73) ^ (a >> 3), "samples": rows, "dtypes": ("uint8",)},
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_function_is_not_refused(name: str) -> None:
    check, fn, declared = RIGHT[name]

    run(check, fn, {"dtypes": ("float32",), **declared})
