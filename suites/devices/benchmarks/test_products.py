"""The command that measures public shapes: operands are those of the shape, rows say all, and a cut run goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import Device, ops, to_host
from cuassay.benchmarking import product_peers, products
from cuassay.benchmarking.operands import Arena, Operands, elements_of
from cuassay.benchmarking.products import cases, main
from cuassay.benchmarking.timing import Timing
from cuassay.core.precision import matmul_options, set_matmul_options
from cuassay.cuda import tunable
from cuassay.errors import ArgumentError
from cuassay.ops import interpose
from cuassay.results.record import Recorder
from cuassay.tune.shapes import GemmShape

SHAPES = {
    "gpt2_124m_nanogpt": {"nk": [[24, 16]], "m": [32]},
    "llama3_8b": {"nk": [[16, 24]], "m": [1, 200]},
}


@pytest.fixture
def shapes(tmp_path: Path) -> str:
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps(SHAPES))
    return str(path)


def rows_of(path: Path, record: str = "time") -> list[dict[str, Any]]:
    return [row for row in map(json.loads, path.read_text().splitlines()) if row["record"] == record]


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_operands_are_random_apart_and_lie_as_the_layout_says(device: Device, layout: str) -> None:
    shape, sets = GemmShape(m=3, n=5, k=130, layout=layout, dtype="float32", out_dtype="float32"), 4
    of_inputs, of_results = elements_of(shape, sets)

    made = Operands.of(shape, sets, Arena(device, "float32", of_inputs, seed=1), Arena(device, "float32", of_results))
    for a, b, out in zip(made.a, made.b, made.out, strict=True):
        ops.mm(a, b, out=out)

    lies = ["NT"[bool(one.strides[0] < one.strides[1])] for one in (made.a[0], made.b[0])]
    assert "".join(lies) == layout
    for a, b, out in zip(made.a, made.b, made.out, strict=True):
        np.testing.assert_allclose(to_host(out), to_host(a) @ to_host(b), rtol=1e-5, atol=1e-5)
    assert len({float(to_host(out)[0, 0]) for out in made.out}) == sets


def test_an_arena_without_room_is_refused(device: Device) -> None:
    with pytest.raises(ArgumentError, match="has no room for"):
        Arena(device, "float32", 100).cut(1, 11, 10)


def test_each_shape_has_its_groups(shapes: str) -> None:
    found = {(str(shape), shape.dtype): groups for shape, groups in cases(shapes).items()}

    assert found == {
        ("32x24x16 NT", "bfloat16"): ("gpt2_124m_nanogpt", "m<=128"),
        ("32x24x16 NT", "float16"): ("gpt2_124m_nanogpt_float16", "m<=128"),
        ("1x16x24 NT", "bfloat16"): ("llama3_8b", "m<=128"),
        ("200x16x24 NT", "bfloat16"): ("llama3_8b",),
    }


def test_a_few_rows_are_up_to_128_and_bytes_are_of_each_dtype(tmp_path: Path) -> None:
    (tmp_path / "shapes.json").write_text(json.dumps({"llama3_8b": {"nk": [[16, 24]], "m": [128, 129]}}))

    assert {shape.m: "m<=128" in groups for shape, groups in cases(tmp_path / "shapes.json").items()} == {
        128: True,
        129: False,
    }
    assert products._nbytes(GemmShape(m=2, n=3, k=5, out_dtype="float32")) == 2 * (2 * 5 + 5 * 3) + 4 * 2 * 3


def test_matrices_begin_where_an_allocators_do(device: Device) -> None:
    region = Arena(device, "bfloat16", 1000).cut(3, 10, 13)

    assert (region.start, region.step) == (0, 256)


def test_several_sets_have_room_and_the_options_stay(
    device: Device, shapes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within: set[Any] = set()
    monkeypatch.setattr(products, "sets_for", lambda nbytes, device: 3)
    peers = product_peers.passes
    monkeypatch.setattr(product_peers, "passes", lambda *asked: (within.add(matmul_options()), peers(*asked))[1])
    changed = {"bf16_reduced_precision_reduction": False, "fp16_reduced_precision_reduction": False}
    former = set_matmul_options(**changed)
    try:
        status = main([shapes, "--record", str(tmp_path / "rows.jsonl"), "--device", str(device)])
    finally:
        kept = set_matmul_options(**asdict(former))

    assert status == 0
    assert asdict(kept).items() >= changed.items()
    assert within == {replace(kept, **dict.fromkeys(changed, True))}


def test_only_the_lists_asked_for(shapes: str) -> None:
    assert {groups[0] for groups in cases(shapes, ["llama3_8b"]).values()} == {"llama3_8b"}


def test_each_shape_leaves_a_row_an_implementation(device: Device, shapes: str, tmp_path: Path) -> None:
    record = tmp_path / "rows.jsonl"

    assert main([shapes, "--record", str(record), "--device", str(device), "--list", "llama3_8b"]) == 0

    rows = rows_of(record)
    ours = [row for row in rows if row["implementation"] == "cuassay"]
    assert sorted(row["case"] for row in ours) == ["1x16x24 NT", "200x16x24 NT"]
    assert {row["case"] for row in rows if row["implementation"] == "cuassay untuned"} == {row["case"] for row in ours}
    assert all(row["flops"] > 0 and row["bytes"] > 0 and row["choice"] for row in ours)
    assert [row["device"] for row in rows_of(record, "device")] == [str(device)]
    ceilings = set() if device.kind == "sim" else {"bandwidth", "compute", "launch"}  # a model has none
    assert {row["limit"] for row in rows_of(record, "limit")} == ceilings


def test_a_cut_run_goes_on_as_the_same_run(device: Device, shapes: str, tmp_path: Path) -> None:
    record = tmp_path / "rows.jsonl"
    asked = [shapes, "--record", str(record), "--device", str(device)]

    assert main([*asked, "--list", "llama3_8b"]) == 0
    before, limits = len(rows_of(record)), rows_of(record, "limit")
    assert main(asked) == 0

    cases_of_ours = [(row["case"], row["dtype"]) for row in rows_of(record) if row["implementation"] == "cuassay"]
    assert len(cases_of_ours) == len(set(cases_of_ours)) == 4
    assert len(rows_of(record)) > before
    assert rows_of(record, "limit") == limits  # those of the device, once
    assert len(rows_of(record, "run")) == len({row["run"] for row in rows_of(record)}) == 1


def test_what_another_device_measured_is_measured_here_too(shapes: str, tmp_path: Path) -> None:
    record = tmp_path / "rows.jsonl"

    for device in ("cpu", "sim"):
        assert main([shapes, "--record", str(record), "--device", device, "--list", "llama3_8b"]) == 0

    ours = [row["device"] for row in rows_of(record) if row["implementation"] == "cuassay"]
    assert sorted(ours) == ["cpu:0"] * 2 + ["sim:0"] * 2
    assert [row["device"] for row in rows_of(record, "device")] == ["cpu:0", "sim:0"]


def test_what_was_measured_in_one_dtype_is_measured_in_the_other(shapes: str, tmp_path: Path) -> None:
    record = tmp_path / "rows.jsonl"
    done = {"case": "32x24x16 NT", "dtype": "bfloat16", "device": "cpu:0", "implementation": products.OURS}
    with Recorder(record) as recorder:
        recorder.write_time(benchmark="mm", median=1.0, n=1, clock="host", **done)

    assert main([shapes, "--record", str(record), "--device", "cpu", "--list", "gpt2_124m_nanogpt"]) == 0

    ours = [row["dtype"] for row in rows_of(record) if row["implementation"] == products.OURS]
    assert ours == ["bfloat16", "float16"]


def test_a_wider_result_is_measured_once_too(tmp_path: Path) -> None:
    wider = {"nk_bf16_out": [], "nk_fp32_out": [[16, 24]], "m_forward": [4], "m_backward": [], "readme_2025_m": []}
    (tmp_path / "shapes.json").write_text(json.dumps({"deepseek_v3": wider}))
    record = tmp_path / "rows.jsonl"

    for _ in range(2):
        assert main([str(tmp_path / "shapes.json"), "--record", str(record), "--device", "cpu"]) == 0

    ours = [row for row in rows_of(record) if row["implementation"] == "cuassay"]
    assert [(row["case"], row["dtype"]) for row in ours] == [("4x16x24 NT to float32", "bfloat16")]


@pytest.mark.parametrize("largest", [0, 1], ids=["first", "last"])
def test_there_is_room_for_the_largest_wherever_it_comes(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    shapes = [GemmShape(m=2, n=3, k=5), GemmShape(m=20, n=30, k=50)]
    if largest == 0:
        shapes.reverse()
    made = []
    for seed in ("5", "5", "6"):
        monkeypatch.setenv("CUASSAY_SEED", seed)
        made.append(products._Arenas(Device("cpu"), shapes).operands(shapes[largest]))

    assert [operands.a[0].shape for operands in made] == [(20, 50)] * 3
    assert (made[0].a[0] == made[1].a[0]).all()
    assert (made[0].a[0] != made[2].a[0]).any()


# ------------------------------------------------------------------------------------------------ how it is measured


class Switches:
    """What `cuassay.cuda.tunable` keeps, without CUDA."""

    def __init__(self, *, enabled: bool, tuning: bool) -> None:
        self.enabled, self.tuning = enabled, tuning

    def enable(self, value: bool) -> None:
        self.enabled = value

    def tuning_enable(self, value: bool) -> None:
        self.tuning = value

    def is_enabled(self) -> bool:
        return self.enabled

    def tuning_is_enabled(self) -> bool:
        return self.tuning


def test_the_first_call_is_tuned_and_each_pass_is_as_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, device, seen = GemmShape(m=2, n=3, k=5, dtype="float32", out_dtype="float32"), Device("cpu"), []
    monkeypatch.setattr(products, "sets_for", lambda nbytes, device: 4)
    operands = products._Arenas(device, [shape]).operands(shape)
    tuner = products._Tuner(device, 0)
    tuner._tunable = switches = Switches(enabled=False, tuning=True)

    def rotated(passes: Any, sets: int, device: Device, live: Any) -> dict[str, Timing]:
        for name, run in passes.items():
            seen.append((name, sets))
            run()
        return dict.fromkeys(passes, Timing((1.0,), (), "host", "cold"))

    def watch(call: ops.Call, proceed: Any) -> Any:
        seen.append((switches.enabled, switches.tuning))
        return proceed(call)

    monkeypatch.setattr(products, "rotate", rotated)
    monkeypatch.setattr(product_peers, "passes", lambda operands, device: {})
    with interpose(watch):
        products._timings(operands, device, tuner)

    assert seen == [
        *[(True, True)] * 2,  # the call that is tuned, and the one that tells the choice
        *[("cuassay", 4), *[(True, False)] * 4],
        *[("cuassay untuned", 4), *[(False, False)] * 4],
    ]
    assert (switches.enabled, switches.tuning) == (False, True)


def test_tuning_takes_so_many_milliseconds_and_none_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(tunable, "set_max_tuning_duration", asked.append)

    tuners = [products._Tuner(Device(name), ms) for name, ms in (("cuda", 500), ("cuda", 0), ("cpu", 500))]

    assert asked == [500]
    assert [tuner._tunable is tunable for tuner in tuners] == [True, False, False]


def test_a_line_says_what_ours_took_and_how_the_best_peer_did() -> None:
    micros = {"cuassay": 2.0, "cuassay untuned": 1.0, "torch": 3.0, "cupy": 4.0}
    timings = {name: Timing((value * 1e-6,), (), "device", "cold") for name, value in micros.items()}
    found = products._Measured(timings, "cuBLASLt", 0.25)

    assert products._line(GemmShape(m=100, n=100, k=100), found, 1.5) == (
        "100x100x100 NT bfloat16: 2.00 us, 1 TFLOP/s, 1.500 x torch; cuBLASLt; tuned in 0.25 s of 1.50"
    )


def test_a_shape_that_fails_takes_no_other_with_it(
    device: Device, shapes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(operands: Operands, device: Device) -> dict[str, Any]:
        if operands.shape.m == 1:
            raise RuntimeError("no such kernel")
        return {}

    monkeypatch.setattr(product_peers, "passes", fail)
    record = tmp_path / "rows.jsonl"

    assert main([shapes, "--record", str(record), "--device", str(device), "--list", "llama3_8b"]) == 1

    assert {row["case"] for row in rows_of(record)} == {"200x16x24 NT"}
    assert "1x16x24 NT bfloat16: RuntimeError: no such kernel" in capsys.readouterr().out


def test_of_a_shape_in_which_the_run_is_cut_there_is_no_row_until_it_goes_on(
    device: Device, shapes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record, peers = tmp_path / "rows.jsonl", product_peers.passes
    asked = [shapes, "--record", str(record), "--device", str(device), "--list", "llama3_8b"]

    def cut(operands: Operands, device: Device) -> dict[str, Any]:
        if operands.shape.m == 200:
            raise SystemExit(143)
        return peers(operands, device)

    with monkeypatch.context() as patch:
        patch.setattr(product_peers, "passes", cut)
        with pytest.raises(SystemExit):
            main(asked)
    assert {row["case"] for row in rows_of(record)} <= {"1x16x24 NT"}
    assert "200x16x24 NT bfloat16 was cut: no row of it is written" in capsys.readouterr().out

    assert main(asked) == 0
    found = [(row["case"], row["implementation"]) for row in rows_of(record)]
    assert len(found) == len(set(found)) == 2 * len({name for _, name in found})


def test_no_shape_is_begun_after_the_time_is_over(
    device: Device, shapes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "rows.jsonl"

    assert main([shapes, "--record", str(record), "--device", str(device), "--seconds", "0"]) == 0

    assert rows_of(record) == []
    assert "4 shapes are left" in capsys.readouterr().out


def test_a_file_that_gives_no_shapes_is_told(
    device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shapes.json").write_text("{}")

    asked = [str(tmp_path / "shapes.json"), "--record", str(tmp_path / "rows.jsonl"), "--device", str(device)]
    assert main(asked) == 2

    assert "gives no shapes" in capsys.readouterr().err
