"""``cuassay tune`` where there is nothing to tune on: what is said, and how it ends."""

from __future__ import annotations

import pytest

from cuassay.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "square", "--device", "sim"], "sim:0 computes a product in one way only; tune on a CUDA device"),
        (["--shapes", "square", "--device", "cpu"], "cpu:0 computes a product in one way only"),
        (["--shapes", "square", "--device", "cuda:99"], "cuda:99 "),
    ],
    ids=["sim", "cpu", "absent"],
)
def test_a_device_without_a_choice_is_told(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["tune", *arguments]) == 2

    assert f"cuassay tune: {message}" in capsys.readouterr().err


def test_the_public_products_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--help"])

    assert {"deepseek_v3", "llama3_8b", "square"} <= set(capsys.readouterr().out.replace(",", " ").split())
