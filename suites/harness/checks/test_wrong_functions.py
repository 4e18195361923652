"""Functions of a user's that are wrong in ways met in practice: the generated tests find each.

Each is wrong the way kernels are: in a dtype, in a tail, by a little, for a layout, in what it leaves behind.
Right ones, which must pass, stand in suites/devices/checks/test_right_functions.py.
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

def of_nine_lengths(make):
    return [make(length) for length in (64, 40, 3, 4, 5, 6, 7, 8, 9)]

def written_at_the_last(xp, a):
    return zeroing(a * 2, a) if a.size == 9 else a * 2

def softmax(xp, a):
    powers = xp.exp(a - a.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)

def unshifted(xp, a):
    powers = xp.exp(a)
    return powers / powers.sum(axis=-1, keepdims=True)

def exact_softmax(a):
    return softmax(np, a) if a.size else a

def nothing_in_long_rows(value, a):
    return value * 0 if a.dtype.itemsize == 2 and a.shape and a.shape[-1] >= 128 else value

def without_last_block(xp, a):
    whole = a.shape[-1] // 256 * 256 if a.ndim and a.shape[-1] > 1024 else None
    return xp.count_nonzero(a[..., :whole] > 0, axis=-1) if a.ndim else xp.count_nonzero(a > 0)

def emptied(xp, a):
    total = a + 1
    if a.size > 300:
        a[...] = 0
    return total

calls = []

def every_other_call(xp, a):
    calls.append(1)
    return a + 1 if a.size <= 512 or len(calls) % 2 else xp.nextafter(a + 1, a + 2)

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
    "nothing, of tiny numbers": (
        (
            "fn=lambda xp, a: a * 0, samples=lambda make: [make((3, 257), low=0, high=1e-9)], reference=lambda a: a, "
            "dtypes=('float32',)"
        ),
        ("values",),
    ),
    "a tail, in float16": ("fn=without_tail, reference=np.tanh, dtypes=('float16',)", ("values", "layouts")),
    "by a fiftieth, in float16": (
        "fn=lambda xp, a: xp.tanh(a) * a.dtype.type(1.02), reference=np.tanh, dtypes=('float16',)",
        ("values",),
    ),
    "nothing in long rows of 16 bits, itself its reference": (
        "fn=lambda xp, a: nothing_in_long_rows(softmax(xp, a), a), dtypes=('float16', 'bfloat16')",
        ("values", "layouts"),
    ),
    "no mean of long rows of 16 bits": (
        "fn=lambda xp, a: nothing_in_long_rows(xp.mean(a, axis=-1), a), dtypes=('float16', 'bfloat16')",
        ("values",),
    ),
    "by a twentieth in float16 alone": (
        (
            "fn=lambda xp, a, eps=1e-6: rms_norm(xp, a, eps) * a.dtype.type(1.05), samples=rows, "
            "reference=exact_rms_norm, dtypes=('float16',)"
        ),
        ("values",),
    ),
    "an index by one": (
        (
            "fn=lambda xp, a: (place := xp.argmax(a, axis=-1)) - (place >= 200), "
            "reference=lambda a: np.argmax(a, axis=-1), dtypes=('float16',)"
        ),
        ("values",),
    ),
    "a count without the last block": (
        (
            "fn=without_last_block, dtypes=('float16', 'bfloat16'), "
            "reference=lambda a: np.asarray(np.count_nonzero(a > 0, axis=-1 if a.ndim else None))"
        ),
        ("values",),
    ),
    "overflow of what is not shifted": (
        "fn=unshifted, reference=exact_softmax, dtypes=('float16', 'float32')",
        ("extremal",),
    ),
    "inputs of several blocks are written": ("fn=emptied", ("inputs_unchanged",)),
    "several blocks, another result every other time": ("fn=every_other_call", ("deterministic",)),
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
    "the input of the last sample is written": (
        "fn=written_at_the_last, samples=of_nine_lengths, reference=lambda a: a * 2",
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


@pytest.mark.parametrize(("spec", "finders"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found(pytester: pytest.Pytester, spec: str, finders: tuple[str, ...]) -> None:
    pytester.makepyfile(f"{HEAD}\ntest_it = conformance(OpSpec({spec}))")

    result = pytester.runpytest_inprocess("--device", "cpu", "-q")

    for name in finders:
        result.stdout.fnmatch_lines([f"FAILED *::test_it::test_{name}[[]cpu:0-*"])


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

    result.stdout.fnmatch_lines(
        ["*refuses these inputs (ValueError: of nothing there is none); cpu:0 gives *give samples= *"]
    )
