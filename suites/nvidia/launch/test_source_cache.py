"""The compiler's front: names, errors, resources, and what the disk remembers; no GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

from cuassay.devices.cuda.launch import source
from cuassay.errors import CompileError, LibraryNotFoundError

SCALE = """
template <typename T> __global__ void scale(T* a, T factor, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) a[i] *= factor;
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    try:
        source.compiler_version()
        source.header_directory()
    except LibraryNotFoundError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("CUASSAY_CACHE_DIR", str(tmp_path))
    return tmp_path


def build(text: str = SCALE, names: Sequence[str] = ("scale<float>",), **options: Any) -> Any:
    return source.compile_source(text, name_expressions=list(names), arch="sm_90", **options)


def forbid_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> NoReturn:
        raise AssertionError("compiled again")

    monkeypatch.setattr(source, "_compile", refuse)


def test_each_name_expression_gets_its_lowered_name_and_resources() -> None:
    found = build(names=("scale<float>", "scale<double>"))

    assert set(found.names) == {"scale<float>", "scale<double>"}
    assert set(found.resources) == set(found.names.values())
    assert found.cubin.startswith(b"\x7fELF")


def test_a_spilling_kernel_is_reported_as_such() -> None:
    spilling = """
    __global__ void __launch_bounds__(1024, 2) spill(float* a) {
        float v[64];
        for (int i = 0; i < 64; ++i) v[i] = a[i * threadIdx.x];
        for (int r = 0; r < a[0]; ++r) for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i + 1) % 64] + r;
        for (int i = 0; i < 64; ++i) a[i * threadIdx.x] = v[i];
    }"""

    used = build(spilling, ["spill"]).resources["_Z5spillPf"]

    assert used.stack > 0
    assert used.registers <= 32


def test_a_second_build_comes_from_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    first = build()
    forbid_compiling(monkeypatch)

    assert build() == first


def test_a_program_compiled_again_has_its_resources_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC has a cache of its own, which gives no log."""
    first = build()
    monkeypatch.setenv("CUASSAY_CACHE_DIR", str(tmp_path / "another"))

    assert build().resources == first.resources != {}


@pytest.mark.parametrize("keep", [0, 10, 100], ids=["empty", "digest torn", "payload torn"])
def test_a_torn_cache_file_is_compiled_again(cache: Path, keep: int) -> None:
    first = build()
    (path,) = (cache / "kernels").iterdir()
    path.write_bytes(path.read_bytes()[:keep])

    assert build().cubin == first.cubin
    assert path.stat().st_size > 100


def test_a_flipped_bit_in_the_cubin_is_noticed(cache: Path) -> None:
    first = build()
    (path,) = (cache / "kernels").iterdir()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    assert build().cubin == first.cubin


def test_a_cache_folder_that_cannot_be_made_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CUASSAY_CACHE_DIR", str(tmp_path / "file"))

    assert build().names


def test_an_edited_header_changes_the_key(tmp_path: Path) -> None:
    header = tmp_path / "factor.h"
    text = '#include "factor.h"\n' + SCALE
    header.write_text("#define FACTOR 1\n")
    before = source.cache_key(text, name_expressions=["scale<float>"], arch="sm_90", include=[tmp_path])
    header.write_text("#define FACTOR 2\n")

    assert before != source.cache_key(text, name_expressions=["scale<float>"], arch="sm_90", include=[tmp_path])


@pytest.mark.parametrize(
    "change",
    [{"arch": "sm_80"}, {"options": ["--use_fast_math"]}, {"name_expressions": ["scale<double>"]}],
    ids=["arch", "options", "names"],
)
def test_what_the_result_depends_on_is_in_the_key(change: dict[str, Any]) -> None:
    same = {"name_expressions": ["scale<float>"], "arch": "sm_90"}

    assert source.cache_key(SCALE, **same) != source.cache_key(SCALE, **(same | change))


def test_a_compile_error_shows_the_line_and_carries_the_log() -> None:
    with pytest.raises(CompileError, match=r'identifier "b" is undefined\s+2 \| a\[0\] = b;') as caught:
        build("__global__ void f(int* a) {\n  a[0] = b;\n}", ["f"])

    assert "1 error detected" in caught.value.log


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(CompileError, match="has no kernel 'scales<float>'"):
        build(names=["scales<float>"])


@pytest.mark.parametrize(("capability", "arch"), [((9, 0), "sm_90"), ((8, 9), "sm_89"), ((7, 5), "sm_75")])
def test_the_architecture_is_the_devices(capability: tuple[Any, ...], arch: str) -> None:
    assert source.architecture(*capability) == arch


def test_a_card_older_than_the_compiler_knows_is_refused() -> None:
    with pytest.raises(CompileError, match=r"compute capability 5\.2; it knows sm_75"):
        source.architecture(5, 2)
