"""How products may be computed: modes by context, call and process, torch's names for them, and determinism."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay import (
    current_precision,
    get_float32_matmul_precision,
    precision,
    set_default_precision,
    set_float32_matmul_precision,
)
from cuassay.core import determinism, settings
from cuassay.core.precision import MODES, MatmulOptions, matmul_options, resolved, set_matmul_options
from cuassay.errors import ArgumentError, CapabilityError, SettingError


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    mode, options, debug = current_precision(), matmul_options(), determinism.get_deterministic_debug_mode()
    yield
    set_default_precision(mode)
    set_matmul_options(**asdict(options))
    determinism.set_deterministic_debug_mode(debug)


@pytest.mark.parametrize(("word", "mode"), [("highest", "ieee"), ("high", "tf32"), ("medium", "bf16")])
def test_torchs_words_set_the_default(word: str, mode: str) -> None:
    set_float32_matmul_precision(word)

    assert (current_precision(), get_float32_matmul_precision()) == (mode, word)


@pytest.mark.parametrize("mode", ["tf32x3", "bf16x6", "bf16x9"])
def test_a_split_mode_is_torchs_highest(mode: str) -> None:
    set_default_precision(mode)  # type: ignore[arg-type]

    assert get_float32_matmul_precision() == "highest"


def test_two_bfloat16_parts_are_torchs_high() -> None:
    set_default_precision("bf16x3")

    assert get_float32_matmul_precision() == "high"


def test_a_call_overrides_context_and_default() -> None:
    set_default_precision("bf16")
    with precision("tf32"):
        assert (resolved(None), resolved("ieee")) == ("tf32", "ieee")
    with pytest.raises(ArgumentError, match="is not a precision mode"):
        resolved("tf16")  # type: ignore[arg-type]


def test_a_context_is_its_threads_own() -> None:
    seen: list[str] = []
    with precision("tf32"):
        thread = threading.Thread(target=lambda: seen.append(current_precision()))
        thread.start()
        thread.join()

    assert seen == ["ieee"]


@pytest.mark.parametrize(("text", "mode"), [("1", "tf32"), ("0", "ieee"), ("BF16x6", "bf16x6")])
def test_the_setting_takes_a_mode_or_torchs_flag(monkeypatch: pytest.MonkeyPatch, text: str, mode: str) -> None:
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", text)

    set_default_precision(None)

    assert current_precision() == mode


@pytest.mark.parametrize(("text", "nbytes"), [(":4096:2:16:8", 8_519_680), (":128:8:64:16:32:32", 3 * 2**20)])
def test_a_workspace_configuration_is_summed(text: str, nbytes: int) -> None:
    assert settings.get("CUASSAY_CUBLAS_WORKSPACE_CONFIG", {"CUBLAS_WORKSPACE_CONFIG": text}) == nbytes


@pytest.mark.parametrize("text", ["-1", "4096:2", ":4096", ":a:2"])
def test_a_bad_workspace_configuration_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="such as :4096:2:16:8"):
        settings.get("CUASSAY_CUBLAS_WORKSPACE_CONFIG", {"CUBLAS_WORKSPACE_CONFIG": text})


@given(st.dictionaries(st.sampled_from(list(MatmulOptions.__dataclass_fields__)), st.booleans()))
def test_options_change_together_or_not_at_all(changes: dict[str, bool]) -> None:
    before = set_matmul_options(**asdict(MatmulOptions()))
    wanted = {**asdict(MatmulOptions()), **changes}
    legal = all(wanted[f"{d}_split_k"] or not wanted[f"{d}_reduced_precision_reduction"] for d in ("fp16", "bf16"))
    try:
        set_matmul_options(**changes)
        assert legal
        assert asdict(matmul_options()) == wanted
    except ArgumentError:
        assert not legal
        assert matmul_options() == MatmulOptions()
    finally:
        set_matmul_options(**asdict(MatmulOptions()))
        set_matmul_options(**asdict(before))


@pytest.mark.parametrize("changes", [{"fp8_accumulation": True}, {"fp16_accumulation": 1}])
def test_an_unknown_option_lists_those_that_exist(changes: dict[str, bool]) -> None:
    with pytest.raises(ArgumentError, match="fp16_accumulation"):
        set_matmul_options(**changes)


def test_every_mode_is_described() -> None:
    assert all(MODES.values())


# ------------------------------------------------------------------------------------------------ determinism


def test_an_op_that_is_not_deterministic_raises_once_asked_to() -> None:
    determinism.alert("scatter")
    determinism.use_deterministic_algorithms(mode=True)

    with pytest.raises(CapabilityError, match="scatter does not have a deterministic implementation"):
        determinism.alert("scatter")


def test_it_warns_where_it_shall_only_warn() -> None:
    determinism.use_deterministic_algorithms(mode=True, warn_only=True)

    with pytest.warns(UserWarning, match="scatter does not have a deterministic implementation") as told:
        determinism.alert("scatter")
    assert told[0].filename == __file__
    assert determinism.is_deterministic_algorithms_warn_only_enabled()


@pytest.mark.parametrize(("wanted", "number"), [("default", 0), ("warn", 1), ("error", 2), (0, 0), (1, 1), (2, 2)])
def test_the_debug_mode_is_a_word_or_a_number(wanted: int | str, number: int) -> None:
    determinism.set_deterministic_debug_mode(wanted)

    assert determinism.get_deterministic_debug_mode() == number
    assert determinism.are_deterministic_algorithms_enabled() is (number > 0)


@pytest.mark.parametrize("wanted", [3, "2", "always", True, 1.0])
def test_another_debug_mode_is_refused(wanted: int | str) -> None:
    with pytest.raises(ArgumentError, match=r"no determinism mode .*; give one of 0 or 'default', 1 or"):
        determinism.set_deterministic_debug_mode(wanted)


def test_a_setting_that_is_no_mode_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuassay.core.precision._default", None)
    monkeypatch.setenv("CUASSAY_FLOAT32_PRECISION", "tf3")

    with pytest.raises(SettingError, match=r"CUASSAY_FLOAT32_PRECISION must be one of ieee, tf32, .*; got 'tf3'"):
        current_precision()


def test_determinism_is_asked_for_by_a_bool() -> None:
    with pytest.raises(ArgumentError, match="mode is True or False; got 'yes'"):
        determinism.use_deterministic_algorithms("yes")  # type: ignore[arg-type]

    assert not determinism.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("asked", "number"), [((True, False), 2), ((True, True), 1), ((False, True), 0)])
def test_determinism_is_on_off_or_warns(asked: tuple[bool, bool], number: int) -> None:
    determinism.set_deterministic_debug_mode("warn")

    determinism.use_deterministic_algorithms(asked[0], warn_only=asked[1])

    assert determinism.get_deterministic_debug_mode() == number


def test_what_was_set_before_is_given_back() -> None:
    set_default_precision("tf32")
    set_matmul_options(fp16_accumulation=True)

    assert set_default_precision("bf16") == "tf32"
    assert set_matmul_options(fp16_accumulation=False).fp16_accumulation
