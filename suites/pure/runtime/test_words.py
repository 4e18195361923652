"""Devices, capabilities and precision modes: the words everything else is said in."""

from __future__ import annotations

import pytest

from cuassay import Capabilities, Device, current_precision, parse_requirement, precision, set_default_precision
from cuassay.core.capability import Answer, absent, present
from cuassay.core.units import format_bytes
from cuassay.errors import ArgumentError, CapabilityError, CapabilityNameError, DeviceError


@pytest.mark.parametrize(
    ("name", "kind", "index"), [("cpu", "cpu", 0), ("cuda:1", "cuda", 1), ("my_kind:10", "my_kind", 10)]
)
def test_a_name_is_a_kind_and_an_index(name: str, kind: str, index: int) -> None:
    device = Device(name)

    assert (device.kind, device.index, str(device)) == (kind, index, f"{kind}:{index}")
    assert device == Device(kind, index) == Device(device)
    assert {device: 1}[Device(f"{kind}:{index}")] == 1


@pytest.mark.parametrize("name", ["", "cuda:", "cuda:-1", "CUDA:0", "cuda:0:1", "0", None])
def test_what_is_no_name_is_refused_in_words(name: str) -> None:
    with pytest.raises(DeviceError, match=r"does not name a device.*; give 'kind' or 'kind:index'"):
        Device(name)


@pytest.mark.parametrize(
    ("text", "name", "minimum"),
    [
        ("graphs", "graphs", None),
        ("bfloat16", "bfloat16", None),
        ("matmul:float16", "matmul:float16", None),
        ("memory>=2GiB", "memory", 2 * 2**30),
        ("memory >= 512 MiB", "memory", 512 * 2**20),
        ("compute>=8.0", "compute", 8.0),
    ],
)
def test_a_requirement_is_read(text: str, name: str, minimum: float | None) -> None:
    requirement = parse_requirement(text)

    assert (requirement.name, requirement.minimum) == (name, minimum)


@pytest.mark.parametrize("text", ["graph", "float12", "convolution:float32", "graphs>=2"])
def test_an_unknown_requirement_lists_what_exists(text: str) -> None:
    with pytest.raises(CapabilityNameError, match=r"names no capability.*; features: streams"):
        parse_requirement(text)


@pytest.mark.parametrize("text", ["memory", "compute"])
def test_a_quantity_alone_needs_a_number(text: str) -> None:
    with pytest.raises(CapabilityNameError, match=f"is a quantity and needs a number; write {text}>=NUMBER"):
        parse_requirement(text)


@pytest.mark.parametrize("text", ["memory>=2GB", "memory>2GiB", "compute=9", "count>=two"])
def test_a_quantity_written_otherwise_says_how_it_is_written(text: str) -> None:
    name = text.partition(">")[0].partition("=")[0]

    with pytest.raises(CapabilityNameError, match=f"write {name}>=NUMBER, bytes with one of KiB, MiB"):
        parse_requirement(text)


def _capabilities(**answers: Answer) -> tuple[Capabilities, list[str]]:
    asked: list[str] = []

    def probe(name: str) -> Answer:
        asked.append(name)
        return answers.get(name.replace(":", "_"), present())

    return Capabilities(Device("sim"), probe), asked


def test_a_probe_is_asked_once() -> None:
    capabilities, asked = _capabilities()

    assert all(capabilities.answer("graphs") for _ in range(3))
    assert asked == ["graphs"]


def test_a_no_is_kept_too() -> None:
    capabilities, asked = _capabilities(graphs=absent("nothing to capture"))

    assert not any(capabilities.answer("graphs") for _ in range(3))
    assert asked == ["graphs"]


def test_what_is_missing_is_said_with_its_reason() -> None:
    capabilities, _ = _capabilities(graphs=absent("nothing to capture"), memory=present(2**30))

    assert capabilities.missing("graphs") == "sim:0: no graphs: nothing to capture"
    assert capabilities.missing("memory>=2GiB") == "sim:0: memory>=2GiB needed; it has 1 GiB"
    assert capabilities.missing("memory>=1GiB") is None
    with pytest.raises(CapabilityError, match="nothing to capture; sim:0: memory"):
        capabilities.require(["graphs", "memory>=2GiB"])


def test_a_bare_dtype_needs_storage_elementwise_and_reduction() -> None:
    capabilities, _ = _capabilities(reduction_float16=absent("no adders"), matmul_float64=absent("no tensor cores"))

    assert capabilities.missing("float16") == "sim:0: no float16: no adders"
    assert capabilities.missing("float64") is None


@pytest.mark.parametrize(("nbytes", "shown"), [(0, "0 B"), (1023, "1023 B"), (2**20, "1 MiB"), (3 * 2**29, "1.5 GiB")])
def test_bytes_are_shown_in_the_largest_unit(nbytes: int, shown: str) -> None:
    assert format_bytes(nbytes) == shown


def test_a_precision_holds_inside_its_block_and_nests() -> None:
    with precision("tf32"):
        with precision("bf16x9"):
            assert current_precision() == "bf16x9"
        assert current_precision() == "tf32"
    assert current_precision() == "ieee"


def test_the_default_precision_is_the_processes() -> None:
    former = set_default_precision("tf32")
    try:
        assert current_precision() == "tf32"
    finally:
        set_default_precision(former)
    assert current_precision() == former == "ieee"


def test_an_unknown_precision_lists_the_modes() -> None:
    with pytest.raises(ArgumentError, match=r"'fp8' is not a precision mode; give one of ieee, tf32"):
        set_default_precision("fp8")  # type: ignore[arg-type]
