"""A declaration is judged by stock mutants; probes find what tolerances let pass; errors show their precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from referees import DATA

from cuassay import Device
from cuassay.arrays.rounding import round_tf32, round_to
from cuassay.errors import SpecError
from cuassay.judging import trial as trial_module
from cuassay.judging.beyond import beyond
from cuassay.judging.influence import influences
from cuassay.judging.precision import looks_like
from cuassay.judging.results import Results
from cuassay.judging.schedule import Schedule, by_size, claimed, schedule
from cuassay.judging.spec_file import load_declaration
from cuassay.judging.strength import weaknesses
from cuassay.judging.subject import Answer, LocalSubject
from cuassay.judging.trial import Trial, hear
from cuassay.mutation.stock import STOCK
from cuassay.testing import OpSpec, Sample, Tolerance

CPU, NONCE = Device("cpu"), 20_261_125


def declared(name: str) -> OpSpec:
    return load_declaration(f"{DATA}/spec.py::{name}").spec


def weak(spec: OpSpec) -> list[str]:
    plan = schedule(Results([spec]), CPU, NONCE, dtypes=claimed(spec, CPU), layouts=False, times=False)
    return list(weaknesses(Results([spec]), plan, NONCE))


def timed_calls(spec: OpSpec, nonce: int) -> Schedule:
    plan = schedule(Results([spec]), CPU, nonce, dtypes=claimed(spec, CPU), layouts=True, times=True)
    return Schedule(plan.probes, tuple(place for place in plan.order if plan.probes[place].case))


def heard(spec: OpSpec, function: Callable[..., Any], nonce: int = NONCE) -> Trial:
    plan = schedule(Results([spec]), CPU, nonce, dtypes=claimed(spec, CPU), layouts=True, times=True)
    return hear(LocalSubject(function), plan, nonce)


@pytest.mark.parametrize("error", [ValueError, AssertionError])
def test_probes_that_the_reference_rejects_decide_nothing(error: type[Exception]) -> None:
    def reference(a: Any) -> Any:
        if np.abs(a).max(initial=0.0) > 50:
            raise error("only numbers up to 50")
        return a * 2

    spec = OpSpec(
        fn=lambda xp, a: a * 2, name="bounded", dtypes=("float32",), reference=reference,
        samples=lambda make: [make((4, 5)), make((6, 7)), make((12, 3, 5))],
    )  # fmt: skip
    right, wrong = (heard(spec, run) for run in (lambda a: a * 2, lambda a: np.where(np.abs(a) > 50, a, a * 3)))

    assert (right.finding, right.ended) == (None, "")
    assert "spikes" not in right.passed
    assert wrong.finding is not None


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_function_of_an_array_without_an_axis_is_judged(dtype: str) -> None:
    spec = OpSpec(
        fn=lambda xp, a, b: a * b, name="times_one", dtypes=(dtype,), reference=lambda a, b: a * b,
        samples=lambda make: [(make((4, 5)), make(())), (make((6, 7)), make(()))],
    )  # fmt: skip

    assert heard(spec, lambda a, b: a * b).finding is None
    assert heard(spec, lambda a, b: a).finding is not None


@pytest.mark.parametrize("name", ["rms_norm", "mean", "tanh", "product", "affine", "argmax"])
def test_a_strong_declaration_lets_no_stock_mutant_pass(name: str) -> None:
    assert weak(declared(name)) == []


@pytest.mark.parametrize(
    ("name", "mutants"), [("constant", ["stale answer", "constant"]), ("loose", ["rounded to 16 bits"])]
)
def test_a_weak_declaration_is_told_with_the_mutants_that_pass(name: str, mutants: list[str]) -> None:
    assert weak(declared(name)) == mutants


def test_of_several_results_the_weak_one_is_named() -> None:
    strict, loose = (
        OpSpec(
            fn=lambda xp, a, factor=factor: a * factor, name=f"times {factor}", dtypes=("float32",),
            samples=lambda make: [make(33)], reference=lambda a, factor=factor: a * factor, tolerance=tolerance,
        )
        for factor, tolerance in ((3, None), (5, Tolerance(ulps=2**17)))
    )  # fmt: skip
    results = Results([strict, loose])
    plan = schedule(results, CPU, NONCE, dtypes=("float32",), layouts=False, times=False)

    assert list(weaknesses(results, plan, NONCE)) == ["rounded to 16 bits in result 1"]


def test_a_declaration_of_zeros_is_weak() -> None:
    zeros = OpSpec(
        fn=lambda xp, a: a * 0, name="zeros", reference=np.zeros_like, dtypes=("float32",),
        samples=lambda make: [make(33)],
    )  # fmt: skip

    assert "zeros" in weak(zeros)


def test_a_declared_copy_is_not_weak_for_the_mutant_that_copies() -> None:
    copied = OpSpec(fn=lambda xp, a: a.copy(), name="copied", reference=np.copy, dtypes=("float32",))

    assert weak(copied) == []


@pytest.mark.parametrize("name", STOCK)
def test_each_stock_mutant_is_wrong_for_a_function_of_all_its_inputs(name: str) -> None:
    a = np.random.default_rng(0).uniform(1, 3, (4, 33)).astype(np.float32)

    def right(x: Any) -> Any:
        return np.cumsum(x, axis=-1, dtype=np.float32) / 7

    mutant = STOCK[name](right)
    mutant(a)

    other = a[::-1] * np.float32(1.5)
    assert not np.array_equal(mutant(other), right(other))


def test_the_right_answer_has_the_dtype_of_the_result() -> None:
    a = np.linspace(-1, 1, 33, dtype=np.float32)

    assert [one.dtype for one in Results([declared("rms_norm")]).right((a,), {})] == [np.float32]
    assert [one.dtype for one in Results([declared("argmax")]).right((a[None],), {})] == [np.int64]


# ------------------------------------------------------------------------------------------------ probes


def test_the_declared_function_passes_its_own_probes() -> None:
    spec = declared("rms_norm")

    trial = heard(spec, lambda a: spec.run("cpu", (a,), {}))

    assert trial.finding is None
    assert {"values", "hidden shapes", "layouts", "spikes", "influence", "equal runs", "timed calls"} <= set(
        trial.passed
    )
    assert 0 < trial.verified == trial.timed < trial.calls


MEAN = OpSpec(
    fn=lambda xp, a: xp.mean(a), name="mean", dtypes=("float32",), samples=lambda make: [make(4096)],
    reference=np.mean, tolerance=Tolerance(ulps=1e5),
)  # fmt: skip


@pytest.mark.parametrize("ulps", [0, 50])
def test_headroom_is_that_of_the_worst_call(ulps: int) -> None:
    spec = replace(MEAN, tolerance=Tolerance(ulps=100))

    trial = heard(spec, lambda a: np.mean(a) * np.float32(1 + ulps * 2.0**-23))

    assert 0.8 * ulps / 100 <= trial.headroom < (ulps + 20) / 100


def influence(spec: OpSpec, function: Callable[..., Any]) -> list[str]:
    chance = np.random.default_rng(3)
    (sample,) = spec.draw(0, "float32", "values")
    probes = tuple(influences(Results([spec]), "float32", sample, chance))
    order = tuple(place for place, probe in enumerate(probes) for _ in probe.draws)
    trial = hear(LocalSubject(function), Schedule(probes, order), NONCE)
    return [] if trial.finding is None else [one.id for one in trial.finding.cheat]


def test_a_number_that_is_left_out_is_found_however_wide_the_tolerance() -> None:
    assert influence(MEAN, np.mean) == []
    assert "C5" in influence(MEAN, lambda a: np.mean(a[: a.size // 2]))
    assert "C5" in influence(MEAN, lambda a: np.mean(a[1::2]))


def test_a_candidate_for_the_declared_range_is_right() -> None:
    spec = OpSpec(
        fn=lambda xp, a: xp.sqrt(a), name="root", dtypes=("float32",), reference=np.sqrt,
        samples=lambda make: [make((4, 65), low=0.25, high=2.0)],
        bench=lambda make, sizes: [make((16, 33), low=0.25, high=2.0)],
    )  # fmt: skip

    trial = heard(spec, lambda a: np.sqrt(a) if a.min() >= 0.25 and a.max() <= 2.0 else a * 0)

    assert trial.finding is None
    assert {"spikes", "moved everywhere", "influence"} <= set(trial.passed)


@pytest.mark.parametrize("check", ["sizes", "layouts"])
def test_a_declaration_leaves_probes_out_by_the_names_of_checks(check: str) -> None:
    fields = {"name": "tanh", "fn": lambda xp, a: xp.tanh(a), "reference": np.tanh, "dtypes": ("float32",)}
    spec = OpSpec(**fields, without={check: "one kernel for one shape"})  # type: ignore[arg-type]
    samples = list(spec.draw(1, "float32", "values"))

    found = {probe.check for probe in beyond(Results([spec]), CPU, "float32", samples, np.random.default_rng(1), {})}

    assert {"sizes": "hidden shapes", "layouts": "layouts"}[check] not in found
    assert found


def test_probes_that_the_declared_function_fails_itself_are_dropped() -> None:
    softmax = OpSpec(
        fn=lambda xp, a: xp.exp(abs(a)) / xp.exp(abs(a)).sum(), name="softmax", dtypes=("float32",),
        samples=lambda make: [make(33)],
        reference=lambda a: np.exp(abs(a) - abs(a).max()) / np.exp(abs(a) - abs(a).max()).sum(),
    )  # fmt: skip

    trial = heard(softmax, lambda a: softmax.run("cpu", (a,), {}))

    assert trial.finding is None
    assert "spikes" not in trial.passed  # its exponentials overflow, which nobody promised they would not


@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        (lambda a: a, "C14"),
        (np.zeros_like, "C14"),
        (lambda a: np.tanh(np.nan_to_num(a)), "C18"),
        (lambda a: np.tanh(a) if a.shape != (64, 129) else np.zeros_like(a), "C14"),
    ],
    ids=["identity", "zeros", "special values", "one shape"],
)
def test_what_is_seen_of_a_wrong_output_is_named(wrong: Callable[..., Any], number: str) -> None:
    trial = heard(declared("tanh"), wrong, nonce=1)

    assert trial.finding is not None
    assert number in {one.id for one in trial.finding.cheat}


def test_a_declared_sample_that_fails_indicates_no_special_case_for_the_declaration() -> None:
    spec = OpSpec(
        fn=lambda xp, a: xp.tanh(a), name="tanh", dtypes=("float32",), reference=np.tanh,
        samples=lambda make: [make((3, 65)), make((2, 3, 64))],
    )  # fmt: skip
    plan = schedule(Results([spec]), CPU, 1, dtypes=("float32",), layouts=False, times=False)
    checks = [probe.check for probe in plan.probes]
    order = (checks.index("values"), checks.index("hidden shapes"))

    right_for_one = hear(LocalSubject(lambda a: np.tanh(a) * (a.shape == (3, 65))), Schedule(plan.probes, order), 1)
    right_for_both = hear(
        LocalSubject(lambda a: np.tanh(a) * (a.shape in ((3, 65), (2, 3, 64)))), Schedule(plan.probes, order), 1
    )

    assert right_for_one.finding is not None
    assert right_for_both.finding is not None
    assert right_for_one.finding.check == "values"
    assert "C10" not in {one.id for one in right_for_one.finding.cheat}
    assert "C10" in {one.id for one in right_for_both.finding.cheat}


def test_an_answer_of_an_earlier_call_is_proven() -> None:
    kept: dict[Any, Any] = {}

    trial = heard(
        declared("rms_norm"), lambda a: kept.setdefault(a.shape, a / np.sqrt((a * a).mean(-1, keepdims=True)))
    )

    assert trial.finding is not None
    assert ("T9", "proven") in {(one.id, one.certainty) for one in trial.finding.cheat}


ORDER = OpSpec(
    fn=lambda xp, a: xp.argsort(a, axis=-1), name="order", dtypes=("float32",), reference=np.argsort,
    samples=lambda make: [make((3, 65))],
)  # fmt: skip


def test_integers_of_an_earlier_call_are_indicated() -> None:
    kept: dict[Any, Any] = {}

    trial = heard(ORDER, lambda a: kept.setdefault(a.shape, np.argsort(a)))

    assert trial.finding is not None
    assert ("T9", "indicated") in {(one.id, one.certainty) for one in trial.finding.cheat}


@pytest.mark.parametrize("nonce", range(4))
def test_equal_numbers_may_be_sorted_in_either_order(nonce: int) -> None:
    trial = heard(ORDER, lambda a: np.argsort(-a, axis=-1, stable=True)[..., ::-1], nonce)

    assert trial.finding is None


def test_an_output_that_comes_again_is_compared_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "_LARGE", 0)
    monkeypatch.setattr(trial_module, "_VERIFIED", 0.0)
    spec = declared("rms_norm")
    plan = timed_calls(spec, NONCE)
    kept: dict[Any, Any] = {}

    def run(a: Any) -> Any:
        out = spec.run("cpu", (a,), {})
        return kept.setdefault(a.shape, out) if a.shape == (16, 129) else out

    monkeypatch.setattr(trial_module._Hearing, "_is_fast", lambda *_: False)
    right, stale = hear(LocalSubject(lambda a: spec.run("cpu", (a,), {})), plan, 1), hear(LocalSubject(run), plan, 1)

    assert (right.finding, right.verified) == (None, 0)
    assert stale.finding is not None
    assert stale.finding.check == "timed calls"


class Hurried(LocalSubject):
    """Wrong in a random half of the calls of the measured shape, which take half of the time."""

    def call(self, args: Any, kwargs: Any) -> Answer:
        answer = super().call(args, kwargs)
        if args[0].shape != (16, 129) or self.chance.random() < 0.5:
            return replace(answer, seconds=1.0)
        return replace(answer, outputs=(answer.outputs[0] * 2,), seconds=0.5)

    chance = np.random.default_rng(5)


def test_calls_that_are_wrong_and_fast_are_compared_however_large_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "_VERIFIED", 0)
    monkeypatch.setattr(trial_module, "_LARGE", 0)
    spec = declared("rms_norm")
    subject = Hurried(lambda a: spec.run("cpu", (a,), {}))

    for nonce in range(4):
        assert hear(subject, timed_calls(spec, nonce), nonce).finding is not None, nonce


class Slower(LocalSubject):
    """Each call takes longer than the one before, so none is compared because it was fast."""

    calls = 0

    def call(self, args: Any, kwargs: Any) -> Answer:
        self.calls += 1
        return replace(super().call(args, kwargs), seconds=float(self.calls))


def test_which_large_calls_are_compared_depends_on_the_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "_LARGE", 0)
    spec = declared("rms_norm")
    plan = timed_calls(spec, NONCE)

    verified = [hear(Slower(lambda a: spec.run("cpu", (a,), {})), plan, nonce).verified for nonce in range(8)]

    assert len(set(verified)) > 1


def test_a_trial_without_all_of_its_calls_has_not_ended_well() -> None:
    spec = declared("rms_norm")
    plan = schedule(Results([spec]), CPU, NONCE, dtypes=("float32",), layouts=True, times=False)
    last_of_several = next(place for place, probe in enumerate(plan.probes) if len(probe.draws) > 1)
    order = list(plan.order)
    order.remove(last_of_several)

    trial = hear(LocalSubject(lambda a: spec.run("cpu", (a,), {})), Schedule(plan.probes, tuple(order)), NONCE)

    assert trial.finding is None
    assert trial.ended == "1 probes have not got all of their calls"


def test_what_is_measured_is_checked_where_no_time_is_taken() -> None:
    spec = declared("rms_norm")
    plan = schedule(Results([spec]), CPU, NONCE, dtypes=("float32",), layouts=True, times=False)

    trial = hear(LocalSubject(lambda a: a if a.shape == (16, 129) else spec.run("cpu", (a,), {})), plan, NONCE)

    assert trial.finding is not None
    assert trial.finding.check == "bench"


def test_the_calls_follow_from_the_nonce() -> None:
    spec = declared("product")

    def labels(nonce: int) -> list[str]:
        plan = schedule(Results([spec]), CPU, nonce, dtypes=("float32",), layouts=True, times=True)
        return [plan.probes[place].draws[0]().label for place in plan.order]

    assert labels(1) == labels(1)
    assert labels(1) != labels(2)


def test_checks_and_timed_calls_come_mixed() -> None:
    plan = schedule(Results([declared("product")]), CPU, NONCE, dtypes=("float32",), layouts=True, times=True)

    timed = [bool(plan.probes[place].case) for place in plan.order]

    assert sum(a != b for a, b in pairwise(timed)) > 6


# ------------------------------------------------------------------------------------------------ precision

PRODUCT = OpSpec(
    fn=lambda xp, a, b: a @ b, name="product", dtypes=("float32",), reference=lambda a, b: a @ b,
    samples=lambda make: [(make((16, 64)), make((64, 16)))],
)  # fmt: skip


@pytest.mark.parametrize(
    ("rounded", "name"),
    [
        (round_tf32, "tf32 or float16"),
        (lambda a: round_to(a, "bfloat16"), "bfloat16"),
        (lambda a: a, ""),
    ],
    ids=["tf32", "bfloat16", "ieee"],
)
def test_errors_show_the_precision_of_the_operands(rounded: Callable[[Any], Any], name: str) -> None:
    (sample,) = PRODUCT.draw(4, "float32", "values")
    a, b = (rounded(one) for one in sample.host()[0])

    assert looks_like(PRODUCT, [(sample, a @ b)]) == name


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_only_results_in_float32_show_a_precision(dtype: str) -> None:
    (sample,) = PRODUCT.draw(4, "float32", "values")
    a, b = (round_to(one, "bfloat16") for one in sample.host()[0])

    assert looks_like(PRODUCT, [(sample, (a @ b).astype(dtype))]) == ""


def test_errors_of_float32_do_not_look_like_others_in_their_signs_alone() -> None:
    a = np.array([1 / 3] * 32, np.float32)
    divided = OpSpec(
        fn=lambda xp, a: a / 3, name="third", dtypes=("float32",), reference=lambda a: a / 3,
        samples=lambda make: [make(32)],
    )  # fmt: skip

    assert looks_like(divided, [(Sample((a,)), a / np.float32(3))]) == ""
    assert looks_like(divided, [(Sample((a,)), round_to(a, "bfloat16") / np.float32(3))]) == "bfloat16"


def test_reference_that_asserts_against_rounded_inputs_is_asked_for_none() -> None:
    def thirds(a: Any) -> Any:
        assert (a.astype(np.float32) == np.float32(1 / 3)).all()
        return a * 3

    declared = OpSpec(
        fn=lambda xp, a: a * 3, name="thirds", dtypes=("float32",), reference=thirds,
        samples=lambda make: [make.full(32, 1 / 3)],
    )  # fmt: skip
    (sample,) = declared.draw(0, "float32", "values")

    assert looks_like(declared, [(sample, np.full(32, 1.001, np.float32))]) == ""


# ------------------------------------------------------------------------------------------------ the declaration


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py::a", "is not a file"),
        (f"{DATA}/spec.py::rms_nrm", "did you mean 'rms_norm'"),
        (f"{DATA}/spec.py", "name one"),
        (f"{DATA}/cheats/T14_no_time.py", "declares no OpSpec"),
        (f"{DATA}/spec.py::unreferenced", "has no reference="),
    ],
    ids=["no file", "misspelt", "no name", "no declaration", "no reference"],  # without the folder of the checkout
)
def test_a_declaration_that_cannot_judge_is_refused(target: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_declaration(target)


@pytest.mark.parametrize("place", ["spec", "helper"])
def test_a_declaration_that_raises_is_refused_with_the_users_line(tmp_path: Any, place: str) -> None:
    (tmp_path / "lines_of_helper.py").write_text("import numpy as np\n\n\ndef f(a):\n    return np.zeros(a)\n")
    line = "undefined_thing" if place == "spec" else "f('x')"
    (tmp_path / "spec.py").write_text(f"from lines_of_helper import f\n\n{line}\n")

    with pytest.raises(SpecError, match=r"^spec.py cannot be imported: \w+: .*" + _LINES[place]):
        load_declaration(f"{tmp_path / 'spec.py'}::spec")


def test_a_module_that_the_declaration_cannot_find_comes_with_advice(tmp_path: Any) -> None:
    (tmp_path / "spec.py").write_text("import not_there_at_all\n")

    with pytest.raises(
        SpecError, match=r"'not_there_at_all' \(spec.py:1\); install it, or set PYTHONPATH to its folder$"
    ):
        load_declaration(f"{tmp_path / 'spec.py'}::spec")


_LINES = {"spec": r"'undefined_thing' is not defined \(spec.py:3\)$", "helper": r" \(lines_of_helper.py:5\)$"}


def test_a_class_of_generated_tests_is_a_declaration(tmp_path: Any) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(
        "import numpy as np\nfrom cuassay.testing import OpSpec, conformance\n"
        "test_tanh = conformance(OpSpec(fn=lambda xp, a: xp.tanh(a), reference=np.tanh))\n"
    )

    found = load_declaration(str(file))

    assert found.name == "test_tanh"
    assert isinstance(found.spec, OpSpec)


def test_an_op_that_returns_nothing_cannot_judge(tmp_path: Any) -> None:
    file = tmp_path / "spec.py"
    file.write_text(
        "from cuassay.testing.own_specs import own_specs\n"
        "spec = next(one for one in own_specs() if one.op is not None and not one.op.schema.outputs)\n"
    )

    with pytest.raises(SpecError, match="does not return one array"):
        load_declaration(str(file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(one, both)", "both declares one of several results, and gives a tuple; give one array"),
        ("OpSpec(fn=lambda xp, a: [a] * 65, reference=lambda a: [a] * 65, name='many')", "many gives 65 results"),
    ],
    ids=["a tuple in a tuple", "too many"],
)
def test_results_that_cannot_be_judged_are_refused(tmp_path: Any, text: str, message: str) -> None:
    file = tmp_path / "spec.py"
    file.write_text(
        "from cuassay.testing import OpSpec\n"
        "one = OpSpec(fn=lambda xp, a: a, reference=lambda a: a, name='one')\n"
        "both = OpSpec(fn=lambda xp, a: (a, -a), reference=lambda a: (a, -a), name='both')\n"
        f"spec = {text}\n"
    )

    with pytest.raises(SpecError, match=message):
        load_declaration(f"{file}::spec")


def test_a_function_that_works_in_place_cannot_judge(tmp_path: Any) -> None:
    file = tmp_path / "spec.py"
    file.write_text(
        "from cuassay.testing import OpSpec\n"
        "in_place = {'inputs_unchanged': 'in place', 'aliasing': 'in place', 'deterministic': 'in place'}\n"
        "spec = OpSpec(fn=lambda xp, a: a, reference=lambda a: a, name='scale_', without=in_place)\n"
    )

    with pytest.raises(SpecError, match=r"scale_ works in place \(without= names inputs_unchanged\)"):
        load_declaration(str(file))


def test_files_that_a_declaration_imports_are_hidden_with_it(tmp_path: Any) -> None:
    (tmp_path / "formulas_of_this_test.py").write_text("def right(a):\n    return a + 1\n")
    file = tmp_path / "spec.py"
    file.write_text(
        "from cuassay.testing import OpSpec\nfrom formulas_of_this_test import right\n"
        "one = OpSpec(fn=lambda xp, a: a + 1, reference=right)\n"
    )

    found = load_declaration(f"{file}::one")

    assert [path.name for path in found.files] == ["spec.py", "formulas_of_this_test.py"]


def test_a_file_that_raises_is_told(tmp_path: Any) -> None:
    file = tmp_path / "broken.py"
    file.write_text("1 / 0")

    with pytest.raises(SpecError, match="ZeroDivisionError"):
        load_declaration(f"{file}::a")


def test_mutants_meet_small_samples_first() -> None:
    """Most mutants fail by one of them, and a large one takes long."""
    spec = OpSpec(
        fn=lambda xp, a: a * 2, name="doubled", dtypes=("float32",), reference=lambda a: a * 2,
        samples=lambda make: [make(3000), make(5), make((7, 9))],
    )  # fmt: skip
    plan = schedule(Results([spec]), CPU, NONCE, dtypes=("float32",), layouts=False, times=False)
    small_first = by_size(plan)

    sizes = [plan.probes[place].draws[0]().args[0].values.size for place in small_first.order]
    assert sizes == sorted(sizes)
    assert sizes[0] < 10
    assert sizes[-1] > 2900
    assert sorted(small_first.order) == sorted(plan.order)


def test_a_declaration_may_import_a_folder_without_a_file_of_its_own(tmp_path: Any) -> None:
    (tmp_path / "folder_of_this_test").mkdir()
    (tmp_path / "folder_of_this_test/formulas.py").write_text("def double(a):\n    return a * 2\n")
    (tmp_path / "spec.py").write_text(
        "from cuassay.testing import OpSpec\n"
        "from folder_of_this_test.formulas import double\n"
        "spec = OpSpec(fn=lambda xp, a: double(a), reference=double, name='double')\n"
    )

    assert [path.name for path in load_declaration(f"{tmp_path}/spec.py").files] == ["spec.py", "formulas.py"]
