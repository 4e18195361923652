"""`cuassay.cuda.tunable`: torch's names, and what is said without CUDA."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from cuassay import cuda
from cuassay.core import settings
from cuassay.cuda import tunable
from cuassay.errors import LibraryNotFoundError, SettingError

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
