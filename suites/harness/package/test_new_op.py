"""An op added as a newcomer adds it: six files, and an error at every half step that names the next one.

The steps are those of the page "Add an operation"; they are taken in a copy of the package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuassay import cuda

ROOT = Path(__file__).resolve().parents[3]
CATALOG = "backend/cuassay/ops/catalog.py"
CPU = "backend/cuassay/devices/cpu/elementwise.py"
KERNELS = "backend/cuassay/devices/cuda/kernels/elementwise.cu"
SPECS = "backend/cuassay/testing/specs/elementwise.py"
FAULTS = "suites/harness/checks/test_planted_faults.py"
NAMES = "suites/data/public_names.toml"

#: Step to the file, a line that is there, and what is written before it.
STEPS = {
    "declare": (
        CATALOG,
        "\nsoftmax = declare(",
        """
softsign = declare(
    "softsign(a) -> out",
    shape=shapes.same("a"),
    dtypes=(*FP8, *FLOATS),
    op_class="elementwise",
    doc="``a / (1 + |a|)``.",
)
""",
    ),
    "export": (CATALOG, '    "solve",\n    "sqrt",', '    "softsign",\n'),
    "cpu": (
        CPU,
        '        "relu": relu,',
        """        "softsign": softsign,
""",
    ),
    "cpu function": (
        CPU,
        "def copy(",
        """def softsign(a: Array, *, out: Array) -> None:
    x = widened(a, compute_dtype(out.dtype))
    out[...] = (x / (1 + np.abs(x))).astype(out.dtype, copy=False)


""",
    ),
    "cuda": (
        KERNELS,
        "struct Relu {",
        """struct Softsign {
    __device__ static float of(float a) { return a / (1.0f + fabsf(a)); }
    __device__ static double of(double a) { return a / (1.0 + fabs(a)); }
};
""",
    ),
    "spec": (
        SPECS,
        "    OpSpec(\n        op=ops.gelu,",
        """    OpSpec(
        op=ops.softsign, reference=lambda a: a / (1 + np.abs(a)), error_inputs=not_for_bool, bench=activations,
        work=one_flop,
    ),
""",
    ),
    "faults": (
        FAULTS,
        '    Fault("gelu", "erf and tanh swapped"',
        """    Fault("softsign", "tanh", "values", "float32", instead(np.tanh)),
    Fault("softsign", "strides", "layouts", "float32", strides_ignored),
""",
    ),
    "names": (NAMES, '    "solve",\n    "sqrt",', '    "softsign",\n'),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("backend", "reports/cuassay_reports", "suites/harness", "suites/pure", "suites/shared"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "suites/data").mkdir()
    for file in ("pyproject.toml", "conftest.py", NAMES):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def take(copy: Path, *steps: str) -> None:
    for step in steps:
        name, before, text = STEPS[step]
        path = copy / name
        source = path.read_text(encoding="utf-8")
        assert source.count(before) == 1, f"{name} has changed: the step {step!r} writes before {before!r}"
        path.write_text(source.replace(before, text + before), encoding="utf-8")


def run(copy: Path, *command: str) -> tuple[int, str]:
    """Run Python in `copy`; gives the exit status and all that it printed."""
    paths = [
        str(copy / "backend"),
        str(copy / "reports"),
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    of_this_run = [name for name in os.environ if name.startswith(("CUASSAY_", "PYTEST_")) and name != "PYTEST_ADDOPTS"]
    kept = {name: value for name, value in os.environ.items() if name not in of_this_run}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env=kept | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout


LOAD = ("-c", "import numpy as np; from cuassay import ops; ops.relu(np.ones(3, np.float32))")
CALL = ("-c", "import numpy as np; from cuassay import ops; ops.softsign(np.ones(3, np.float32))")
TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", "cpu", "--device", "sim", "--benchmark-disable")
SPECS_COMPLETE = (*TESTS, "suites/pure/checks/test_opspec.py", "-k", "every_declared_op_has_a_spec")
SHARED = (*TESTS, "suites/pure/package/test_names.py", "suites/pure/package/test_module_sizes.py")
FAULTS_COMPLETE = (*TESTS, FAULTS, "-k", "two_planted_faults and softsign")


@pytest.mark.parametrize(
    ("steps", "command", "message"),
    [
        (["cpu function", "cpu"], LOAD, "no op is named 'softsign'; declare it with cuassay.ops.declare"),
        (
            ["declare"],
            CALL,
            "softsign is declared in cuassay/ops/catalog.py, but its __all__ does not list it; add it there",
        ),
        (["declare", "export"], CALL, "softsign has no kernel for float32 on cpu"),
        (["declare", "export"], CALL, "register one with cuassay.ops.implement"),
        (
            ["declare", "export", "cpu function", "cpu"],
            SPECS_COMPLETE,
            "declare an OpSpec for softsign in backend/cuassay/testing/specs",
        ),
        (
            ["declare", "export", "cpu function", "cpu", "spec"],
            FAULTS_COMPLETE,
            "softsign has 0 planted faults; add rows Fault('softsign', what, check, dtype, plant)",
        ),
        (
            ["declare", "export"],
            SHARED,
            "cuassay.ops has new names ['softsign'] and lacks []; if that is meant, change",
        ),
    ],
)
def test_a_half_step_is_an_error_that_names_the_next(
    copy: Path, steps: list[str], command: tuple[str, ...], message: str
) -> None:
    take(copy, *steps)

    status, printed = run(copy, *command)

    assert status != 0
    assert message in " ".join(printed.split())


def test_six_files_make_an_op_that_is_tested_on_each_device(copy: Path) -> None:
    take(copy, *STEPS)
    assert len({file for file, _, _ in STEPS.values()}) <= 6
    device = ("--device", "cuda:0") if cuda.is_available() else ()

    generated = run(copy, *TESTS, *device, "--pyargs", "cuassay.testing.generated", "-k", "softsign")
    planted = run(copy, *TESTS, FAULTS, "-k", "softsign")
    shared = run(copy, *SHARED)

    assert generated[0] == 0, generated[1]
    assert planted[0] == 0, planted[1]
    assert shared[0] == 0, shared[1]
    assert "cpu:0" in generated[1]
    assert "sim:0" in generated[1]


def test_the_struct_of_a_new_op_is_compiled_by_the_kernels_there_are(copy: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    take(copy, *STEPS)
    compiled = (
        "from cuassay.devices.cuda.launch import source\n"
        "text = source.kernel_source('elementwise.cu')\n"
        "names = ['dense_unary<Softsign, float32, 4>']\n"
        "print(source.compile_source(text, name_expressions=names, arch='sm_90', file='elementwise.cu'))"
    )

    status, printed = run(copy, "-c", compiled)

    assert status == 0, printed
    assert "dense_unary<Softsign, float32, 4>" in printed
