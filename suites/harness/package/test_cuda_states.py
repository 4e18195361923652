"""Every state a machine's CUDA may be in, a process each: nothing fails to import, nothing hangs, the reason is told.

A driver without a device, and one that hangs, are libraries compiled here and put before the real one; so these tests
say the same with a GPU and without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

Environment = dict[str, str]

STUB = """
#include <string.h>
#include <unistd.h>
static int up = 0;
int cuInit(unsigned flags) { INIT }
int cuGetErrorName(int status, const char** name) { *name = "CUDA_ERROR_NO_DEVICE"; return 0; }
int cuGetErrorString(int status, const char** text) { *text = "no CUDA-capable device is detected"; return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { *count = 0; return up ? 0 : 3; }
int cuGetProcAddress_v2(const char* name, void** found, int version, unsigned long long flags, int* status) {
    *found = 0;
    if (!strcmp(name, "cuInit")) *found = (void*)cuInit;
    if (!strcmp(name, "cuGetErrorName")) *found = (void*)cuGetErrorName;
    if (!strcmp(name, "cuGetErrorString")) *found = (void*)cuGetErrorString;
    if (!strcmp(name, "cuDriverGetVersion")) *found = (void*)cuDriverGetVersion;
    if (!strcmp(name, "cuDeviceGetCount")) *found = (void*)cuDeviceGetCount;
    if (status) *status = *found ? 0 : 1;
    return *found ? 0 : 500;
}
"""

#: Name of a state to: what its ``cuInit`` does (None: no stub), its environment, and the reason that must be told.
STATES: dict[str, tuple[str | None, Environment, str]] = {
    "hidden": (None, {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides every device"),
    "hidden by -1": (None, {"CUDA_VISIBLE_DEVICES": "-1"}, "CUDA_VISIBLE_DEVICES='-1' hides every device"),
    "no driver": ("", {}, "no CUDA driver: "),
    "no device": ("return 100;", {}, "cuInit failed: CUDA_ERROR_NO_DEVICE (100)"),
    "driver hangs": ("sleep(60); return 100;", {"CUASSAY_PROBE_SECONDS": "0.5"}, "did not answer within 0.5 s"),
}


@pytest.fixture
def stub(tmp_path: Path) -> Callable[[str], Environment]:
    """Puts a libcuda whose ``cuInit`` does this before the real one; of an empty text, one that cannot be loaded."""

    def build(body: str) -> Environment:
        library = tmp_path / "libcuda.so.1"
        if body:
            compiler = shutil.which("gcc") or shutil.which("cc")
            if compiler is None:
                pytest.skip("no C compiler (gcc, cc) to build a stand-in for the driver with")
            (tmp_path / "stub.c").write_text(STUB.replace("INIT", body))
            subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", library, tmp_path / "stub.c"], check=True)
        else:
            library.write_text("not a library")
        path = [str(tmp_path), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {"LD_LIBRARY_PATH": os.pathsep.join(path)}

    return build


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest, stub: Callable[[str], Environment]) -> tuple[Environment, str]:
    """What to add to the environment, and the reason that must be told."""
    body, added, reason = STATES[request.param]
    # NVML is asked first where it is installed, and knows nothing of the stand-in.
    return {"CUASSAY_NVML_BASED_CUDA_CHECK": "0", **({} if body is None else stub(body)), **added}, reason


def run(code: str, environment: Environment) -> str:
    """What `code` prints in a fresh interpreter; `CUDA_VISIBLE_DEVICES` is unset unless given."""
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        env={**inherited, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_reason_is_told(state: tuple[Environment, str]) -> None:
    environment, reason = state

    told = run("from cuassay import devices; print(devices.backend('cuda').why_absent())", environment)

    assert reason in told or "CuPy is not installed" in told


@pytest.mark.parametrize(
    ("state", "said"),
    [("no driver", "there is no NVIDIA driver"), ("no device", "with: pip install 'PATH[cuda13]', where PATH is")],
    indirect=["state"],
    ids=["no driver", "driver"],
)
def test_without_cupy_it_is_told_whether_installing_helps(state: tuple[Environment, str], said: str) -> None:
    told = run(
        "from cuassay import devices; print(devices.backend('cuda').why_absent())", {**state[0], **hidden("cupy")}
    )

    assert told.startswith("CuPy is not installed")
    assert said in told


def hidden(modules: str) -> Environment:
    """The environment of an interpreter that lacks these modules."""
    path = [str(Path(__file__).parents[3] / "ci" / "without"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), "WITHOUT_MODULES": modules}


IMPORT_ALL = """
import importlib, pkgutil, cuassay
for module in pkgutil.walk_packages(cuassay.__path__, "cuassay."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        if error.name is None or error.name.startswith("cuassay"):
            raise
        print(error.name)
"""


def test_everything_is_imported(state: tuple[Environment, str]) -> None:
    missing = set(run(IMPORT_ALL, state[0]).split())

    assert missing <= {"asv", "cupy", "cuda"}, "something else than an optional library is missing"


def test_everything_is_imported_without_the_optional_libraries() -> None:
    missing = set(run(IMPORT_ALL, hidden("nvmath,torch,cuda.core,numba")).split())

    assert missing <= {"asv", "cupy", "cuda"}


def test_the_other_kinds_are_tested_and_the_absence_is_shown(state: tuple[Environment, str], tmp_path: Path) -> None:
    environment, reason = state
    (tmp_path / "test_it.py").write_text("def test_it(device):\n    assert device.kind in ('cpu', 'sim')\n")
    code = (
        f"import pytest, sys; sys.exit(pytest.main(['--device', 'all', '-p', 'no:cacheprovider', {str(tmp_path)!r}]))"
    )

    shown = run(code, environment)

    assert reason in shown or "CuPy is not installed" in shown
    assert "2 passed" in shown


# A hanging driver hangs whoever calls it: only asking for it is guarded.
@pytest.mark.parametrize("state", [name for name in STATES if name != "driver hangs"], indirect=True)
def test_what_needs_a_device_says_what_is_missing(state: tuple[Environment, str]) -> None:
    code = """
import cuassay.cuda
from cuassay.errors import CuassayError
try:
    cuassay.cuda.init()
except CuassayError as error:
    print(type(error).__name__)
"""

    assert run(code, state[0]) in ("DeviceError", "LibraryNotFoundError")


# ------------------------------------------------------------------------------------------------ forks

IN_CHILD = """
import os, cuassay.cuda
from cuassay.errors import CuassayError, ForkError
{before}
child = os.fork()
if not child:
    try:
        {inside}
        code = 0
    except ForkError as error:
        code = 7 if "forked" in str(error) and "spawn" in str(error) else 8
    except BaseException:
        code = 9
    os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

#: How the driver may come to be initialised in a process.
STARTERS = {
    "by cuassay": "cuassay.cuda.init()",
    "by CuPy": "import cupy; cupy.zeros(1)",
    "by cuda-python": "from cuda.bindings import driver; driver.cuInit(0)",
}

#: What a child may try first.
USES = {
    "init": "cuassay.cuda.init()",
    "properties": "cuassay.cuda.get_device_name(0)",
    "an array": "from cuassay import devices; devices.empty((3,), 'float32', 'cuda:0')",
}


@cache
def why_absent() -> str:
    return run("from cuassay import devices; print(devices.backend('cuda').why_absent())", {})


def needs_a_device() -> None:
    reason = why_absent()
    if reason != "None":
        pytest.skip(f"no CUDA device: {reason}")


def test_asking_for_devices_leaves_a_child_free_to_use_them() -> None:
    code = IN_CHILD.format(
        before="count = cuassay.cuda.device_count(); cuassay.cuda.is_available()",
        inside="assert cuassay.cuda.device_count() == count; count and cuassay.cuda.get_device_name(0)",
    )

    assert run(code, {}) == "0"


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("starter", STARTERS)
def test_a_child_of_a_process_that_used_cuda_is_refused_in_words(starter: str, use: str) -> None:
    needs_a_device()

    assert run(IN_CHILD.format(before=STARTERS[starter], inside=USES[use]), {}) == "7"


def test_a_child_is_refused_though_its_parent_has_made_arrays() -> None:
    needs_a_device()
    before = "from cuassay import devices; devices.empty((3,), 'float32', 'cuda:0')"

    assert run(IN_CHILD.format(before=before, inside=USES["an array"]), {}) == "7"


#: As the real one: a child forked after ``cuInit`` is told that nothing is initialised, whatever it calls.
FORGETS_CHILDREN = "if (up && up != getpid()) return 3; up = getpid(); return 0;"
UNSEEN = "import ctypes; driver = ctypes.CDLL('libcuda.so.1')"
LOADED = "import ctypes, cuassay.devices.cuda; driver = ctypes.CDLL('libcuda.so.1')"


@pytest.mark.parametrize(
    ("before", "expected"),
    [(f"{LOADED}; driver.cuInit(0)", "7"), (f"{UNSEEN}; driver.cuInit(0)", "7"), (LOADED, "0"), (UNSEEN, "0")],
    ids=["initialised", "initialised before our import", "loaded", "loaded before our import"],
)
def test_a_driver_counts_as_used_once_anybody_has_initialised_it(
    before: str, expected: str, stub: Callable[[str], Environment]
) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed: nothing could initialise a driver")
    environment = stub(FORGETS_CHILDREN)

    assert run(IN_CHILD.format(before=before, inside="cuassay.cuda.init()"), environment) == expected
