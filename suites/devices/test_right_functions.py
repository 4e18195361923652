"""Functions of a user's that are right: the generated tests let them pass, in 16 bits too, on every device.

What of wrong ones is found stands in suites/harness/test_wrong_functions.py. Each rounds in a way of its own: sums that
cancel, chains of steps each rounded to the dtype, a small number added to a large one, what NumPy adds one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance

FLOATS = ("float16", "bfloat16", "float32", "float64")
#: CuPy has few functions in bfloat16, and none of these in all forms.
ON_THE_HOST = {"cuda": ("bfloat16",)}


def right(fn: Any, *, dtypes: tuple[str, ...] = FLOATS, **declared: Any) -> Any:
    unclaimed = ON_THE_HOST if "bfloat16" in dtypes else {}
    return conformance(OpSpec(fn=fn, dtypes=dtypes, unclaimed=unclaimed, **declared))


def of_rows(make: Any) -> list[Any]:
    return [make((3, 257)), make((2, 3, 64)), make((5, 1025))]


def rms_norm(xp: Any, a: Any, eps: float = 1e-6) -> Any:
    return (a / xp.sqrt(xp.mean(a * a, axis=-1, keepdims=True) + eps)).astype(a.dtype)


def softmax(xp: Any, a: Any) -> Any:
    powers = xp.exp(a - a.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def standardized(xp: Any, a: Any) -> Any:
    centred = a - a.mean(axis=-1, keepdims=True)
    return (centred / xp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)).astype(a.dtype)


test_rms_norm = right(rms_norm, samples=of_rows, result_dtype=lambda a: a)
test_rms_norm_by_a_reference = right(
    rms_norm, result_dtype=lambda a: a,
    samples=lambda make: [make((3, 257)), Sample((make((2, 3, 64)),), {"eps": 0.1})],
    reference=lambda a, eps=1e-6: a / np.sqrt((a * a).mean(-1, keepdims=True) + eps),
)  # fmt: skip
test_softmax = right(softmax, samples=of_rows)
test_standardized = right(standardized, samples=of_rows, result_dtype=lambda a: a)
test_log_sum_exp = right(lambda xp, a: xp.log(xp.sum(xp.exp(a), axis=-1)), samples=of_rows)
test_variance = right(lambda xp, a: xp.var(a, axis=-1), samples=of_rows, dtypes=("float16", "float32", "float64"))
test_mean_over_the_first_axis = right(lambda xp, a: xp.mean(a, axis=0), samples=of_rows)
test_unit_length = right(lambda xp, a: a / xp.sqrt(xp.sum(a * a, axis=-1, keepdims=True)), samples=of_rows)
test_tanh = right(lambda xp, a: xp.tanh(a))
test_mish = right(lambda xp, a: a * xp.tanh(xp.log1p(xp.exp(a))))
test_sigmoid = right(lambda xp, a: 1 / (1 + xp.exp(-a)))
test_one_that_small_numbers_are_added_to = right(lambda xp, a: xp.log(1 + xp.abs(a)))
test_gelu = right(lambda xp, a: 0.5 * a * (1 + xp.tanh(0.7978845608 * (a + 0.044715 * a * a * a))))
test_polynomial = right(lambda xp, a: ((a * a - 1) * a + 0.5) * a - 2)
test_two_arrays = right(lambda xp, a, b: a * b + a - b)
test_sum_one_by_one = right(lambda xp, a: xp.cumsum(a), dtypes=("float16", "float32", "float64"))
test_sum = right(lambda xp, a: xp.sum(a), dtypes=("float16", "float32", "float64"))
test_what_cancels = right(lambda xp, a: a - xp.sum(a) / max(a.size, 1), dtypes=("float16", "float32", "float64"))
test_order = right(lambda xp, a: xp.sort(a, axis=None), dtypes=("float16", "float32", "float64"))
test_place_of_the_largest = right(
    lambda xp, a: xp.argmax(a, axis=-1), samples=of_rows, reference=lambda a: np.argmax(a, axis=-1),
    dtypes=("float16", "float32", "float64"),
)  # fmt: skip
test_product = right(
    lambda xp, a, b: a @ b,
    samples=lambda make: [(make((17, 33)), make((33, 5)))],
    dtypes=("float16", "float32", "float64"),
)
test_determinant = right(
    lambda xp, a: xp.linalg.det(a), samples=lambda make: [make((8, 8))], dtypes=("float32",)
)  # fmt: skip
test_complex_numbers = right(lambda xp, a, b: a * b + 1, dtypes=("complex64",))
test_whole_numbers = right(lambda xp, a, b: a * b + a - b, dtypes=("int8", "int32", "int64"))
