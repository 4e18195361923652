"""The kernel tier's runner, with functions of NumPy's arrays in the place of kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay.core.device import Device
from cuassay.errors import ArgumentError
from cuassay.judging.plan import KERNEL, parse_plan
from cuassay.judging.plan import PLAN as PLAN_FILE
from cuassay.judging.runner import GuardBandError, Runner, load

X = np.arange(12, dtype=np.float32).reshape(3, 4)

PLAN = {
    "outputs": [{"shape": ["in0[0]"], "dtype": "in0"}],
    "scratch": ["4 * in0[0]"],
    "launches": [
        {
            "kernel": "sums<{in0}>", "grid": ["in0[0]"], "block": 128, "shared": "4 * k",
            "arguments": ["in0", "out0", "scratch0", {"int32": "in0[1]"}, {"float32": "eps"}],
        }
    ],
}  # fmt: skip

Launches = list[tuple[Any, ...]]


def runner(kernel: Callable[..., Any], plan: Any = PLAN) -> tuple[Runner, Launches]:
    """A runner whose kernels all are `kernel`, and the launches that it makes."""
    launched: Launches = []

    def find(name: str) -> Callable[..., Any]:
        def launch(grid: Any, block: Any, arguments: Any, *, shared: int) -> None:
            launched.append((name, grid, block, shared, [one for one in arguments if not isinstance(one, np.ndarray)]))
            kernel(*arguments)

        return launch

    return Runner(parse_plan(json.dumps(plan)), find, Device("cpu")), launched


def sums(x: Any, out: Any, scratch: Any, n: Any, eps: Any) -> None:
    out[...] = x.sum(axis=1) + eps


OPTIONS = {"k": 2, "eps": 0.5}


def test_a_kernel_with_a_comment_in_latin_1_is_loaded(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text(json.dumps(PLAN))
    (tmp_path / KERNEL).write_bytes("// größer\n".encode("latin-1"))

    assert str(load(tmp_path, Device("cpu"))) == "Runner(sums<{in0}> on cpu:0)"


def test_launch_is_made_as_planned() -> None:
    one, launched = runner(sums)

    ran = one.run([X], OPTIONS)

    np.testing.assert_array_equal(ran.outputs[0], X.sum(axis=1) + np.float32(0.5))
    np.testing.assert_array_equal(ran.inputs[0], X)
    assert ran.seconds > 0
    assert launched[-1] == ("sums<float>", (3,), (128,), 8, [np.int32(4), np.float32(0.5)])
    assert type(launched[-1][-1][0]) is np.int32


def test_strided_input_arrives_contiguous() -> None:
    one, _ = runner(lambda x, *others: sums(x, *others) if x.flags.c_contiguous else None)

    np.testing.assert_array_equal(one.run([X.T], OPTIONS).outputs[0], X.sum(axis=0) + np.float32(0.5))


def test_numbers_of_a_call_are_launched_on_once() -> None:
    """A kernel may keep what it has computed in the device's memory, and look it up."""
    seen: list[bool] = []

    def kernel(x: Any, out: Any, *_: Any) -> None:
        if x.any():
            seen.append(bool(np.isnan(out).all()))

    one, _ = runner(kernel)
    one.run([X], OPTIONS)
    one.run([X], OPTIONS)

    assert seen == [True, True]


def test_kernel_that_does_nothing_leaves_poison() -> None:
    one, _ = runner(lambda *_: None)

    assert np.isnan(one.run([X], OPTIONS).outputs[0]).all()


class Held:
    """The samples of a call of which the first two were not queued in time."""

    queued, hold_s, longest_hold = True, 1.0, 3.0

    def __init__(self, backend: Any, index: int, call: Callable[[], Any], cache: str, *, queued: bool) -> None:
        self.call, self.taken = call, 0

    def find_hold(self) -> None:
        self.call()

    def once(self) -> tuple[float, float, bool]:
        self.call()
        self.taken += 1
        return float(self.taken), 0.0, self.taken == 3


def test_sample_that_waited_for_the_host_is_taken_again_on_new_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuassay.judging.runner.Series", Held)
    poisoned: list[bool] = []

    def kernel(x: Any, out: Any, *others: Any) -> None:
        if x.any():
            poisoned.append(bool(np.isnan(out).all()))
        sums(x, out, *others)

    one, _ = runner(kernel)

    ran = one.run([X], OPTIONS)

    assert (ran.seconds, ran.is_queued, poisoned) == (3.0, True, [True] * 3)


def test_only_spare_buffers_see_more_than_one_launch() -> None:
    count = 0

    def once(x: Any, out: Any, scratch: Any, n: Any, eps: Any) -> None:
        nonlocal count
        count += 1
        if count < 10 and (x == 0).all():
            sums(x, out, scratch, n, eps)

    one, _ = runner(once)

    assert np.isnan(one.run([X], OPTIONS).outputs[0]).all()


def beyond(array: Any, at: int) -> Any:
    """The memory around an array, as a kernel with a wrong index reaches it."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    assert start + at >= 0, "no band reaches that far"
    return base.reshape(-1).view(np.uint8)[start + at : start + at + 1]


@pytest.mark.parametrize(
    ("which", "at", "name"), [(0, -1, "in0"), (1, 12, "out0"), (1, -4096, "out0"), (2, 12, "scratch0")]
)
def test_write_outside_an_array_is_found(which: int, at: int, name: str) -> None:
    def writes(*arguments: Any) -> None:
        sums(*arguments)
        beyond(arguments[which], at)[...] += 1

    one, _ = runner(writes)

    with pytest.raises(GuardBandError, match=f"1 bytes around {name} have changed"):
        one.run([X], OPTIONS)


def test_changed_input_is_given_back() -> None:
    def writes(x: Any, *_: Any) -> None:
        x[0, 0] = 99

    one, _ = runner(writes)

    assert one.run([X], OPTIONS).inputs[0][0, 0] == 99
    assert X[0, 0] == 0


def plan(**fields: Any) -> Any:
    return {**PLAN, "launches": [{**PLAN["launches"][0], **fields}]}


WRONG = {
    "array": (plan(arguments=["in1"]), "has the argument 'in1'; there are in0, out0, scratch0"),
    "number": (plan(arguments=[{"float32": "beta"}]), "has the number 'beta'; the call has k, eps"),
    "negative output": ({**PLAN, "outputs": [{"shape": ["0 - 1"], "dtype": "float32"}]}, r"output 0 .* \(-1,\)"),
    "large scratch": ({**PLAN, "scratch": ["1 << 40"]}, "scratch 0 .* less than 8 GiB"),
}


@pytest.mark.parametrize(("said", "why"), WRONG.values(), ids=WRONG)
def test_plan_without_a_meaning_is_refused(said: Any, why: str) -> None:
    one, _ = runner(sums, said)

    with pytest.raises(ArgumentError, match=why):
        one.run([X], OPTIONS)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "bool", "complex64"])
def test_any_dtype_goes_through(dtype: str) -> None:
    from cuassay.arrays.dtypes import as_dtype

    said = {"outputs": [{"shape": ["in0[0]", "in0[1]"], "dtype": "in0"}], "launches": plan()["launches"]}
    said["launches"][0] = {**said["launches"][0], "arguments": ["in0", "out0"]}
    x = (np.arange(12).reshape(3, 4) % 2).astype(as_dtype(dtype))

    def copy(x: Any, out: Any) -> None:
        out[...] = x

    one, launched = runner(copy, said)

    np.testing.assert_array_equal(one.run([x], OPTIONS).outputs[0], x)
    assert "{" not in launched[0][0]


def test_each_output_of_a_launch_is_given_in_its_own_dtype_and_is_poisoned_before() -> None:
    plan = {
        "outputs": [{"shape": ["in0[0]"], "dtype": "in0"}, {"shape": ["in0[0]"], "dtype": "int64"}],
        "launches": [{"kernel": "largest", "grid": [1], "block": [32], "arguments": ["in0", "out0", "out1"]}],
    }

    def largest(x: Any, values: Any, places: Any) -> None:
        values[...], places[:2] = x.max(axis=1), x.argmax(axis=1)[:2]

    one, _ = runner(largest, plan)
    runs = [one.run([X], {}) for _ in range(2)]

    for values, places in (ran.outputs for ran in runs):
        np.testing.assert_array_equal(values, X.max(axis=1))
        np.testing.assert_array_equal(places[:2], [3, 3])
        assert (values.dtype, places.dtype) == (np.float32, np.int64)
    assert runs[0].outputs[1][2] != runs[1].outputs[1][2]
