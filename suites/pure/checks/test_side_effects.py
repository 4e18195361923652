"""Which global state a function must leave as it is, and what is restored after the check."""

from __future__ import annotations

import decimal
import gc
import os
import random
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops
from cuassay.core.generators import default_generator
from cuassay.testing import OpSpec
from cuassay.testing.generated import side_effects
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.side_effects import check_state

CPU = Device("cpu")
NAME = "CUASSAY_TEST_OF_STATE"


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Undo what the functions below change."""
    monkeypatch.setenv(NAME, "before")
    errors, call, depth, directory = np.geterr(), np.geterrcall(), sys.getrecursionlimit(), Path.cwd()
    options, states = np.get_printoptions(), (random.getstate(), np.random.get_state())  # noqa: NPY002
    yield
    np.seterr(**errors)
    np.seterrcall(call)
    sys.setrecursionlimit(depth)
    os.chdir(directory)
    options.pop("override_repr", None)
    np.set_printoptions(**options)
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    gc.enable()


def said(change: Callable[[], Any], **fields: Any) -> str:
    """The failure of a function that does this in each call of the check, and not when it is declared."""
    active: list[bool] = []

    def fn(xp: Any, a: Any) -> Any:
        if active:
            change()
        return a * 1

    fields = {"dtypes": ("float32",), "samples": lambda make: [make(3)], **fields}
    spec = OpSpec(fn=fn, reference=lambda a: a * 1, name="f", **fields)
    active.append(True)
    return failure(check_state, spec, CPU)


CHANGES: dict[str, Callable[[], Any]] = {
    "np.geterr()": lambda: np.seterr(divide="ignore"),
    "np.geterrcall()": lambda: np.seterrcall(None),
    "np.get_printoptions()": lambda: np.set_printoptions(precision=3),
    "os.environ": lambda: os.environ.update({NAME: "changed"}),
    "the working directory": lambda: os.chdir("/"),
    "gc.isenabled()": gc.disable,
    "sys.getrecursionlimit()": lambda: sys.setrecursionlimit(5000),
    "decimal.getcontext()": lambda: setattr(decimal.getcontext(), "prec", 28),
    "warnings.filters": lambda: warnings.simplefilter("ignore"),
}

GENERATORS: dict[str, Callable[[], Any]] = {
    "the state of the module random": random.random,
    "the state of np.random": np.random.random_sample,
    "the default generator of cpu:0": lambda: default_generator(CPU).manual_seed(3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_state_that_is_changed_is_named(name: str) -> None:
    assert said(CHANGES[name]) == f"the function leaves {name} changed; restore it with a context manager"


@pytest.mark.parametrize("name", GENERATORS)
def test_generator_that_is_changed_is_named_with_advice(name: str) -> None:
    assert said(GENERATORS[name]) == (
        f"the function leaves {name} changed; restore it with a context manager; if the function is meant to draw "
        "random numbers from it, declare deterministic=False"
    )
    assert said(GENERATORS[name], deterministic=False) == ""


def test_all_that_is_changed_is_named_in_order() -> None:
    def change() -> None:
        gc.disable()
        random.seed(3)
        np.seterrcall(None)
        warnings.simplefilter("ignore")

    assert said(change).startswith(
        "the function leaves np.geterrcall() and gc.isenabled() and the state of the module random and "
        "warnings.filters changed; "
    )


def test_function_that_changes_nothing_passes() -> None:
    assert said(lambda: None) == ""


@pytest.mark.parametrize("value", ["before", "changed", None])
def test_environment_is_restored_and_named(value: str | None) -> None:
    def change() -> None:
        os.environ.pop(NAME, None)
        os.environ[f"{NAME}_ADDED"] = "added"
        if value is not None:
            os.environ[NAME] = value

    assert "os.environ" in said(change)
    assert os.environ[NAME] == "before"
    assert f"{NAME}_ADDED" not in os.environ


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_state_is_restored_after_the_check(collects: bool) -> None:
    def change() -> None:
        for each in (*CHANGES.values(), *GENERATORS.values()):
            each()

    (gc.enable if collects else gc.disable)()
    drawn = default_generator(CPU).get_state()
    watched = {name: side_effects.STATE[name]() for name in CHANGES if name in side_effects.STATE}
    del watched["the working directory"], watched["np.get_printoptions()"]

    assert said(change) != ""

    assert {name: side_effects.STATE[name]() for name in watched} == watched
    assert default_generator(CPU).get_state() == drawn


def test_modules_that_are_imported_may_add_filters() -> None:
    def change() -> None:
        sys.modules[f"imported_{len(sys.modules)}"] = types.ModuleType("imported")
        warnings.simplefilter("ignore")

    before = dict(sys.modules)
    try:
        assert said(change) == ""
    finally:
        for name in sys.modules.keys() - before.keys():
            del sys.modules[name]


def test_modules_of_the_first_call_alone_excuse_no_filter() -> None:
    name = "imported_by_the_first_call"

    def change() -> None:
        sys.modules.setdefault(name, types.ModuleType(name))
        warnings.simplefilter("ignore")

    try:
        assert "warnings.filters" in said(change)
    finally:
        del sys.modules[name]


def test_filter_that_is_first_already_counts_as_a_change() -> None:
    warnings.simplefilter("ignore", ImportWarning)

    assert "warnings.filters" in said(lambda: warnings.simplefilter("ignore", ImportWarning))


def test_state_is_unlike_that_of_any_call() -> None:
    before = sys.getrecursionlimit()
    gc.disable()

    with side_effects._unlike_any_call():
        inside = (
            sys.getrecursionlimit() - before,
            decimal.getcontext().prec,
            gc.isenabled(),
            set(np.geterr().values()),
        )

    assert inside == (37, 37, True, {"call"})
    assert sys.getrecursionlimit() == before
    assert not gc.isenabled()


def test_generators_are_seeded_and_get_their_state_back() -> None:
    held = default_generator(CPU).get_state()

    with side_effects._seeded(CPU) as own:
        assert list(own) == ["the default generator of cpu:0"]
        seeded = own["the default generator of cpu:0"]()
        default_generator(CPU).manual_seed(0x5EED_0FAC_4EC4)
        assert own["the default generator of cpu:0"]() == seeded
        assert seeded != held
    assert default_generator(CPU).get_state() == held


def test_generators_of_host_and_device_are_seeded() -> None:
    with side_effects._seeded(Device("sim:0")) as own:
        assert sorted(own) == ["the default generator of cpu:0", "the default generator of sim:0"]


def test_state_of_torch_is_watched_once_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    get = side_effects.STATE["torch.get_num_threads()"]
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert get() is None

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(get_num_threads=lambda: 3))
    assert get() == "3"


@pytest.mark.parametrize(
    ("samples", "calls"), [(1, 2), (2, 4), (3, 4)], ids=["one sample", "two samples", "at most two"]
)
def test_two_samples_are_called_twice_each(samples: int, calls: int) -> None:
    met: list[None] = []

    assert said(lambda: met.append(None), samples=lambda make: [make(3 + place) for place in range(samples)]) == ""
    assert len(met) == calls


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        ({"a": "1"}, {"a": "1", "b": "2"}, {"a": "1"}),
        ({"a": "1"}, {}, {"a": "1"}),
        ({"a": "1", "b": "2"}, {"a": "3"}, {"a": "1", "b": "2"}),
    ],
    ids=["added", "removed", "changed"],
)
def test_environment_becomes_what_it_was(before: Any, now: Any, after: Any) -> None:
    side_effects._restore(now, before)

    assert now == after


def test_filters_of_warnings_that_the_second_call_changes_are_restored() -> None:
    calls: list[None] = []

    def change() -> None:
        calls.append(None)
        if len(calls) == 2:
            warnings.simplefilter("ignore")

    before = list(warnings.filters)

    assert "warnings.filters" in said(change)
    assert warnings.filters == before


def test_state_is_checked_of_functions_alone() -> None:
    applies = CHECKS["state"].applies

    assert applies(OpSpec(fn=lambda xp, a: a * 1, name="f"))
    assert not applies(OpSpec(op=ops.add, reference=np.add))
