"""A test imports public names, what every test may use, and internals of what its folder tests.

``suites/README.md`` says which folder tests what; the table here is the same in the names of modules.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

SUITES = Path(__file__).parents[2]

#: Each public module and its names.
PUBLIC = tomllib.loads((SUITES / "data/public_names.toml").read_text(encoding="utf-8"))

#: What tests of any subject use: the words of `core` and `arrays`, commands, the face that has torch's names, records,
#: a declared operation, samples and comparisons.
COMMON = (
    "cuassay.core", "cuassay.arrays", "cuassay.cli", "cuassay.cuda", "cuassay.results", "cuassay.ops.registry",
    "cuassay.testing.compare", "cuassay.testing.opspec", "cuassay.testing.own_specs", "cuassay.testing.samples",
    "cuassay.testing.specs", "cuassay_reports.command",
)  # fmt: skip

#: Folder of a subject, or a file of its own, to what it tests, without ``cuassay.``
SUBJECTS = {
    "allocator": "memory devices.cuda.memory",
    "autograd": "autograd ops",
    "benchmarks": "benchmarking tune devices.cuda.driver.nvml testing.presence",
    "blas": "ops devices.cuda.blas devices.cuda.launch tune testing benchmarking.product_peers benchmarking.operands",
    # Faults are planted in what is inside.
    "checks": "testing mutation ops benchmarking.cases devices.sim devices.cuda",
    "fleet": "fleet judging.referee",  # which judges on a fleet, too
    "gate": "benchmarking",
    "harness": "benchmarking",  # its conftest
    "nvidia": "devices.cuda",  # its conftest
    "jit": "jit",
    "judging": "judging mutation.stock devices.cuda.driver devices.cuda.launch",
    "graphs": "devices.sim devices.cuda observe",  # whatever takes part in a capture
    "launch": "devices.cuda.launch devices.cuda.ops jit testing.generated",
    "timeline": "observe devices.sim devices.cuda.activity",
    "meta": "testing.presence",
    "memory": "memory observe devices.cuda.memory devices.cuda.driver testing.guards",
    "memory_stress": "memory devices.cuda.memory devices.cuda.driver",
    "order": "order",
    "ops": "ops devices.cpu devices.cuda.ops devices.cuda.blas.plan_cache",
    "package": "commands",
    "plugin": "testing benchmarking.ledger",
    "random": "devices.cuda.ops devices.cuda.driver",
    "runtime": "testing benchmarking tune devices.cuda",  # every handle, and two devices in all that they do
    "sim": "devices.sim observe ops order",
    "sim_arrays": "devices.sim",
    "speed": "benchmarking memory devices.cuda",
    "streams": "observe devices.cuda memory.stream_pool",
    "training": "amp ops devices.cuda.ops",
    "tuning": "tune devices.cuda.blas devices.cuda.driver",
    "records": "benchmarking observe memory.snapshot",
    "reports": "commands",
    "runs": "benchmarking",
    "shared": "tune jit judging devices.cuda.blas devices.sim memory observe testing.generated",
}

#: Folders that also test what reads results.
READERS = {"benchmarks", "harness", "judging", "plugin", "records", "reports", "runs"}


def files() -> list[Path]:
    """The files of the suites but data, which is imported by name."""
    return [path for path in sorted(SUITES.rglob("*.py")) if "data" not in path.relative_to(SUITES).parts[:1]]


def imported(path: Path) -> Iterator[str]:
    """What of ours a file imports, as ``module.name``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("cuassay"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cuassay"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def may_import(path: Path, name: str) -> bool:
    """Whether the file may: `name` is public, common, or an internal of what its folder tests."""
    module, _, attribute = name.rpartition(".")
    if name in PUBLIC or attribute in PUBLIC.get(module, ()):
        return True
    *_, folder, _ = path.relative_to(SUITES.parent).parts
    allowed = [*COMMON, *(f"cuassay.{room}" for room in SUBJECTS.get(folder, "").split())]
    if folder in READERS:
        allowed.append("cuassay_reports")
    return any(f"{name}.".startswith(f"{room}.") for room in allowed)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SUITES)))
def test_imports_internals_only_of_what_its_folder_tests(path: Path) -> None:
    assert [name for name in imported(path) if not may_import(path, name)] == []


@pytest.mark.parametrize(
    ("file", "name", "allowed"),
    [
        ("pure/sim/test_it.py", "cuassay.devices.sim.calls.Call", True),
        ("pure/sim/test_it.py", "cuassay.memory.CachingAllocator", True),
        ("pure/sim/test_it.py", "cuassay.memory.blocks.Block", False),
        ("pure/sim/test_it.py", "cuassay.devices.simple", False),
    ],
)
def test_internal_of_another_room_is_found(file: str, name: str, allowed: bool) -> None:
    assert may_import(SUITES / file, name) == allowed
