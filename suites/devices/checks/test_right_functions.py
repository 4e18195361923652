"""Functions of a user's that are right: the generated tests let them pass, in 16 bits too, on every device.

What of wrong ones is found is shown in suites/harness/checks/test_wrong_functions.py. Each rounds in a way of its own:
sums that cancel, chains of steps each rounded to the dtype, a small number added to a large one, what NumPy adds one by
one.
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
test_sum_one_by_one = right(lambda xp, a: xp.cumsum(a), dtypes=("float32", "float64"))  # wrong in 16 bits: they add up
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


# ------------------------------------------------------------------------------------------------ formulas

NUMPY = ("float32", "float64")


def plain(fn: Any, **declared: Any) -> Any:
    return right(fn, **{"dtypes": NUMPY, **declared})


def rows(make: Any) -> list[Any]:
    return [make((3, 33)), make((5, 257))]


def matrices(make: Any) -> list[Any]:
    return [(make((4, 5)), make((5, 3))), (make((33, 17)), make((17, 65)))]


def stable_logsumexp(xp: Any, a: Any) -> Any:
    top = a.max(axis=-1, keepdims=True)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))  # of infinities, inf - inf would be NaN
    return xp.log(xp.exp(a - top).sum(axis=-1)) + top[..., 0]


def layer_norm(xp: Any, a: Any, eps: float = 1e-5) -> Any:
    mean = a.mean(axis=-1, keepdims=True)
    return (a - mean) / xp.sqrt(((a - mean) ** 2).mean(axis=-1, keepdims=True) + eps)


def convolved_by_fft(xp: Any, a: Any, b: Any) -> Any:
    size = a.shape[-1] + b.shape[-1] - 1
    return xp.fft.irfft(xp.fft.rfft(a, size) * xp.fft.rfft(b, size), size)


def softplus(xp: Any, a: Any) -> Any:
    return xp.maximum(a, 0) + xp.log1p(xp.exp(-xp.abs(a)))


def distances(xp: Any, a: Any, b: Any) -> Any:
    return xp.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=-1))


def attention(xp: Any, q: Any, k: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    powers = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ k


def points(make: Any) -> list[Any]:
    return [(make((7, 3)), make((5, 3))), (make((33, 17)), make((9, 17)))]


test_norm = plain(lambda xp, a: xp.linalg.norm(a))
test_norm_by_a_reference = plain(lambda xp, a: xp.linalg.norm(a), reference=np.linalg.norm)
test_rows_of_unit_length = plain(lambda xp, a: a / xp.linalg.norm(a, axis=-1, keepdims=True), samples=rows)
test_stable_softmax = plain(softmax, samples=rows, reference=lambda a: softmax(np, a))
test_stable_logsumexp = plain(stable_logsumexp, samples=rows, reference=lambda a: np.logaddexp.reduce(a, axis=-1))
test_naive_logsumexp_by_a_reference = plain(
    lambda xp, a: xp.log(xp.exp(a).sum(axis=-1)),
    samples=lambda make: [make((5, 257), low=-20, high=20)],  # where no range is given, 384 is tried
    reference=lambda a: np.logaddexp.reduce(a, axis=-1),
)
test_layer_norm = plain(layer_norm, samples=rows, reference=lambda a: layer_norm(np, a))
test_log_softmax = plain(
    lambda xp, a: a - a.max(-1, keepdims=True) - xp.log(xp.exp(a - a.max(-1, keepdims=True)).sum(-1, keepdims=True)),
    samples=rows,
)
test_silu = plain(lambda xp, a: a / (1 + xp.exp(-a)))
test_softplus = plain(softplus, reference=lambda a: np.logaddexp(0, a))
test_relu = plain(lambda xp, a: xp.maximum(a, 0), reference=lambda a: np.where(a < 0, 0, a))
test_leaky_relu = plain(lambda xp, a: xp.where(a > 0, a, a * 0.01))
test_clip = plain(lambda xp, a: xp.clip(a, -1, 1))
test_variance_of_rows = plain(lambda xp, a: xp.var(a, axis=-1), samples=rows, reference=lambda a: np.var(a, axis=-1))
test_standard_deviation = plain(lambda xp, a: xp.std(a, axis=0), samples=rows)
test_z_scores = plain(lambda xp, a: (a - a.mean(axis=0)) / a.std(axis=0), samples=rows)
test_median = plain(lambda xp, a: xp.median(a, axis=-1), samples=rows)
test_quantile = plain(
    lambda xp, a: xp.quantile(a, 0.25, axis=-1), samples=rows, without={"stress": "CuPy's quantile loses NaN"}
)
test_covariance = plain(lambda xp, a: xp.cov(a), samples=rows, result_dtype="float64")
test_correlation_of_rows = plain(lambda xp, a: (c := a - a.mean(-1, keepdims=True)) @ c.T / a.shape[-1], samples=rows)
test_sorted_rows = plain(lambda xp, a: xp.sort(a, axis=-1), samples=rows)
test_order_of_rows = plain(lambda xp, a: xp.argsort(a, axis=-1, kind="stable"), samples=rows)
test_largest_of_rows = plain(lambda xp, a: xp.max(a, axis=-1), samples=rows)
test_running_sum = plain(lambda xp, a: xp.cumsum(a, axis=-1), samples=rows)
test_running_product = plain(lambda xp, a: xp.cumprod(a, axis=-1), samples=lambda make: [make((3, 17))])
test_differences = plain(lambda xp, a: xp.diff(a, axis=-1), samples=rows)
test_trapezoids = plain(lambda xp, a: (a[..., 1:] + a[..., :-1]).sum(axis=-1) / 2, samples=rows)
test_transposed_view = plain(lambda xp, a: a.T)
test_reshaped = plain(lambda xp, a: a.reshape(-1))
test_the_input_itself = plain(lambda xp, a: a)
test_flipped = plain(lambda xp, a: xp.flip(a, axis=-1), samples=rows)
test_rolled = plain(lambda xp, a: xp.roll(a, 3, axis=-1), samples=rows)
test_real_fft = plain(lambda xp, a: xp.abs(xp.fft.rfft(a, axis=-1)), samples=rows)
test_convolution_by_fft = plain(
    convolved_by_fft, samples=lambda make: [(make(257), make(9)), (make(100), make(33))], reference=np.convolve
)
test_matrix_product = plain(lambda xp, a, b: a @ b, samples=matrices)
test_einsum = plain(lambda xp, a, b: xp.einsum("ij,jk->ik", a, b), samples=matrices, reference=np.matmul)
test_outer_product = plain(lambda xp, a, b: xp.outer(a, b), samples=lambda make: [(make(17), make(33))])
test_distances = plain(distances, samples=points)
test_attention = plain(attention, samples=points)
test_hypot = plain(lambda xp, a, b: xp.hypot(a, b), reference=np.hypot)
test_arc_tangent = plain(lambda xp, a, b: xp.arctan2(a, b))
test_logit_of_probabilities = plain(
    lambda xp, a: xp.log(a / (1 - a)), samples=lambda make: [make((3, 33), low=0.1, high=0.9)]
)
test_entropy = plain(
    lambda xp, a: -(a * xp.log(a)).sum(axis=-1), samples=lambda make: [make((3, 257), low=0.01, high=1)]
)
test_sine = plain(lambda xp, a: xp.sin(a), reference=np.sin, relations=("odd",))
test_cosine = plain(lambda xp, a: xp.cos(a), relations=("even",))
test_even_power = plain(lambda xp, a: a**4, relations=("even",))
test_softmax_with_its_relations = plain(softmax, samples=rows, relations=("shift_invariant", "batch_invariant"))
test_mean_with_its_relations = plain(
    lambda xp, a: a.mean(axis=-1), samples=rows, relations=("linear", "permutation_of_axis")
)
test_rounding = plain(lambda xp, a: xp.floor(a), relations=("idempotent",))
test_counts = plain(lambda xp, a: (a > 0).sum(axis=-1), samples=rows)
test_comparison = plain(lambda xp, a, b: a < b)
test_absolute_integers = plain(lambda xp, a: xp.abs(a), dtypes=("int8", "int32"))
test_sum_of_integers = plain(lambda xp, a: xp.sum(a), dtypes=("int32", "uint8"))
test_hash = plain(lambda xp, a: (a * 73) ^ (a >> 3), dtypes=("uint8",))
test_larger_of_integers = plain(lambda xp, a, b: xp.maximum(a, b), dtypes=("int16", "int32"), reference=np.maximum)


def placed(xp: Any, a: Any, places: Any) -> Any:
    """Rows at other places, each once: with one twice, which of the two is there is not known."""
    out = xp.empty_like(a)
    out[places] = a
    return out


test_rows_by_a_permutation = right(
    placed, result_dtype=lambda a, places: a, dtypes=("float32",),
    samples=lambda make: [(make((6, 3)), np.array([3, 1, 0, 5, 4, 2])), (make((4, 5)), np.array([0, 2, 1, 3]))],
    reference=lambda a, places: a[np.argsort(places)],
)  # fmt: skip
test_a_range_of_orders_of_magnitude = right(
    lambda xp, rate, n=12: rate / (1 - (1 + rate) ** (-n)), dtypes=("float32", "float64"),
    samples=lambda make: [make(20, low=0.001, high=0.2)],
    reference=lambda rate, n=12: rate / (1 - (1 + rate) ** (-float(n))),
)  # fmt: skip
