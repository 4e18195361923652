"""Environment variables: one table, read when asked, refused in words."""

from __future__ import annotations

import pytest

from cuassay.core import settings
from cuassay.errors import SettingError


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("CUASSAY_SEED", "7", 7),
        ("CUASSAY_SIM_MEMORY", "1048576", 2**20),
        ("CUASSAY_SIM_MEMORY", "1.5GiB", 3 * 2**29),
        ("CUASSAY_SIM_MEMORY", "3 MiB", 3 * 2**20),
        ("CUASSAY_SIM_MEMORY", " .5TiB ", 2**39),
        ("CUASSAY_HANG_SECONDS", "2.5", 2.5),
        ("CUASSAY_DEVICES", "cpu, sim:1,", ("cpu", "sim:1")),
        ("CUASSAY_LAUNCH_BLOCKING", "on", True),
        ("CUASSAY_LAUNCH_BLOCKING", "0", False),
    ],
)
def test_a_value_is_parsed(name: str, text: str, value: object) -> None:
    assert settings.get(name, {name: text}) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CUASSAY_SEED", "-1"),
        ("CUASSAY_SEED", "many"),
        ("CUASSAY_SIM_MEMORY", "1 GB"),
        ("CUASSAY_SIM_MEMORY", "-1GiB"),
        ("CUASSAY_SIM_MEMORY", "inf"),
        ("CUASSAY_SIM_MEMORY", "1GiBB"),
        ("CUASSAY_SIM_MEMORY", "MiB"),
        ("CUASSAY_HANG_SECONDS", "-3"),
        ("CUASSAY_HANG_SECONDS", "nan"),
        ("CUASSAY_LAUNCH_BLOCKING", "perhaps"),
    ],
)
def test_a_bad_value_names_the_variable_and_what_it_may_be(name: str, text: str) -> None:
    with pytest.raises(SettingError, match=rf"{name} must be .*; got '{text}'; correct it or unset it"):
        settings.get(name, {name: text})


def test_a_peers_spelling_is_read_where_ours_is_unset() -> None:
    environ = {"CUDA_LAUNCH_BLOCKING": "1"}

    assert settings.get("CUASSAY_LAUNCH_BLOCKING", environ) is True
    assert settings.get("CUASSAY_LAUNCH_BLOCKING", {**environ, "CUASSAY_LAUNCH_BLOCKING": "0"}) is False


def test_an_unknown_setting_lists_those_that_exist() -> None:
    with pytest.raises(SettingError, match=r"no setting 'CUASSAY_SPEED'; settings: .*CUASSAY_SEED"):
        settings.get("CUASSAY_SPEED")


def test_every_setting_is_described_with_its_source() -> None:
    rows = {row.name: row for row in settings.describe({"CUASSAY_SEED": "5"})}

    assert set(rows) == set(settings.SETTINGS)
    assert (rows["CUASSAY_SEED"].value, rows["CUASSAY_SEED"].source) == (5, "CUASSAY_SEED")
    assert rows["CUASSAY_SIM_DEVICES"].source == "default"


def test_all_that_is_set_by_our_names_can_be_checked_at_once() -> None:
    settings.check({"CUASSAY_SEED": "5", "CUBLAS_WORKSPACE_CONFIG": "the peer's own business"})

    with pytest.raises(SettingError, match="CUASSAY_SIM_DEVICES must be"):
        settings.check({"CUASSAY_SIM_DEVICES": "two"})


def test_a_name_that_is_nearly_a_setting_is_told_from_one_that_is_none() -> None:
    environ = {"CUASSAY_SIM_MEMRY": "1GiB", "CUASSAY_SEED": "5", "CUASSAY_HOME": "/", "SEED": "1"}

    assert settings.misspelt(environ) == {"CUASSAY_SIM_MEMRY": "CUASSAY_SIM_MEMORY"}
