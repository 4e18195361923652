"""`cuassay.cuda.tunable`: torch's names, and what is said without CUDA."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay import cuda
from cuassay.core import settings
from cuassay.cuda import tunable
from cuassay.errors import ArgumentError, LibraryNotFoundError, SettingError, StateError, TuningError
from cuassay.tune.search import Limits

#: Of ``torch.cuda.tunable``; two that later versions of torch have dropped, as results are written when found.
NAMES = """
    enable is_enabled tuning_enable tuning_is_enabled record_untuned_enable record_untuned_is_enabled
    set_max_tuning_duration get_max_tuning_duration set_max_tuning_iterations get_max_tuning_iterations
    set_cublaslt_requested_algo_count get_cublaslt_requested_algo_count set_filename get_filename get_results
    get_validators read_file tune_gemm_in_file mgpu_tune_gemm_in_file set_rotating_buffer_size
    get_rotating_buffer_size set_numerical_check_tolerances write_file write_file_on_exit
""".split()

OURS = ["get_untuned_filename", "set_untuned_filename"]


def test_the_names_are_torchs_and_two_of_ours() -> None:
    assert sorted(tunable.__all__) == sorted(NAMES + OURS)
    assert all(callable(getattr(cuda.tunable, name)) for name in NAMES)


def test_importing_it_loads_no_cuda_library() -> None:
    code = "import sys; from cuassay.cuda import tunable; print([m for m in sys.modules if m in ('cupy', 'nvmath')])"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_cupy_it_says_what_to_install() -> None:
    with pytest.raises(
        LibraryNotFoundError, match=r"tuning cannot be used: .*; install what CUDA needs with: pip install"
    ):
        tunable.enable()


@pytest.mark.parametrize(
    ("name", "with_ordinal"),
    [("results.jsonl", "results%d.jsonl"), ("results", "results%d"), ("a.b/results", "a.b/results%d")],
)
def test_the_ordinal_goes_before_the_extension(name: str, with_ordinal: str) -> None:
    assert tunable._with_ordinal(name) == with_ordinal


@dataclass
class Options:
    """As far as the face reads them."""

    enabled: bool = False
    tuning: bool = False
    recording: bool = False
    writing: bool = True
    path: str = ""
    untuned: str = "untuned%d.jsonl"
    algorithms: int = 16
    limits: Limits = field(default_factory=Limits)
    rotating_nbytes: int | None = None
    tolerances: tuple[float, float] | None = None
    checking: bool = False


class Tuner:
    """What is set and what is asked for, without CUDA."""

    def __init__(self) -> None:
        self.options = Options()
        self.asked: list[tuple[Any, ...]] = []

    def configure(self, **changed: Any) -> None:
        for name, value in changed.items():
            getattr(self.options, name)
            setattr(self.options, name, value)

    def results(self, device: int) -> Any:
        return SimpleNamespace(
            read=lambda path: self._files("read", device, path), write=lambda path: self._files("write", device, path)
        )

    def _files(self, what: str, device: int, path: str) -> None:
        if path == "broken":
            raise TuningError("broken is cut off")
        self.asked.append((what, device, path))

    def path(self, device: int) -> str:
        return self.named(self.options.path or "own%d", device)

    def named(self, name: str, device: int) -> str:
        return name.replace("%d", str(device))

    def reread(self) -> None:
        self.asked.append(("reread",))


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Tuner:
    """On device 1; what is asked of the rooms that need CUDA is noted."""
    tuner = Tuner()
    blas = SimpleNamespace(
        controls=SimpleNamespace(renew=lambda: tuner.asked.append(("renew",))),
        offline=SimpleNamespace(
            problems_in=lambda paths: tuple(paths),
            tune=lambda *asked: tuner.asked.append(("tune", *asked)),
            tune_on_several=lambda *asked: tuner.asked.append(("tune on several", *asked)),
        ),
    )
    monkeypatch.setitem(sys.modules, "cuassay.devices.cuda.blas", blas)  # type: ignore[arg-type]
    monkeypatch.setattr(tunable, "_tuner", lambda: tuner)
    monkeypatch.setattr(tunable, "_current", lambda: 1)
    return tuner


@pytest.fixture
def options(tuner: Tuner) -> Options:
    return tuner.options


@pytest.mark.parametrize(("given", "path"), [((), "own1"), (("other.jsonl",), "other.jsonl")], ids=["own", "named"])
def test_a_file_is_read_for_the_current_device_and_plans_are_made_again(
    tuner: Tuner, given: tuple[str, ...], path: str
) -> None:
    assert tunable.read_file(*given)

    assert tuner.asked == [("read", 1, path), ("renew",)]


def test_a_file_that_cannot_be_read_leaves_the_plans_as_they_are(tuner: Tuner) -> None:
    with pytest.raises(TuningError):
        tunable.read_file("broken")

    assert tuner.asked == []


@pytest.mark.parametrize(("given", "path"), [((), "own1"), (("other.jsonl",), "other.jsonl")], ids=["own", "named"])
def test_results_of_the_current_device_are_written(tuner: Tuner, given: tuple[str, ...], path: str) -> None:
    assert tunable.write_file(*given)

    assert tuner.asked == [("write", 1, path)]


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(
    ("name", "asks", "field"),
    [
        ("enable", "is_enabled", "enabled"),
        ("tuning_enable", "tuning_is_enabled", "tuning"),
        ("record_untuned_enable", "record_untuned_is_enabled", "recording"),
        ("write_file_on_exit", "", "writing"),
    ],
)
def test_each_switch_is_its_own(options: Options, name: str, asks: str, field: str, value: bool) -> None:
    getattr(tunable, name)(value)

    assert options == replace(Options(), **{field: value})
    assert not asks or getattr(tunable, asks)() is value


def test_each_number_is_its_own(options: Options) -> None:
    tunable.set_max_tuning_iterations(7)
    tunable.set_cublaslt_requested_algo_count(9)

    assert (options.limits.iterations, options.algorithms) == (7, 9)
    assert (tunable.get_max_tuning_iterations(), tunable.get_cublaslt_requested_algo_count()) == (7, 9)
    assert options.limits.seconds == Limits().seconds


@pytest.mark.parametrize(("with_ordinal", "path"), [(False, "a.jsonl"), (True, "a1.jsonl")])
def test_a_file_may_be_named_for_the_device(options: Options, with_ordinal: bool, path: str) -> None:
    tunable.set_filename("a.jsonl", with_ordinal)

    assert (tunable.get_filename(), tunable.get_untuned_filename()) == (path, "untuned1.jsonl")


def test_untuned_products_have_a_file_of_their_own(options: Options) -> None:
    tunable.set_untuned_filename("u%d")

    assert (tunable.get_filename(), tunable.get_untuned_filename()) == ("own1", "u1")


def test_what_a_file_lists_is_tuned_on_the_current_device(tuner: Tuner) -> None:
    tuner.options.enabled = tuner.options.tuning = True

    tunable.tune_gemm_in_file("untuned.jsonl", tell=print)

    assert tuner.asked == [("tune", ("untuned.jsonl",), 1, print)]


@pytest.mark.parametrize(("chosen", "indices"), [({}, [0, 1]), ({"devices": [3]}, [3])], ids=["first", "named"])
def test_on_several_devices_results_are_read_again(
    tuner: Tuner, tmp_path: Path, chosen: dict[str, Any], indices: list[int]
) -> None:
    tuner.options.enabled = tuner.options.tuning = True
    for name in "ba":
        (tmp_path / f"untuned_{name}").touch()

    tunable.mgpu_tune_gemm_in_file(str(tmp_path / "untuned_?"), 2, **chosen)

    files = tuple(str(tmp_path / f"untuned_{name}") for name in "ab")
    assert tuner.asked == [("tune on several", files, indices), ("reread",)]


def test_files_are_not_tuned_unless_tuning_is_enabled(tuner: Tuner) -> None:
    for tune in (tunable.tune_gemm_in_file, lambda name: tunable.mgpu_tune_gemm_in_file(name, 1)):
        with pytest.raises(StateError, match="tuning is not enabled"):
            tune("untuned.jsonl")

    assert tuner.asked == []


def test_a_duration_is_in_milliseconds(options: Options) -> None:
    tunable.set_max_tuning_duration(250)

    assert (options.limits.seconds, tunable.get_max_tuning_duration()) == (0.25, 250)


@pytest.mark.parametrize(("mebibytes", "nbytes"), [(64, 2**26), (0, 0), (-1, None)])
def test_a_rotating_buffer_is_in_mebibytes(options: Options, mebibytes: int, nbytes: int | None) -> None:
    tunable.set_rotating_buffer_size(mebibytes)

    assert (options.rotating_nbytes, tunable.get_rotating_buffer_size()) == (nbytes, mebibytes)


def test_tolerances_are_given_absolute_first_and_kept_relative_first(options: Options) -> None:
    tunable.set_numerical_check_tolerances(True, atol=1e-3, rtol=1e-2)

    assert (options.checking, options.tolerances) == (True, (1e-2, 1e-3))


@pytest.mark.parametrize("wrong", [{"atol": 1e-3}, {"rtol": 1e-3}, {"atol": -1e-3, "rtol": 1e-3}])
def test_half_a_tolerance_and_a_negative_one_are_refused(options: Options, wrong: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match="atol and rtol must both be 0 or more"):
        tunable.set_numerical_check_tolerances(True, **wrong)

    assert options == Options()


@pytest.mark.parametrize("name", ["max_tuning_duration", "max_tuning_iterations", "cublaslt_requested_algo_count"])
def test_no_limit_is_zero(options: Options, name: str) -> None:
    with pytest.raises(ArgumentError, match="must be 1 or more; got 0"):
        getattr(tunable, f"set_{name}")(0)

    assert options == Options()


@pytest.mark.parametrize(("enabled", "tuning"), [(False, False), (True, False), (False, True)])
def test_nothing_is_tuned_unless_both_switches_are_on(options: Options, enabled: bool, tuning: bool) -> None:
    tunable.enable(enabled)
    tunable.tuning_enable(tuning)

    with pytest.raises(StateError, match="tuning is not enabled"):
        tunable._must_tune()
    assert (options.enabled, options.tuning) == (enabled, tuning)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("NUMERICAL_CHECK", "1e-3_1e-2", (1e-3, 1e-2)),
        ("NUMERICAL_CHECK", "0", ()),
        ("NUMERICAL_CHECK", "off", ()),
        ("ROTATING_BUFFER_SIZE", "64", 64),
        ("ROTATING_BUFFER_SIZE", "0", 0),
        ("ROTATING_BUFFER_SIZE", "-1", None),
    ],
)
def test_settings_are_read_as_torch_writes_them(name: str, text: str, value: object) -> None:
    assert settings.get(f"CUASSAY_TUNABLEOP_{name}", {f"CUASSAY_TUNABLEOP_{name}": text}) == value


@pytest.mark.parametrize(("name", "text"), [("NUMERICAL_CHECK", "1e-3"), ("ROTATING_BUFFER_SIZE", "much")])
def test_a_setting_that_cannot_be_read_is_told(name: str, text: str) -> None:
    with pytest.raises(SettingError, match=f"CUASSAY_TUNABLEOP_{name} must be .*; got '{text}'"):
        settings.get(f"CUASSAY_TUNABLEOP_{name}", {f"CUASSAY_TUNABLEOP_{name}": text})


def test_torchs_switches_are_read_its_files_are_not() -> None:
    environ = {"PYTORCH_TUNABLEOP_ENABLED": "1", "PYTORCH_TUNABLEOP_FILENAME": "tunableop_results.csv"}

    assert settings.get("CUASSAY_TUNABLEOP_ENABLED", environ) is True
    assert settings.get("CUASSAY_TUNABLEOP_FILENAME", environ) == ""
