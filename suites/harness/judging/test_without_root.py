"""The whole jail for a judge that is not root; where the tests run as root, a judge that has become nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cuassay.judging.jail import PARTS

JUDGE = """
import json, os, sys
from pathlib import Path
import numpy as np
from cuassay.judging import linux
from cuassay.judging.limits import JailOptions, Limits
from cuassay.judging.process import CandidateProcess

def open_up(path):
    "Let everybody pass the folders above `path`, in a mount namespace of this process: Python may lie in root's home."
    for folder in reversed(Path(path).parents):
        if not folder.stat().st_mode & 1:
            kept = f"/mnt{path}"
            Path(kept).mkdir(parents=True)
            linux.mount(path, kept, None, linux.MS_BIND | linux.MS_REC)
            linux.mount(f"/mnt{folder}", str(folder), None, linux.MS_BIND | linux.MS_REC)
            return

def become_nobody():
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", "/mnt", "tmpfs", 0, "mode=755")
    for path in sorted({sys.base_prefix, sys.prefix, *filter(None, sys.path)}, key=len):
        if Path(path).is_dir():
            open_up(path)
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)

SMALL = Limits(arena_nbytes=1 << 20)
source, spec = sys.argv[1:]
if os.getuid() == 0:
    become_nobody()
os.environ["TMPDIR"] = "/tmp"
with CandidateProcess(source, device="cpu", limits=SMALL, jail=JailOptions(hidden=(spec,))) as it:
    it.load()
    reply = it.call([np.arange(3.0)], {"spec": spec}, [((3,), "float64")])
raised = reply.raised and reply.raised.kind
print(json.dumps([os.getuid(), dict(it.jail), raised, reply.outputs[0].array.tolist()]))
"""

CANDIDATE = """
import os
def run(xp, a, spec):
    try:
        open(spec)
    except (FileNotFoundError, PermissionError):
        return a + 1
"""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="candidates are judged on Linux")
def test_jail_is_whole_without_root() -> None:
    with tempfile.TemporaryDirectory(prefix="without-root-") as folder:  # pytest's are for their owner alone
        files = [Path(folder, name) for name in ("candidate.py", "spec.py")]
        for file, text in zip(files, (CANDIDATE, "ANSWER = 42\n"), strict=True):
            file.write_text(text, encoding="utf-8")
            file.chmod(0o644)
        Path(folder).chmod(0o755)

        done = subprocess.run(
            [sys.executable, "-c", JUDGE, *map(str, files)], capture_output=True, text=True, check=False
        )

    assert done.returncode == 0, done.stderr
    user, parts, raised, values = json.loads(done.stdout)
    assert user != 0
    assert (parts, raised, values) == (dict.fromkeys(PARTS, "on"), None, [1.0, 2.0, 3.0])
