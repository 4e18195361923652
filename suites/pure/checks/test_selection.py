"""Which samples and dtypes a check takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, ops
from cuassay.errors import SpecError
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import selection
from cuassay.testing.generated.selection import (
    _why_not_promoted,
    axes_of,
    by_options,
    few,
    of_most_elements,
    one,
    plainest,
    promotions,
    samples_of,
    why_absent,
)

CPU = Device("cpu")


def spec_of(samples: Any, **declared: Any) -> OpSpec:
    return OpSpec(**{"fn": lambda xp, a, **options: a, "name": "same", "samples": samples, **declared})


def lengths(samples: list[Sample]) -> list[int]:
    return [sample.args[0].values.size for sample in samples]


@pytest.mark.parametrize(
    ("dtypes", "unclaimed", "found"),
    [
        (("float16", "float32", "float64"), (), "float32"),
        (("float64", "float32"), (), "float64"),
        (("float16", "float64"), (), "float64"),
        (("int8", "float16"), (), "int8"),
        (("float32", "float16"), ("float32",), "float16"),
    ],
)
def test_float32_or_float64_is_the_plainest_dtype(
    dtypes: tuple[str, ...], unclaimed: tuple[str, ...], found: str
) -> None:
    spec = spec_of(lambda make: [make(3)], dtypes=dtypes, unclaimed={"cpu": unclaimed})

    assert plainest(spec, CPU) == np.dtype(found)


def test_without_a_dtype_that_runs_the_reasons_are_a_skip() -> None:
    spec = spec_of(lambda make: [make(3)], dtypes=("int8", "uint8"), unclaimed={"cpu": ("int8", "uint8")})

    with pytest.raises(pytest.skip.Exception, match=r"does not claim int8 there; .*does not claim uint8 there"):
        plainest(spec, CPU)


@pytest.mark.parametrize(
    ("options", "length"),
    [({}, 12), ({"most": 12}, 12), ({"most": 11}, 7), ({"most": 1}, 4), ({"axes": 2}, 6), ({"axes": 3}, 12)],
    ids=str,
)
def test_one_sample_is_the_largest_that_fits(options: dict[str, int], length: int) -> None:
    spec = spec_of(lambda make: [make(4), make((2, 3)), make(12), make(7)])

    assert lengths([one(spec, CPU, "float32", **options)]) == [length]


def test_one_sample_is_one_that_the_reference_takes() -> None:
    def picky(a: Any) -> Any:
        if a.size > taken[0]:
            raise ValueError("too long")
        return a

    taken = [9]
    spec = spec_of(lambda make: [make(9), make(20)], reference=picky)

    assert lengths([one(spec, CPU, "float32")]) == [9]
    assert lengths(few(spec, CPU, "float32")) == [9]
    taken[0] = 3
    with pytest.raises(SpecError, match=r"accepts none of its ordinary samples in float32 \(ValueError: too long\)"):
        one(spec, CPU, "float32")


@pytest.mark.parametrize(
    ("count", "longest", "found"),
    [(1, 0, [0]), (5, 1, [0, 1, 2, 3, 4]), (9, 0, [0, 2, 4, 6, 8]), (9, 3, [0, 2, 3, 4, 6, 8])],
)
def test_a_few_samples_are_spread_and_the_longest_is_among_them(count: int, longest: int, found: list[int]) -> None:
    spec = spec_of(lambda make: [make(99 if place == longest else 10 + place) for place in range(count)])

    assert lengths(few(spec, CPU, "float32")) == [99 if place == longest else 10 + place for place in found]


def test_of_each_set_of_options_the_largest_that_fits_is_taken() -> None:
    def samples(make: Any) -> list[Any]:
        given = [(4, 0), (9, 0), (10, 0), (5, 1), (9, 1), (11, 2)]
        return [Sample((make(length),), {"axis": axis}) for length, axis in given]

    spec = spec_of(samples)

    assert lengths(by_options(spec, CPU, "float32", most=9)) == [9, 9]
    assert lengths(by_options(spec, CPU, "float32", most=9, keep=lambda sample: sample.args[0].shape < (9,))) == [4, 5]


def test_no_more_than_six_sets_of_options_are_taken() -> None:
    spec = spec_of(lambda make: [Sample((make(3),), {"axis": axis}) for axis in range(8)])

    assert [sample.kwargs["axis"] for sample in by_options(spec, CPU, "float32", most=3)] == [0, 1, 2, 3, 4, 5]


def test_samples_are_ordered_by_all_of_their_elements() -> None:
    drawn = [Sample((np.ones(5),)), Sample(([np.ones(2), np.ones(4)],)), Sample((np.ones((1, 2, 1)), 3))]

    assert of_most_elements(drawn) == [1, 0, 2]
    assert [axes_of(sample) for sample in (*drawn, Sample((3,)))] == [1, 1, 3, 0]


@pytest.mark.parametrize(
    ("dtypes", "others"),
    [
        (("float32",), {"bool", "int32", "float16"}),
        (("int8",), {"bool", "int32"}),
        (("bool",), {"bool"}),
        (("complex64",), {"bool", "int32", "float16", "complex64"}),
    ],
)
def test_a_function_is_mixed_with_dtypes_that_say_no_more_than_its_own(
    dtypes: tuple[str, ...], others: set[str]
) -> None:
    def samples(make: Any) -> list[Any]:
        mixed = ("bool", "int32", "float16", "complex64")
        return [make(3), *(Sample((make(3, dtype=name),), kind="promotion") for name in mixed)]

    spec = spec_of(samples, dtypes=dtypes)

    assert {str(sample.args[0].dtype) for sample in promotions(spec, CPU, dtypes[0])} == others


def test_own_samples_mix_other_dtypes_where_a_rule_gives_the_dtype_of_the_result() -> None:
    def samples(make: Any) -> list[Any]:
        return [(make(3), make(3)), Sample((make(3), make(3, dtype="float64")), kind="promotion")]

    spec = spec_of(samples, fn=lambda xp, a, b: a + b, dtypes=("float32",), result_dtype=np.result_type)
    default = OpSpec(fn=lambda xp, a, b: a + b, name="sum", dtypes=("float32",), result_dtype=np.result_type)

    assert [[str(one.dtype) for one in sample.args] for sample in promotions(spec, CPU, "float32")] == [
        ["float32", "float64"]
    ]
    assert not list(promotions(default, CPU, "float32"))


@pytest.mark.parametrize(("narrow", "is_skip"), [(1, False), (2, True)])
def test_samples_of_a_dtype_that_a_device_lacks_are_left_out(
    narrow: int, is_skip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = type(devices.capabilities(CPU))
    missing = has.missing
    monkeypatch.setattr(has, "missing", lambda of, name: "no int8" if name == "storage:int8" else missing(of, name))
    dtypes = ("int8", "float32") if narrow == 1 else ("int8", "int8")
    spec = spec_of(lambda make: [make(3 + place, dtype=dtype) for place, dtype in enumerate(dtypes)])

    if is_skip:
        with pytest.raises(pytest.skip.Exception, match=r"^no int8$"):
            list(samples_of(spec, CPU, "float32", "values"))
    else:
        assert lengths(list(samples_of(spec, CPU, "float32", "values"))) == [4]


def test_options_in_another_order_are_the_same_set() -> None:
    spec = spec_of(lambda make: [Sample((make(3),), {"axis": 1, "eps": 2}), Sample((make(4),), {"eps": 2, "axis": 1})])

    assert lengths(by_options(spec, CPU, "float32", most=9)) == [4]


def test_a_sample_without_axes_may_be_the_largest() -> None:
    spec = spec_of(lambda make: [make(()), make(1)])

    assert one(spec, CPU, "float32").args[0].shape == ()
    assert one(spec, CPU, "float32", axes=1).args[0].shape == (1,)


def lacking(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has = type(devices.capabilities(CPU))
    missing = has.missing
    monkeypatch.setattr(has, "missing", lambda of, one: f"no {name}" if one == f"storage:{name}" else missing(of, one))


def test_a_device_must_hold_the_result_of_an_op(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking("bool", monkeypatch)
    sample = Sample((np.ones(3, np.float32), np.ones(3, np.float32)))
    function = spec_of(lambda make: [(make(3), make(3))], fn=lambda xp, a, b: a == b)

    assert why_absent(OpSpec(op=ops.equal, reference=np.equal), CPU, sample) == "no bool"
    assert why_absent(OpSpec(op=ops.add, reference=np.add), CPU, sample) is None
    assert why_absent(function, CPU, sample) is None


def test_a_call_that_an_op_rejects_has_no_result_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking("bool", monkeypatch)
    sample = Sample((np.ones(3, np.float32), np.ones(4, np.float32)))

    assert why_absent(OpSpec(op=ops.equal, reference=np.equal), CPU, sample) is None


def test_a_device_must_hold_the_dtype_that_a_call_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking("int8", monkeypatch)
    spec = spec_of(lambda make: [make(3)])

    assert why_absent(spec, CPU, Sample((np.ones(3),), {"dtype": "int8"})) == "no int8"
    assert why_absent(spec, CPU, Sample((np.ones(3),), {"weight": np.ones(3, np.int8)})) == "no int8"
    assert why_absent(spec, CPU, Sample((np.ones(3),), {"dtype": None})) is None


def test_the_dtype_to_which_an_op_promotes_must_be_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        devices, "why_unsupported", lambda op, device, name: asked.append(name) or f"no {op.name} in {name}"
    )
    args = (np.ones(3, np.float16), np.ones(3, np.float32))

    assert _why_not_promoted(OpSpec(op=ops.add, reference=np.add), CPU, Sample(args)) == "no add in float32"
    assert _why_not_promoted(spec_of(lambda make: [make(3)]), CPU, Sample(args)) is None
    assert asked == ["float32"]


@pytest.mark.parametrize(
    ("names", "has_default_samples", "is_covered"),
    [(("float32", "float64"), True, True), (("float32",), True, False), (("float32",), False, True)],
    ids=["declared", "not declared", "in a sample of the user"],
)
def test_dtype_of_a_promotion_is_covered(names: tuple[str, ...], has_default_samples: bool, is_covered: bool) -> None:
    spec = spec_of(lambda make: [make(3)], dtypes=names, result_dtype=lambda *given: given[0])
    object.__setattr__(spec, "has_default_samples", has_default_samples)

    assert selection._is_covered(spec, np.dtype("float32"), np.dtype("float64")) is is_covered


def test_what_a_device_lacks_is_left_out_and_skipped_only_if_that_is_all() -> None:
    assert list(selection._available([(1, None), (2, "no float8"), (3, None)])) == [1, 3]
    assert list(selection._available([])) == []
    with pytest.raises(pytest.skip.Exception, match="no float8; no bool"):
        list(selection._available([(1, "no float8"), (2, "no bool"), (3, "no float8")]))
