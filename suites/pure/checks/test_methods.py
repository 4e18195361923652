"""The test methods that are generated from a spec: their names, marks and arguments, and what `test_speed` compares."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuassay.errors import SpecError
from cuassay.testing import OpSpec
from cuassay.testing import generated as made
from cuassay.testing.generated import Conformance, conformance
from cuassay.testing.generated.checks import CHECKS, Check


def spec_of(**fields: Any) -> OpSpec:
    fields = {"dtypes": ("float32",), "samples": lambda make: [make(3)], **fields}
    return OpSpec(fn=lambda xp, a: a * 2, name="given", reference=lambda a: a * 2, **fields)


def methods_of(spec: OpSpec) -> dict[str, Any]:
    return {name: value for name, value in vars(Conformance(spec).__cuassay_test_class__).items() if "test_" in name}


def test_each_check_that_applies_becomes_a_method() -> None:
    spec = spec_of()
    expected = [
        name
        for name, check in CHECKS.items()
        if check.applies(spec) and (not check.dtypes or "float32" in check.dtypes)
    ]

    assert list(methods_of(spec)) == [f"test_{name}" for name in expected]
    assert "test_speed" not in methods_of(spec)
    assert "test_speed" in methods_of(spec_of(bench=lambda make, sizes: [make(9)]))
    assert repr(Conformance(spec)) == "Conformance(given)"


def made_check(function: Any, **fields: Any) -> Check:
    fields = {"needs": (), "per_dtype": False, "dtypes": (), **fields}
    return Check("values", "Values.", function, lambda spec: True, **fields)


@pytest.mark.parametrize(
    ("dtypes", "of_spec", "expected"),
    [
        ((), ("int8",), True),
        (("float32", "float64"), ("int8", "float64"), True),
        (("float32", "float64"), ("int8",), False),
    ],
)
def test_check_of_some_dtypes_needs_one_of_them(dtypes: Any, of_spec: Any, expected: bool) -> None:
    assert made._has_dtypes(made_check(None, dtypes=dtypes), spec_of(dtypes=of_spec)) is expected


@pytest.mark.parametrize("per_dtype", [False, True])
def test_method_calls_its_check(per_dtype: bool) -> None:
    calls: list[Any] = []
    test = made.method(made_check(lambda *given: calls.append(given), per_dtype=per_dtype))
    given: dict[str, Any] = {"cuassay_device": "cpu", "cuassay_op": spec_of()}
    given |= {"cuassay_dtype": np.dtype("float32")} if per_dtype else {}

    test(None, **given)

    (call,) = calls
    assert call[0] is given["cuassay_op"]
    assert (str(call[1]), call[2:]) == ("cpu:0", (np.dtype("float32"),) if per_dtype else ())
    assert (test.__name__, test.__doc__, test.cuassay_check) == ("test_values", "Values.", "values")  # type: ignore[attr-defined]


def marks_of(*marks: Any, **fields: Any) -> list[tuple[str, Any]]:
    def test() -> None: ...

    found = made.marked(test, made_check(None, **fields), *marks)
    return [(mark.name, mark.args) for mark in getattr(found, "pytestmark", [])]


def test_method_has_the_marks_of_its_check() -> None:
    assert marks_of() == []
    assert [args for _, args in marks_of(needs=("streams", "graphs"))] == [("streams", "graphs")]
    assert [args for _, args in marks_of(dtypes=("float32",))] == [("float32",)]
    names = [name for name, _ in marks_of(pytest.mark.slow, needs=("streams",), dtypes=("float32",))]
    assert names[0] == "slow"
    assert len(set(names)) == 3


# ------------------------------------------------------------------------------------------------ declarations


def test_conformance_remembers_where_it_was_called() -> None:
    found = conformance(spec_of())
    path, line = vars(found.__cuassay_test_class__)["cuassay_declared_at"]

    assert path == __file__
    assert line > 0
    assert Conformance(spec_of()).__cuassay_test_class__.cuassay_declared_at is None  # type: ignore[attr-defined]


def test_result_of_a_module_is_remembered_and_that_of_a_function_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(made, "MADE", [])
    conformance(spec_of())
    assert made.MADE == []

    module = tmp_path / "module.py"
    module.write_text("\nfound = conformance(spec)\n")
    names = runpy.run_path(str(module), {"conformance": conformance, "spec": spec_of()})
    ((path, line, name, found),) = made.MADE
    assert (path, line, name, found()) == (str(module), 2, "given", names["found"])


@pytest.mark.parametrize(
    ("given", "fields", "said"),
    [
        ((), {}, "got nothing; write"),
        ((), {"fn": 1, "name": "a"}, "got fn=1, name='a'; write"),
        ((3,), {}, "got 3; write"),
        ((3,), {"name": "a"}, "got 3, name='a'; write"),
    ],
)
def test_anything_but_a_spec_is_refused(given: Any, fields: Any, said: str) -> None:
    with pytest.raises(SpecError, match="conformance takes an OpSpec") as caught:
        conformance(*given, **fields)
    assert said in str(caught.value)
    with pytest.raises(SpecError, match=r"got OpSpec\(given\), name='a'"):
        conformance(spec_of(), name="a")


# ------------------------------------------------------------------------------------------------ measurements


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_benchmark_sample_is_a_case(count: int) -> None:
    test = made.benchmark(spec_of(bench=lambda make, sizes: [make(9 + place) for place in range(count)]))
    (mark,) = test.pytestmark  # type: ignore[attr-defined]

    assert mark.args[0] == "cuassay_sample"
    if count > 1:
        assert list(mark.args[1]) == [0, 1, 2][:count]
    else:
        assert (mark.args[1][0].values, mark.args[1][0].id) == ((0,), pytest.HIDDEN_PARAM)


def raising(make: Any, sizes: Any) -> Any:
    raise ZeroDivisionError("no size")


@pytest.mark.parametrize(
    ("bench", "said"),
    [
        (lambda make, sizes: [], "its bench yields nothing; yield a sample, or omit bench="),
        (raising, "its bench= raises ZeroDivisionError: no size; bench= is called with make and sizes ("),
    ],
)
def test_bench_without_a_sample_is_refused(bench: Any, said: str) -> None:
    spec: Any = spec_of(bench=lambda make, sizes: [make(9)])
    object.__setattr__(spec, "bench", bench)

    with pytest.raises(SpecError, match="given cannot be measured") as caught:
        made.benchmark(spec)
    assert said in str(caught.value)


class Measure:
    """A fixture that calls a benchmark twice and keeps what the second call returns."""

    def __init__(self, is_measured: bool) -> None:
        self.enabled = is_measured
        self.found: list[Any] = []

    def __call__(self, call: Any, device: Any, **columns: Any) -> bool:
        call()
        self.found.append((call(), columns))
        return self.enabled


@pytest.mark.parametrize("is_measured", [True, False])
@pytest.mark.parametrize("sample", [0, 1])
def test_last_result_is_compared_if_it_is_measured(
    is_measured: bool, sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Any] = []
    monkeypatch.setattr(made, "check_timed", lambda *given: checked.append(given))
    spec = spec_of(bench=lambda make, sizes: [make(9), make(12)])
    measure = Measure(is_measured)
    made.benchmark(spec)(None, "cpu", "float32", spec, sample, measure)

    ((result, columns),) = measure.found
    assert (columns["op"], columns["group"], columns["dtype"]) == ("given", "given", "float32")
    assert str((9, 12)[sample]) in columns["case"]
    assert len(checked) == is_measured
    if is_measured:
        ((given, _, dtype, place, _, results, _),) = checked
        assert (given is spec, dtype, place, results.last.result is result) == (True, "float32", sample, True)
        assert result.shape == ((9,), (12,))[sample]


def test_result_of_a_measured_op_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    monkeypatch.setattr(made, "check_timed", lambda *given: checked.append(given))
    spec = spec_of(bench=lambda make, sizes: [make(9)])
    test = made.benchmark(spec)
    case = SimpleNamespace(run=lambda: 1, label="9", dtype="float32", work=None, device="cpu")
    monkeypatch.setattr("cuassay.benchmarking.cases.cases", lambda *given: iter([case]))
    op: Any = SimpleNamespace(op=object(), name="given")

    made.benchmark(spec)(None, "cpu", "float32", op, 0, Measure(is_measured=True))
    test(None, "cpu", "float32", spec, 0, Measure(is_measured=False))

    assert checked == []
