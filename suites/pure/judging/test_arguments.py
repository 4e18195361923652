"""Scalar arguments get other values that the reference takes and that change the result; the others are noted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from referees import DATA

from cuassay import Device
from cuassay.judging.arguments import note_options_not_given, other_arguments
from cuassay.judging.probes import Probe
from cuassay.judging.results import Results
from cuassay.judging.schedule import schedule
from cuassay.judging.spec_file import load_declaration
from cuassay.judging.subject import LocalSubject
from cuassay.judging.trial import Trial, hear
from cuassay.testing import OpSpec, Sample

CPU = Device("cpu")


def spec_of(reference: Callable[..., Any], *samples: tuple[tuple[Any, ...], dict[str, Any]], **fields: Any) -> OpSpec:
    def drawn(make: Any) -> list[Sample]:
        return [Sample((make((4, 6)), *args), options) for args, options in samples]

    given = {"fn": lambda xp, *args, **options: reference(*args, **options), "name": "given", **fields}
    return OpSpec(reference=reference, dtypes=("float32",), samples=drawn, **given)


def varied(spec: OpSpec, nonce: int = 0) -> tuple[list[Probe], dict[str, str]]:
    notes: dict[str, str] = {}
    samples = list(spec.draw(0, "float32", "values"))
    return list(other_arguments(Results([spec]), "float32", samples, np.random.default_rng(nonce), notes)), notes


def values(probes: list[Probe], name: str) -> list[Any]:
    return [probe.draws[0]().kwargs[name] for probe in probes if probe.varies == name]


def test_an_option_gets_values_that_no_sample_gives() -> None:
    probes, notes = varied(spec_of(lambda a, *, scale: a * scale, ((), {"scale": 2.0}), ((), {"scale": -0.5})))

    assert {probe.varies for probe in probes} == {"scale"}
    assert not {2.0, -0.5} & set(values(probes, "scale"))
    assert notes == {}


def test_an_option_that_hardly_counts_is_made_larger_until_it_does() -> None:
    probes, _ = varied(
        spec_of(lambda a, *, eps: a / np.sqrt((a * a).mean(-1, keepdims=True) + eps), ((), {"eps": 1e-7}))
    )

    assert len(probes) == 2
    assert min(values(probes, "eps")) > 1e-6


def test_an_axis_gets_the_other_axes_that_there_are() -> None:
    found = {
        one
        for nonce in range(8)
        for one in values(varied(spec_of(lambda a, *, axis: a.sum(axis), ((), {"axis": -1})), nonce)[0], "axis")
    }

    assert found == {-2, 0}  # 1 is the declared axis, counted from the other end


def test_a_positional_number_is_varied() -> None:
    probes, _ = varied(spec_of(lambda a, n: a * n, ((3,), {})))

    assert {probe.varies for probe in probes} == {"argument 1"}
    assert all(isinstance(probe.draws[0]().args[1], int) and probe.draws[0]().args[1] > 0 for probe in probes)


def test_a_truth_value_is_turned() -> None:
    probes, _ = varied(spec_of(lambda a, *, twice: a * (2 if twice else 1), ((), {"twice": True})))

    assert values(probes, "twice") == [False]


def test_a_word_is_that_of_another_sample() -> None:
    spec = spec_of(lambda a, *, how: a.sum() if how == "sum" else a.mean(), ((), {"how": "sum"}), ((), {"how": "mean"}))

    assert set(values(varied(spec)[0], "how")) == {"sum", "mean"}


def test_a_word_of_another_option_is_not_tried() -> None:
    asked = []

    def joined(a: Any, *, left: str, right: str) -> Any:
        asked.append(left)
        return a * len(left) + len(right)

    probes, _ = varied(spec_of(joined, ((), {"left": "x", "right": "four"}), ((), {"left": "yy", "right": "three"})))

    assert set(asked) == {"x", "yy"}
    assert set(values(probes, "left")) == {"x", "yy"}


@pytest.mark.parametrize(
    ("reference", "options", "name", "why"),
    [
        (lambda a, *, how: a * 2, {"how": "sum"}, "how", "the reference takes no other value that changes the result"),
        (lambda a, *, unused: a * 2, {"unused": 3}, "unused", "the reference takes no other value that changes"),
    ],
    ids=["the only word", "no effect"],
)
def test_what_cannot_be_varied_is_noted(
    reference: Callable[..., Any], options: dict[str, Any], name: str, why: str
) -> None:
    probes, notes = varied(spec_of(reference, ((), options)))

    assert probes == []
    assert notes[name].startswith(why)


def test_an_optional_array_that_a_sample_gives_by_position_is_not_noted() -> None:
    def scaled(xp: Any, a: Any, weight: Any = None, bias: Any = None) -> Any:
        return a if weight is None else a * weight

    spec = OpSpec(
        fn=scaled,
        reference=lambda a, weight=None, bias=None: a if weight is None else a * weight,
        samples=lambda make: [make(3), (make(3), make(3))],
        dtypes=("float32",),
    )
    notes: dict[str, str] = {}
    note_options_not_given(spec, list(spec.draw(0, "float32", "values")), notes)

    assert notes == {"bias": "no sample gives it"}


def test_an_option_that_no_sample_gives_is_noted() -> None:
    spec = spec_of(lambda a, *, scale=2.0: a * scale, ((), {}), fn=lambda xp, a, *, scale=2.0: a * scale)

    notes: dict[str, str] = {}
    note_options_not_given(spec, list(spec.draw(0, "float32", "values")), notes)

    assert notes == {"scale": "no sample gives it"}
    assert varied(spec) == ([], {})  # it is of one sample, while another one may give the option


def one_hot(ids: Any, classes: int) -> Any:
    return ids[:, None] == np.arange(classes)


def dropped(a: Any, *, p: float) -> Any:
    return a / (1 - p) * (np.arange(6) >= 6 * p)


IDS = np.array([3, 9, 0, 4])


@pytest.mark.parametrize(
    ("reference", "args", "options", "place", "may_be"),
    [
        (lambda a, *, low, high: np.clip(a, low, high), (), {"low": 0.4, "high": 0.6}, "high", lambda one: one > 0.4),
        (lambda a, *, low, high: np.clip(a, low, high), (), {"low": 0.4, "high": 0.6}, "low", lambda one: one < 0.6),
        (lambda a, low, high: np.clip(a, low, high), (0.4, 0.6), {}, "argument 2", lambda one: one > 0.4),
        (lambda a, *, low, high=0.6: np.clip(a, low, high), (), {"low": 0.4}, "low", lambda one: one < 0.6),
        (dropped, (), {"p": 0.5}, "p", lambda one: 0 <= one <= 1),
        (
            lambda a, ids, *, classes: a.sum() + one_hot(ids, classes),
            (IDS,),
            {"classes": 10},
            "classes",
            lambda n: n > 9,
        ),
        (lambda a, ids, n: a.sum() + one_hot(ids, n), (IDS, 10), {}, "argument 2", lambda n: n > 9),
        (lambda a, *, k: np.sort(a)[..., :k], (), {"k": 5}, "k", lambda k: k <= 6),
    ],
    ids=["high", "low", "by place", "a default", "fraction", "classes", "classes by place", "extent"],
)
def test_another_value_keeps_the_bounds_of_the_samples(
    reference: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], place: str, may_be: Any
) -> None:
    spec = spec_of(reference, (args, options), fn=with_xp(reference))

    found = [
        (sample.kwargs | {f"argument {at}": one for at, one in enumerate(sample.args)})[place]
        for nonce in range(8)
        for probe in varied(spec, nonce)[0]
        for sample in [probe.draws[0]()]
        if probe.varies == place
    ]

    assert found
    assert all(map(may_be, found))


def with_xp(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The reference as a declared function, whose signature has the same options."""

    def fn(xp: Any, *args: Any, **options: Any) -> Any:
        return reference(*args, **options)

    own = inspect.signature(reference)
    first = inspect.Parameter("xp", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    fn.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    return fn


def heard(spec: OpSpec, function: Callable[..., Any]) -> Trial:
    plan = schedule(Results([spec]), CPU, 1, dtypes=("float32",), layouts=True, times=False)
    return hear(LocalSubject(function), plan, 1)


def test_a_value_that_the_declared_function_fails_for_refuses_nobody() -> None:
    def declared(xp: Any, a: Any, *, scale: float) -> Any:
        return a * scale if scale == 2.0 else a

    spec = spec_of(lambda a, *, scale: a * scale, ((), {"scale": 2.0}), fn=declared)

    trial = heard(spec, lambda a, *, scale: declared(np, a, scale=scale))

    assert trial.finding is None
    assert trial.not_varied == {"scale"}


def test_an_option_that_is_built_in_is_told_as_such() -> None:
    spec = load_declaration(f"{DATA}/spec.py::scaled_norm").spec

    trial = heard(spec, lambda a, *, axis, eps: spec.run("cpu", (a,), {"axis": axis, "eps": 1e-6}))

    assert trial.finding is not None
    assert trial.finding.check == "options"


def test_a_declaration_leaves_options_out_by_the_name_of_a_check() -> None:
    fields = {"without": {"second_call": "one kernel for one scale"}}
    spec = spec_of(lambda a, *, scale: a * scale, ((), {"scale": 2.0}), **fields)
    plan = schedule(Results([spec]), CPU, 1, dtypes=("float32",), layouts=True, times=False)

    assert "options" not in {probe.check for probe in plan.probes}
    assert plan.not_probed["options"] == "the declaration leaves them out: one kernel for one scale"
