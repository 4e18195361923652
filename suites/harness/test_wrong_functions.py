"""Functions of a user's that are wrong in ways met in practice: the generated tests find each, and let right ones pass.

Each is wrong the way kernels are: in a dtype, in a tail, by a little, for a layout, in what it leaves behind.
"""

from __future__ import annotations

import pytest

HEAD = """
import numpy as np
from cuassay.testing import OpSpec, Sample, conformance

def rms_norm(xp, a, eps=1e-6):
    return (a / xp.sqrt(xp.mean(a * a, axis=-1, keepdims=True) + eps)).astype(a.dtype)

def rows(make):
    return [make((3, 257)), Sample((make((2, 3, 64)),), {"eps": 0.1})]

def exact_rms_norm(a, eps=1e-6):
    return a / np.sqrt((a * a).mean(-1, keepdims=True) + eps)

def without_tail(xp, a):
    out = xp.tanh(a).reshape(-1).copy()
    out[out.size // 32 * 32 :] = 0
    return out.reshape(a.shape)

def weighted(make):
    return [Sample((make((3, 5)),), {"weight": make((3, 5))})]

def product(a, weight):
    return a * weight

def several(make):
    return [([make(33), make((2, 3))],)]

def zeroing(value, array):
    value = value.copy()
    array[...] = 0
    return value

def same_shapes(xp, a, b):
    if a.shape != b.shape:
        raise RuntimeError("not written yet")
    return a + b

kept = {}

def kept_by_shape(xp, a):
    return kept.setdefault((a.shape, a.dtype, type(a)), xp.tanh(a)).copy()
"""

#: What is wrong: the spec, and the tests that find it.
WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    "nothing, in float16": (
        "fn=lambda xp, a, eps=1e-6: a * 0, samples=rows, reference=exact_rms_norm, dtypes=('float16',)",
        ("values", "layouts"),
    ),
    "nothing, in bfloat16": (
        "fn=lambda xp, a, eps=1e-6: a * 0, samples=rows, reference=exact_rms_norm, dtypes=('bfloat16',)",
        ("values", "layouts"),
    ),
    "a tail, in float16": ("fn=without_tail, reference=np.tanh, dtypes=('float16',)", ("values", "layouts")),
    "by a fiftieth, in float16": (
        "fn=lambda xp, a: xp.tanh(a) * a.dtype.type(1.02), reference=np.tanh, dtypes=('float16',)",
        ("values",),
    ),
    "by a thousandth, in float32": (
        (
            "fn=lambda xp, a, eps=1e-6: rms_norm(xp, a, eps) * a.dtype.type(1.001), samples=rows, "
            "reference=exact_rms_norm, dtypes=('float32',)"
        ),
        ("values",),
    ),
    "float16 claimed as float32": (
        (
            "fn=lambda xp, a: xp.tanh(a.astype('float16')).astype(a.dtype), reference=np.tanh, dtypes=('float32',), "
            "samples=lambda make: [make((64, 129))]"
        ),
        ("values",),
    ),
    "whole numbers by way of float32": (
        "fn=lambda xp, a: (a.astype('float32') + 1).astype(a.dtype), reference=lambda a: a + 1, dtypes=('int32',)",
        ("values", "layouts"),
    ),
    "whole numbers, in two arrays": (
        (
            "fn=lambda xp, a, b: (xp.asarray(a, 'float32') + xp.asarray(b, 'float32')).astype('int32'), "
            "reference=lambda a, b: a + b, dtypes=('int32',)"
        ),
        ("values",),
    ),
    "an array by name is written": (
        "fn=lambda xp, a, weight: zeroing(a * weight, weight), samples=weighted, reference=product",
        ("inputs_unchanged",),
    ),
    "an array in a list is written": (
        "fn=lambda xp, arrays: zeroing(arrays[0] * 2, arrays[0]), samples=several, reference=lambda all: all[0] * 2",
        ("inputs_unchanged",),
    ),
    "an array by name of another order": (
        (
            "fn=lambda xp, a, weight: a * weight.ravel(order='K').reshape(weight.shape), samples=weighted, "
            "reference=lambda a, weight: a * weight"
        ),
        ("layouts",),
    ),
    "no broadcasting": ("fn=same_shapes", ("broadcast",)),
    "what was computed before": ("fn=kept_by_shape, reference=np.tanh", ("deterministic",)),
}

ALL_FLOATS = "dtypes=('float16', 'bfloat16', 'float32', 'float64')"
NUMPY_FLOATS = "dtypes=('float16', 'float32', 'float64')"
RIGHT: dict[str, str] = {
    "a norm of rows": f"fn=rms_norm, samples=rows, result_dtype=lambda a: a, {ALL_FLOATS}",
    "tanh": f"fn=lambda xp, a: xp.tanh(a), {ALL_FLOATS}",
    "mish": f"fn=lambda xp, a: a * xp.tanh(xp.log1p(xp.exp(a))), {ALL_FLOATS}",
    "a one that small numbers are added to": f"fn=lambda xp, a: xp.log(1 + xp.abs(a)), {ALL_FLOATS}",
    "gelu": f"fn=lambda xp, a: 0.5 * a * (1 + xp.tanh(0.7978845608 * (a + 0.044715 * a * a * a))), {ALL_FLOATS}",
    "a polynomial": f"fn=lambda xp, a: ((a * a - 1) * a + 0.5) * a - 2, {ALL_FLOATS}",
    "two arrays": f"fn=lambda xp, a, b: a * b + a - b, {ALL_FLOATS}",
    "a sum one by one": f"fn=lambda xp, a: xp.cumsum(a), {NUMPY_FLOATS}",
    "a sum": f"fn=lambda xp, a: xp.sum(a), {NUMPY_FLOATS}",
    "what cancels": f"fn=lambda xp, a: a - xp.sum(a) / max(a.size, 1), {NUMPY_FLOATS}",
    "an order": f"fn=lambda xp, a: xp.sort(a, axis=None), {NUMPY_FLOATS}",
    "a product": (f"fn=lambda xp, a, b: a @ b, samples=lambda make: [(make((17, 33)), make((33, 5)))], {NUMPY_FLOATS}"),
    "a determinant": "fn=lambda xp, a: xp.linalg.det(a), samples=lambda make: [make((8, 8))], dtypes=('float32',)",
    "complex numbers": "fn=lambda xp, a, b: a * b + 1, dtypes=('complex64',)",
    "whole numbers": "fn=lambda xp, a, b: a * b + a - b, dtypes=('int8', 'int32', 'int64')",
}


@pytest.mark.parametrize(("spec", "finders"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found(pytester: pytest.Pytester, spec: str, finders: tuple[str, ...]) -> None:
    pytester.makepyfile(f"{HEAD}\ntest_it = conformance(OpSpec({spec}))")

    result = pytester.runpytest_inprocess("--device", "cpu", "-q")

    for name in finders:
        result.stdout.fnmatch_lines([f"FAILED *::test_it::test_{name}[[]cpu:0-*"])


@pytest.mark.parametrize("spec", RIGHT.values(), ids=RIGHT)
def test_what_is_right_is_let_pass(pytester: pytest.Pytester, spec: str) -> None:
    pytester.makepyfile(f"{HEAD}\ntest_it = conformance(OpSpec({spec}))")

    result = pytester.runpytest_inprocess("--device", "cpu", "-q")

    assert result.ret == 0
    assert result.parseoutcomes()["passed"] >= 5


def test_why_the_reference_refuses_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance

        def largest(a):
            if not a.size:
                raise ValueError("of nothing there is none")
            return a.max()

        test_it = conformance(OpSpec(fn=lambda xp, a: xp.max(a, initial=-9), reference=largest))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-k", "zero_size")

    result.stdout.fnmatch_lines(["*refuses these inputs (ValueError: of nothing there is none); cpu:0 gives *"])
