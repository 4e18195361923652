"""Which files a confined candidate sees, and what is hidden among them."""

from __future__ import annotations

from pathlib import Path

import pytest

import cuassay
from cuassay.judging.limits import JailOptions
from cuassay.judging.places import Places, places

PACKAGE = Path(cuassay.__file__).resolve().parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a/keep.py", "a/spec.py", "a/deep/other.py", "a/deep/hidden/x.py", "b/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    return tmp_path


def test_around_what_is_hidden_each_file_is_granted_alone(tree: Path) -> None:
    seen = Places((str(tree / "a"), str(tree / "b")), (), (str(tree / "a/spec.py"), str(tree / "a/deep/hidden")), ())

    whole, listed = seen.granted()

    assert sorted(whole) == [str(tree / name) for name in ("a/deep/other.py", "a/keep.py", "b")]
    assert listed == [str(tree / "a"), str(tree / "a/deep")]


def test_symbolic_link_grants_nothing(tree: Path) -> None:
    (tree / "a/door").symlink_to("/etc")
    seen = Places((str(tree / "a"),), (), (str(tree / "a/spec.py"),), ())

    assert str(tree / "a/door") not in seen.granted()[0]


def test_hidden_file_is_hidden_under_each_of_its_names(tree: Path) -> None:
    seen = Places((str(tree / "a"),), (str(tree / "link"),), (str(tree / "a/spec.py"),), ())

    assert list(seen.hidden_at(str(tree / "a"))) == [str(tree / "a/spec.py")]
    assert list(seen.hidden_at(str(tree / "link"))) == [str(tree / "link/spec.py")]
    assert list(seen.hidden_at(str(tree / "b"))) == []


def test_hidden_link_hides_what_it_leads_to(tree: Path) -> None:
    (tree / "spec.py").symlink_to(tree / "a/spec.py")

    assert str(tree / "a/spec.py") in places("cpu", JailOptions(hidden=(str(tree / "spec.py"),))).hidden


def test_declarations_of_this_package_are_hidden_always() -> None:
    seen = places("cpu", JailOptions())

    assert str(PACKAGE / "testing") in seen.hidden
    whole, _ = seen.granted()
    assert not [one for one in whole if str(PACKAGE / "testing").startswith(one)]
    assert str(PACKAGE / "devices") in whole


def test_asked_files_are_among_those_to_read_once(tree: Path) -> None:
    asked = tuple(str(tree / name) for name in ("a", "a/deep", "link", "absent"))

    seen = places("cpu", JailOptions(readable=asked))

    assert [one for one in seen.read if one.startswith(str(tree))] == [str(tree / "a")]
    assert [one for one in seen.names if one.startswith(str(tree))] == [str(tree / "link")]


def test_only_absolute_folders_of_search_paths_are_granted(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    monkeypatch.setenv("LD_LIBRARY_PATH", f":b:{tree}/a")  # the empty entry means the current folder

    seen = places("cuda", JailOptions())

    assert [one for one in (*seen.read, *seen.names) if str(tree) in str(Path(one).resolve())] == [str(tree / "a")]


def test_programs_are_seen_by_those_who_may_run_them() -> None:
    alone, running = (places("cpu", JailOptions(executes=executes)) for executes in (False, True))

    assert "/usr/include" not in alone.read
    assert len(running.read) >= len(alone.read)
