"""Functions over ops, planned: random compositions, gradients, and a training step too large for any memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuassay
from cuassay import amp, autograd, linalg, ops, optim, random
from cuassay.errors import CapabilityError
from cuassay.testing.presence import Presence, parse_selector

DTYPES = ("float16", "bfloat16", "float32", "float64")

#: From an array of any shape, with a number below 3 to choose by, to another one.
STEPS: dict[str, Callable[[Any, int], Any]] = {
    "exp": lambda a, n: ops.exp(a),
    "add": lambda a, n: ops.add(a, n),
    "self": lambda a, n: ops.mul(a, a),
    "less": lambda a, n: ops.where(ops.less(a, n), a, 0.0),
    "cast": lambda a, n: ops.cast(a, dtype=DTYPES[n]),
    "softmax": lambda a, n: ops.softmax(a) if a.ndim else a,
    "sum": lambda a, n: ops.sum(a, axis=n % a.ndim if a.ndim else None, keepdims=n == 0),
    "amax": lambda a, n: ops.amax(a, keepdims=True) if a.size else a,
    "transpose": lambda a, n: ops.transpose(a, axis0=0, axis1=n % a.ndim) if a.ndim else a,
    "reshape": lambda a, n: ops.reshape(a, shape=(-1,)) if a.size else a,
    "slice": lambda a, n: ops.slice(a, axis=-1, start=n, step=n - 3) if a.ndim else a,
    "unsqueeze": lambda a, n: ops.unsqueeze(a, axis=n % (a.ndim + 1)) if a.ndim < 5 else a,
    "expand": lambda a, n: ops.expand(a, shape=(n + 1, *a.shape)) if a.ndim < 5 else a,
    "squeeze": lambda a, n: ops.squeeze(a),
    "cat": lambda a, n: ops.cat([a, a], axis=n % a.ndim) if a.ndim and a.size < 4096 else a,
    "stack": lambda a, n: ops.stack([a] * (n + 1)) if a.ndim < 5 and a.size < 4096 else a,
    "pad": lambda a, n: ops.pad(a, widths=((n, 1),) * a.ndim) if a.size < 256 else a,
    "matmul": lambda a, n: ops.matmul(a, a.mT) if a.ndim > 1 else a,
    "cumsum": lambda a, n: ops.cumsum(a, axis=n % a.ndim) if a.ndim else a,
    "var": lambda a, n: ops.var(a, axis=-1, correction=0) if a.ndim else a,
    "operators": lambda a, n: a * 2.0 - a,
}


@settings(deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    dtype=st.sampled_from(DTYPES),
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2)), max_size=8),
)
def test_a_composition_is_planned_as_it_runs(shape: list[int], dtype: str, steps: list[tuple[str, int]]) -> None:
    planned, run = (cuassay.zeros(tuple(shape), dtype, kind) for kind in ("meta", "cpu"))
    with np.errstate(all="ignore"):
        for name, number in steps:
            planned, run = STEPS[name](planned, number), STEPS[name](np.asarray(run), number)

            assert (planned.shape, planned.dtype) == (run.shape, run.dtype)
            assert not run.size or planned.strides == run.strides


def loss(tokens: Any, embedding: Any, up: Any, down: Any, weight: Any, bias: Any) -> Any:
    """A language model of one layer: (B, T) tokens, embedding (V, D), up (4D, D), down (D, 4D)."""
    x = ops.embedding(tokens, embedding)
    hidden = ops.linear(ops.gelu(ops.linear(ops.layer_norm(x, weight, bias), up)), down)
    logits = ops.log_softmax(ops.matmul(ops.add(x, random.dropout(hidden)), embedding.T))
    return ops.neg(ops.mean(ops.gather(logits, ops.unsqueeze(tokens, axis=-1), axis=-1)))


def step(kind: str, rows: int, length: int, words: int, width: int) -> tuple[Any, list[Any], list[Any]]:
    """The loss, parameters and gradients of a training step."""
    shapes = [(words, width), (4 * width, width), (width, 4 * width), (width,), (width,)]
    params = [cuassay.full(shape, 0.5, "float32", kind) for shape in shapes]
    tokens = cuassay.zeros((rows, length), "int64", kind)
    found, grads = autograd.value_and_grad(loss, argnums=tuple(range(1, 6)))(tokens, *params)
    optim.Adam(params, lr=1e-3).step(list(grads))
    return found, params, list(grads)


def described(made: tuple[Any, list[Any], list[Any]]) -> list[Any]:
    found, params, grads = made
    return [(one.shape, one.dtype) for one in (found, *params, *grads)]


def test_a_training_step_is_planned_as_it_runs() -> None:
    assert described(step("meta", 2, 3, 7, 4)) == described(step("cpu", 2, 3, 7, 4))


def test_a_training_step_larger_than_any_memory_is_planned() -> None:
    _, params, grads = step("meta", 2**12, 2**8, 2**20, 2**20)

    assert sum(one.nbytes for one in params) > 2**45
    assert [one.shape for one in grads] == [one.shape for one in params]


def test_casts_of_autocast_are_planned() -> None:
    a = cuassay.empty((3, 4), "float32", "meta")

    with amp.autocast("meta", "bfloat16"):
        found = ops.matmul(a, a.T)

    assert found.dtype == "bfloat16"


class OwnOptimizer:
    """An optimizer that cuassay does not know, which a scaler must keep from a step that overflows."""

    def step(self, grads: list[Any]) -> None:
        raise AssertionError("the scaler does not know whether this step overflows")


@pytest.mark.parametrize(
    "read",
    [
        lambda scaler, optimizer, grads: scaler.get_scale(),
        lambda scaler, optimizer, grads: scaler.state_dict(),
        lambda scaler, optimizer, grads: optimizer.state_dict(),
        lambda scaler, optimizer, grads: scaler.step(OwnOptimizer(), grads),
    ],
    ids=["get_scale", "state_dict of the scaler", "state_dict of the optimizer", "own optimizer"],
)
def test_steps_of_a_scaler_are_planned_but_not_its_numbers(read: Callable[..., Any]) -> None:
    params, grads = ([cuassay.zeros((3,), "float32", "meta")] for _ in range(2))
    scaler, optimizer = amp.GradScaler("meta"), optim.AdamW(params, lr=1e-3)
    scaler.step(optimizer, grads)
    scaler.update()

    with pytest.raises(CapabilityError, match="to_host reads values"):
        read(scaler, optimizer, grads)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: linalg.solve(a, a[..., 0]),
        linalg.inv,
        linalg.det,
        linalg.cholesky,
        lambda a: linalg.qr(a, "complete"),
        linalg.svd,
        linalg.eigh,
        lambda a: linalg.lstsq(a[0], a[0, :, 0]),
    ],
    ids=["solve", "inv", "det", "cholesky", "qr", "svd", "eigh", "lstsq"],
)
def test_linear_algebra_is_planned_without_a_look_at_its_success(call: Callable[..., Any]) -> None:
    well = np.stack([np.eye(3, dtype=np.float32)] * 3)
    found, expected = call(cuassay.from_host(well, "meta")), call(well)

    assert shapes(found) == shapes(expected)


def shapes(made: Any) -> list[Any]:
    return [(one.shape, one.dtype) for one in (made if isinstance(made, tuple) else (made,))]


def test_no_test_runs_there() -> None:
    with pytest.raises(cuassay.errors.DeviceError, match=r"hold no values.*got 'meta:0'; give a kind that computes"):
        parse_selector("meta:0")


def test_all_kinds_of_a_session_are_those_that_compute() -> None:
    assert "meta" in cuassay.kinds()
    assert "meta" not in {device.kind for device in Presence(["all"]).devices}
