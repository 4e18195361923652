"""Which ordinary calls are tried with one wrong row."""

from __future__ import annotations

from cuassay import Device
from cuassay.testing import OpSpec
from cuassay.testing.generated.partial_errors import ordinary_samples


def test_ordinary_samples_of_rows_have_at_most_nine_thousand_elements() -> None:
    spec = OpSpec(
        fn=lambda xp, a: a, name="same",
        samples=lambda make: [make(9), make((2, 4500)), make((1, 9001)), *(make((2, n)) for n in range(1, 6))],
    )  # fmt: skip
    found = ordinary_samples(spec, Device("cpu"), "float32")

    assert [sample.args[0].values.size for sample in found] == [9000, 2, 4, 6]
