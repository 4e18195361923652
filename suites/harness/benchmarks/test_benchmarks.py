"""The bridge to pytest-benchmark: once as a test by default, measured when asked, figures where people look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuassay.benchmarking import measure
from cuassay.testing.own_specs import own_specs

BENCHMARK = """
    import numpy as np
    from cuassay import from_host, ops
    from cuassay.testing import devices
    from cuassay.testing.opspec import Work

    @devices("sim")
    def test_add(device, device_benchmark):
        a = from_host(np.ones(1000, np.float32), device)
        found = device_benchmark(
            {"cuassay": lambda: ops.add(a, a), "peer": lambda: ops.mul(a, a)}, device,
            work=Work(bytes=12000, flops=1000), op="add",
        )
        print("series:", *found)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the sessions inside do not run in a worker
    pytester.makepyfile(BENCHMARK)
    return pytester


@pytest.mark.parametrize("arguments", [[], ["--benchmark-disable"], ["--benchmark-disable", "--benchmark-json=b.json"]])
def test_a_benchmark_runs_once_as_a_test_by_default(project: pytest.Pytester, arguments: list[str]) -> None:
    result = project.runpytest_subprocess("-s", "--device", "sim", *arguments)

    result.stdout.fnmatch_lines(["*series:"])
    result.stdout.no_fnmatch_line("*Name (time in*")
    result.assert_outcomes(passed=1)


def test_asked_to_measure_it_shows_pytest_benchmarks_table(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("-s", "--device", "sim", "--benchmark-only")

    result.stdout.fnmatch_lines(["*series: cuassay peer", "*Name (time in us)*", "test_add[[]sim:0[]]*"])
    result.assert_outcomes(passed=1)


def test_the_json_holds_device_samples_and_rates(project: pytest.Pytester) -> None:
    project.makepyfile(BENCHMARK.replace('"sim"', '"cpu"'))
    project.runpytest_subprocess("--device", "cpu", "--benchmark-json=b.json")

    (benchmark,) = json.loads((project.path / "b.json").read_text())["benchmarks"]

    told = benchmark["extra_info"]
    assert (told["device"], told["clock"], told["cache"], told["op"]) == ("cpu:0", "device", "cold", "add")
    assert told["bytes_per_s"] == pytest.approx(12000 / benchmark["stats"]["median"])
    assert told["flop_per_s"] == pytest.approx(1000 / benchmark["stats"]["median"])
    assert told["peer_median_s"] > 0


def test_modelled_times_say_so_and_have_no_rates(project: pytest.Pytester) -> None:
    project.runpytest_subprocess("--device", "sim", "--benchmark-json=b.json")

    (benchmark,) = json.loads((project.path / "b.json").read_text())["benchmarks"]

    told = benchmark["extra_info"]
    assert (told["device"], told["clock"], told["unit"]) == ("sim:0", "device", "virtual s")
    assert told.keys().isdisjoint({"bytes_per_s", "flop_per_s"})


def test_a_record_has_the_conditions_before_and_after_the_timings(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        from cuassay import devices
        type(devices.backend("sim")).conditions = lambda self, index: {"power": 1.0}
        """
    )
    project.runpytest_subprocess("--device", "sim", "--benchmark-only", "--cuassay-record=r.jsonl")

    rows = [json.loads(line) for line in (project.path / "r.jsonl").read_text().splitlines()]
    watched = [row for row in rows if row["record"] in ("condition", "limit", "time", "end")]
    assert [row.get("when") or row.get("limit") or row["record"] for row in watched] == [
        *("before", "empty", "time", "time", "after", "empty", "end")
    ]


def test_the_longest_time_of_a_call_is_the_options(project: pytest.Pytester) -> None:
    path = project.makepyfile(
        test_most="""
        from cuassay.benchmarking import pytest_benchmark
        def test_it(device, device_benchmark, monkeypatch, xp):
            right, given = pytest_benchmark.interleave, []
            spy = lambda *calls, max_seconds, **how: given.append(max_seconds) or right(*calls, samples=2, **how)
            monkeypatch.setattr(pytest_benchmark, "interleave", spy)
            device_benchmark(lambda: xp.ones(9) + 1, device, max_seconds=3.0)
            assert given == [2.0]
    """
    )

    result = project.runpytest_inprocess(path, "--device", "sim", "--benchmark-only", "--benchmark-max-time=2")

    result.assert_outcomes(passed=1)


def test_two_runs_can_be_compared(project: pytest.Pytester) -> None:
    project.runpytest_subprocess("--device", "sim", "--benchmark-autosave")

    result = project.runpytest_subprocess("--device", "sim", "--benchmark-compare")

    result.stdout.fnmatch_lines(["test_add[[]sim:0[]] (*", "test_add[[]sim:0[]] (*"])


ROWS = """
    import pytest
    from cuassay.testing import OpSpec, Work, conformance, dtypes

    def square(xp, a):
        return a * a

    test_square = conformance(OpSpec(
        fn=square, dtypes=("float32",), work=lambda a: Work(bytes=2 * a.nbytes),
        bench=lambda make, sizes: [make((sizes.length, 4)), make((sizes.length, 8))],
    ))

    @dtypes("float32")
    @pytest.mark.parametrize("width", [16])
    def test_twice(device, dtype, xp, width, device_benchmark):
        x = xp.ones(width, dtype)
        device_benchmark({"mine": lambda: x + x, "peer": lambda: 2 * x}, device)
"""


def test_a_users_benchmarks_are_rows_of_a_report(project: pytest.Pytester) -> None:
    path = project.makepyfile(ROWS)

    result = project.runpytest_subprocess(path, "--device", "sim", "--benchmark-only", "--cuassay-record", "r.jsonl")

    rows = [json.loads(line) for line in (project.path / "r.jsonl").read_text().splitlines()]
    columns = ("benchmark", "case", "dtype", "implementation", "bytes")
    assert {tuple(row.get(name) for name in columns) for row in rows if row["record"] == "time"} == {
        ("square", "128x4", "float32", "cuassay", 4096),
        ("square", "128x8", "float32", "cuassay", 8192),
        (f"{path.name}::test_twice", "16", "float32", "mine", None),
        (f"{path.name}::test_twice", "16", "float32", "peer", None),
    }
    assert {row["implementation"] for row in rows if row.get("ours")} == {"cuassay", "mine"}
    assert {row["outcome"] for row in rows if row["record"] == "test"} == {"passed"}  # nothing that was left out
    result.assert_outcomes(passed=3, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["*benchmark 'square': 2 tests*"])


@pytest.mark.parametrize(
    ("bench", "message"),
    [
        pytest.param("lambda make, sizes: []", "its bench yields nothing", id="nothing"),
        pytest.param(
            "lambda make, sizes: [make(sizes.depth)]",
            "its bench= raises AttributeError*sizes (*length, width*",
            id="raises",
        ),
    ],
)
def test_a_bench_that_measures_nothing_is_an_error_of_collection(
    pytester: pytest.Pytester, bench: str, message: str
) -> None:
    pytester.makepyfile(f"""
        from cuassay.testing import OpSpec, conformance
        test_one = conformance(OpSpec(fn=lambda xp, a: a, name="one", bench={bench}))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu")

    result.stdout.fnmatch_lines([f"*SpecError: one cannot be measured: {message}*"])


BENCH_CALLS = {
    "scalars by position": ("(make(8), 0), (make(8), 1)", ["8, 0", "8, 1"]),
    "one with a scalar": ("make(8), (make(8), 1)", ["8", "8, 1"]),
    "a layout": ("make((4, 8)), make((4, 8), layout='transposed')", ["4x8", "4x8, transposed"]),
    "a label": ("Sample((make(8),), label='first'), make(8)", ["8, first", "8"]),
    "told apart by shapes": ("(make(8), 0), Sample((make(9),), label='first')", ["8", "9"]),
}


@pytest.mark.parametrize(("drawn", "labels"), BENCH_CALLS.values(), ids=BENCH_CALLS)
def test_cases_of_one_shape_are_told_apart(pytester: pytest.Pytester, drawn: str, labels: list[str]) -> None:
    pytester.makepyfile(f"""
        from cuassay.benchmarking.cases import case_labels, cases
        from cuassay.testing import OpSpec, Sample

        def test_labels():
            spec = OpSpec(fn=lambda xp, a, n=0: a, samples=lambda make: [make(3)], bench=lambda make, sizes: [{drawn}])
            assert list(case_labels(spec, "cpu", "float32")) == {labels}
            assert [case.label for case in cases(spec, "cpu", "float32")] == {labels}
    """)

    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_two_cases_of_one_label_are_an_error_of_collection(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        bench = lambda make, sizes: [make((4, 8)), make((8, 4)), make((4, 8))]
        test_one = conformance(OpSpec(fn=lambda xp, a: a, name="one", bench=bench))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu")

    told = "samples 0 and 2 of bench= are both the case '4x8' of a report; *label='...')"
    result.stdout.fnmatch_lines([f"*SpecError: one: {told}"])


def test_a_sample_with_too_few_arguments_is_an_error_of_collection(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        bench = lambda make, sizes: [make(3), make(4)]
        test_mul = conformance(OpSpec(fn=lambda xp, a, b: a * b, name="mul", dtypes=("float32",), bench=bench))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu")

    told = (
        "sample 0 of bench= does not fit the parameters of fn: missing a required argument: 'b'; *a tuple is one call*"
    )
    result.stdout.fnmatch_lines([f"*SpecError: mul: {told}"])


SAME_SERIES = """
    from cuassay.testing import OpSpec, conformance
    bench = lambda make, sizes: [make((4, 8))]
    test_one = conformance(OpSpec(fn=lambda xp, a: a + 1, name="same", dtypes=("float32",), bench=bench))
    test_two = conformance(OpSpec(fn=lambda xp, a: a + 2, name={name!r}, dtypes=("float32",), bench=bench))
"""


@pytest.mark.parametrize(
    ("name", "outcomes"), [("same", {"passed": 1, "failed": 1}), ("other", {"passed": 2})], ids=["same", "other"]
)
def test_two_tests_that_record_one_series_are_told(
    project: pytest.Pytester, name: str, outcomes: dict[str, int]
) -> None:
    path = project.makepyfile(test_same=SAME_SERIES.format(name=name))

    result = project.runpytest_subprocess(path, "--device", "sim", "-k", "test_speed", "--cuassay-record", "r.jsonl")

    result.assert_outcomes(**outcomes, deselected=result.parseoutcomes()["deselected"])
    if "failed" in outcomes:
        told = "* has recorded the figures of same, 4x8, float32, cuassay on sim:0 in this run, *; give this a name *"
        result.stdout.fnmatch_lines([f"*ArgumentError: test_same.py::test_one::test_speed{told}"])


TIMED = """
    from cuassay.testing import OpSpec, conformance

    calls, kept = [], {}

    def doubled(xp, a):
        return a * 2

    def undone_once_warm(xp, a):
        calls.append(1)
        return a * 2 if len(calls) < 4 else a * 3

    def kept_by_identity(xp, a):
        if id(a) not in kept:
            kept[id(a)] = a * 2
        return kept[id(a)].copy()

    def kept_by_shape(xp, a):
        key = type(a), a.shape
        if key not in kept:
            kept[key] = a * 2
        return kept[key].copy()

    def doubled_in_place(xp, a):
        a *= 2
        return a

    def of(fn, **fields):
        return conformance(OpSpec(
            fn=fn, dtypes=("float32",), reference=lambda a: a * 2, samples=lambda make: [make(33)],
            bench=lambda make, sizes: [make((4, 8))], **fields,
        ))

    test_right, test_warm, test_kept = map(of, (doubled, undone_once_warm, kept_by_identity))
    test_shape = of(kept_by_shape)
    test_in_place = of(doubled_in_place, without={"inputs_unchanged": "in place"})
"""


def test_what_was_timed_is_compared_and_called_again_on_other_numbers(project: pytest.Pytester) -> None:
    path = project.makepyfile(test_timed=TIMED)

    result = project.runpytest_subprocess(path, "--device", "sim", "-k", "test_speed", "--cuassay-record", "r.jsonl")

    result.assert_outcomes(passed=2, failed=3, deselected=result.parseoutcomes()["deselected"])
    kept = "wrong in call * of * of the benchmark: its result is that of call *, which had other inputs: is a result*"
    result.stdout.fnmatch_lines(
        [
            "FAILED test_timed.py::test_warm::test_speed*wrong in the timed call*",
            f"FAILED test_timed.py::test_kept::test_speed*{kept}",
            f"FAILED test_timed.py::test_shape::test_speed*{kept}",
        ]
    )


def test_the_measuring_child_says_how_much_and_writes_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tuple(spec for spec in own_specs() if spec.name in ("add", "matmul"))
    monkeypatch.setattr(measure, "own_specs", lambda: few)

    status = measure.main(["--device", "sim", "--record", str(tmp_path / "times.jsonl"), "--run", "r1"])

    rows = [json.loads(line) for line in (tmp_path / "times.jsonl").read_text().splitlines()]
    times = [row for row in rows if row["record"] == "time"]
    assert status == 0
    assert capsys.readouterr().out.startswith("measuring 6 cases\n")
    assert {row["run"] for row in rows} == {"r1"}
    assert {(row["benchmark"], row["device"], row["clock"]) for row in times} == {
        ("add", "sim:0", "device"),
        ("matmul", "sim:0", "device"),
    }
    assert len(times) == 6
    before_and_after = [row["limit"] for row in rows if row["record"] == "limit"]
    assert before_and_after == ["empty", "empty"]


def test_a_measured_device_has_its_ceilings_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "own_specs", tuple)

    measure.main(["--device", "cpu", "--record", str(tmp_path / "times.jsonl"), "--run", "r1"])

    rows = [json.loads(line) for line in (tmp_path / "times.jsonl").read_text().splitlines()]
    limits = [row["limit"] for row in rows if row["record"] == "limit"]
    assert limits == ["bandwidth", "compute", "compute", "launch"]


@pytest.mark.parametrize("options", [(), ("--benchmark-only",)], ids=["once", "measured"])
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("None, device", "*ArgumentError: device_benchmark takes a function*; got None; write device_benchmark(*"),
        ("{}, device", "*ArgumentError: device_benchmark takes a function*; got {}*"),
        ("{'mine': 1}, device", "*ArgumentError: device_benchmark takes a function*; got {'mine': 1}*"),
        ("lambda: 1, 'gpu'", "*DeviceError: there is no device kind 'gpu'*"),
        ("lambda: 1, device, work=100", "*ArgumentError: work= takes a Work; got 100; write Work(bytes=*"),
    ],
    ids=["none", "empty", "number", "device", "work"],
)
def test_a_benchmark_of_nothing_is_refused_measured_or_not(
    project: pytest.Pytester, options: tuple[str, ...], asked: str, message: str
) -> None:
    path = project.makepyfile(test_nothing=f"def test_it(device, device_benchmark): device_benchmark({asked})")

    result = project.runpytest_inprocess(path, "--device", "cpu", "-W", "error", *options)

    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*PytestBenchmarkWarning*")
    result.assert_outcomes(failed=1)


@pytest.mark.parametrize("options", [(), ("--benchmark-enable",)], ids=["once", "measured"])
@pytest.mark.parametrize(
    ("names", "outcome"), [(", ", "failed"), (", case='other', ", "passed")], ids=["same", "named"]
)
def test_a_second_benchmark_in_a_test_needs_a_name_of_its_own(
    project: pytest.Pytester, options: tuple[str, ...], names: str, outcome: str
) -> None:
    path = project.makepyfile(
        test_two=f"""
        def test_it(device, device_benchmark, xp):
            device_benchmark(lambda: xp.ones(9) + 1, device, max_seconds=0.01)
            device_benchmark(lambda: xp.ones(9) + 2, device{names}max_seconds=0.01)
    """
    )

    result = project.runpytest_inprocess(path, "--device", "sim", *options)

    result.assert_outcomes(**{outcome: 1})
    if outcome == "failed":
        result.stdout.fnmatch_lines(
            ["*ArgumentError: device_benchmark has measured *::test_it in this test; give calls*"]
        )
