"""`cuassay.cuda.tunable`: torch's names, and what is said without CUDA."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from cuassay import cuda
from cuassay.core import settings
from cuassay.cuda import tunable
from cuassay.errors import ArgumentError, LibraryNotFoundError, SettingError, StateError
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
    with pytest.raises(LibraryNotFoundError, match=r"tuning cannot be used: .*; install cuassay\[cuda13\]"):
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
    limits: Limits = field(default_factory=Limits)
    rotating_nbytes: int | None = None
    tolerances: tuple[float, float] | None = None
    checking: bool = False


class Tuner:
    """What is set, without CUDA."""

    def __init__(self) -> None:
        self.options = Options()

    def configure(self, **changed: Any) -> None:
        for name, value in changed.items():
            setattr(self.options, name, value)


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Options:
    tuner = Tuner()
    monkeypatch.setattr(tunable, "_tuner", lambda: tuner)
    return tuner.options


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
    with pytest.raises(ArgumentError, match="tolerances are given both, 0 or more"):
        tunable.set_numerical_check_tolerances(True, **wrong)

    assert options == Options()


@pytest.mark.parametrize("name", ["max_tuning_duration", "max_tuning_iterations", "cublaslt_requested_algo_count"])
def test_no_limit_is_zero(options: Options, name: str) -> None:
    with pytest.raises(ArgumentError, match="is 1 or more; got 0"):
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
