"""Where a control group for a candidate is looked for, and what is told where none can be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuassay.judging.cgroup import MemoryGroup

OWN = "4:cpu,memory:/jobs/a\n0::/user/b\n"


@pytest.mark.parametrize(
    ("folders", "words"),
    [([], "no memory controller under"), (["memory/jobs/a"], "No such file or directory: .*memory.limit_in_bytes")],
    ids=["none", "without a limit"],
)
def test_the_reason_is_told_where_there_is_no_group(tmp_path: Path, folders: list[str], words: str) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)

    with pytest.raises(OSError, match=words):
        MemoryGroup.make(1 << 20, root=tmp_path, own=OWN if folders else "0::/user/b\n")

    assert list(tmp_path.rglob("cuassay-*")) == []


@pytest.mark.parametrize(
    ("folder", "limit"),
    [
        ("user/b", "memory.max"),
        ("user", "memory.max"),
        ("unified/user/b", "memory.max"),
        ("memory/jobs/a", "memory.limit_in_bytes"),
    ],
    ids=["own", "above", "both versions", "version 1"],
)
def test_the_first_group_that_limits_memory_is_taken(
    tmp_path: Path, folder: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in ("user/b", "unified/user/b", "memory/jobs/a"):
        (tmp_path / one).mkdir(parents=True)
    for one in ("user", "user/b", "unified/user/b"):
        (tmp_path / one / "cgroup.controllers").write_text("memory")
    made = Path.mkdir

    def mkdir(path: Path) -> None:
        made(path)
        if path.parent == tmp_path / folder:  # the kernel makes the files of a new group
            (path / limit).write_text("")

    monkeypatch.setattr(Path, "mkdir", mkdir)

    group = MemoryGroup.make(1 << 20, root=tmp_path, own=OWN)

    (found,) = tmp_path.rglob("cuassay-*")
    assert (found.parent, (found / limit).read_text()) == (tmp_path / folder, "1048576")
    events = found / ("memory.events" if limit == "memory.max" else "memory.oom_control")
    assert not group.was_exceeded()
    events.write_text("oom 2\noom_kill 0\n")
    assert not group.was_exceeded()
    events.write_text("oom 2\noom_kill 1\n")
    assert group.was_exceeded()
