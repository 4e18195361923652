"""The README and the pages of the documentation: their code runs, and prints what they show."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import documents
import page_commands
import pytest

from cuassay import cuda

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "reports" / "docs"
PAGES = [page for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))) if page.is_file()]
RUN = [page for page in PAGES if any(block.is_run for block in documents.blocks(page))]

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="no reports/docs next to the suites")


def title(page: Path) -> str:
    return str(page.relative_to(ROOT)).removeprefix("reports/docs/")


@pytest.mark.parametrize("page", RUN, ids=title)
def test_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    documents.run(page, folder, cuda=cuda.is_available())


SHOWN = [(page, block) for page in PAGES for block in documents.blocks(page) if block.language in ("sh", "yaml")]


@pytest.mark.parametrize(("page", "block"), SHOWN, ids=[f"{title(page)}:{block.line}" for page, block in SHOWN])
def test_what_shown_commands_name_exists(page: Path, block: documents.Block, request: pytest.FixtureRequest) -> None:
    files = frozenset(one.file for one in documents.blocks(page) if one.file is not None)
    checker = page_commands.Checker(ROOT, files, request.config._parser)
    checker.check_block(block.text)


@pytest.mark.parametrize(
    "text",
    [
        "cuassay reprot results",
        "cuassay report results --htlm page.html",
        "cuassay ab main HEAD --run 'pytest --cuassay-recrod {record}'",
        "pytest --cuassay-devcie cpu",
        "CUASSAY_SEED=1 python -m pytest test_nowhere.py",
        "CUASSAY_SEDE=1 pytest",
        "git status && ci/run dcos",
        "ci/run gpu --otu results",
        "ci/run test suites/nowhere",
        "python -m cuassay.benchmarking.asv results --otu x",
        "compute-sanitizer --tool memcheck python -m pytest --devcie cpu",
        "pip install '.[benhcmark]'",
        "pip install 'cuassay[benchmark]'",
        "curl example.org",
    ],
    ids=lambda text: " ".join(text.split()[:3]),
)
def test_a_shown_command_that_names_something_else_fails(text: str, request: pytest.FixtureRequest) -> None:
    checker = page_commands.Checker(ROOT, frozenset(), request.config._parser)
    with pytest.raises(AssertionError):
        checker.check_block(f"{text}  # a comment\n")


#: Each command once: two steps of a page may end with the same one, and it collects thousands of tests.
CONTRIBUTED = {
    tuple(words): page
    for page, block in SHOWN
    for words in page_commands.commands(block.text)
    if page.parent.name == "contributing" and words[:3] == [".venv/bin/python", "-m", "pytest"]
}


@pytest.mark.parametrize("words", CONTRIBUTED, ids=lambda words: f"{CONTRIBUTED[words].stem}-{words[4]}")
def test_commands_for_contributors_select_tests(words: tuple[str, ...]) -> None:
    given = [word.replace("NAME", "add") for word in words[3:]]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_between_pages_lead_to_files(page: Path) -> None:
    """The site's builder checks its own pages; this also checks the README, which links to them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)|(?:src|srcset)=\"([^\"]+)\"", text)
    links = [one for pair in targets for one in pair if one and "://" not in one]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_pages_that_the_site_makes_have_a_file_in_a_clone() -> None:
    """It names a command that shows the same, and is replaced in the site."""
    listed = re.findall(r"- (\S+\.md)$", (DOCS / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert [page for page in listed if not (DOCS / page).is_file()] == []


# ------------------------------------------------------------------------------------------------ torch's names


@pytest.fixture
def torch_names(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "ci")
    return importlib.import_module("pages.torch_names")


def test_names_that_the_table_gives_for_torch_exist(torch_names: ModuleType) -> None:
    ours = [name for _, name, _ in torch_names.rows() if name]
    missing = [name for name in ours if not exists(*name.rsplit(".", 1))]
    assert missing == []


def exists(module: str, name: str) -> bool:
    """Whether a module lists the name, which may need a driver to be made."""
    found = importlib.import_module(module)
    return name in found.__all__ or name in vars(found)


def test_names_that_the_table_calls_absent_are_absent(torch_names: ModuleType) -> None:
    absent = [name for name, ours, _ in torch_names.rows() if not ours]
    assert [name for name in absent if has(cuda, name)] == []


def has(module: ModuleType, name: str) -> bool:
    """Whether a module has the name, which may be one of a submodule."""
    try:
        attrgetter(name)(module)
    except AttributeError:
        return False
    return True


def test_each_reason_in_the_table_of_torch_names_is_used(torch_names: ModuleType) -> None:
    known = set(torch_names.TORCH)
    assert set(torch_names.ELSEWHERE) | set(torch_names.DIFFERENCES) <= known
    assert all(any(name.startswith(begin) for name in known) for begin in torch_names.ABSENT)


def test_torch_has_the_names_of_the_table(torch_names: ModuleType) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    plain = [name for name in torch_names.TORCH if "." not in name]
    assert [name for name in plain if not hasattr(torch.cuda, name) and not hasattr(torch.cuda.memory, name)] == []


# ------------------------------------------------------------------------------------------------ how pages are run


def run(tmp_path: Path, text: str) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "page"
    page.write_text(text, encoding="utf-8")
    folder.mkdir()
    documents.run(page, folder, cuda=False)


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ echo 12.5 ms, 3 s, ratio 1.25, 2 passed\n3 µs, 1.50 s, ratio 1.5, 2 passed\n```\n",
        "```console\n$ printf 'a\\nb\\nc\\n'\na\n...\nc\n```\n",
        "<!-- fails -->\n```console\n$ false\n```\n",
        "<!-- not run: it never ends -->\n```console\n$ false\n```\n",
        "<!-- cuda -->\n```python\n1 / 0\n```\n",
        "```python\nx = 2\n```\n\n```python\nassert x == 2\n```\n",
        "```toml\n# a/b.toml\nx = 1\n```\n\n```console\n$ cat a/b.toml\n# a/b.toml\nx = 1\n```\n",
        "```python\nimport cuassay\ncuassay.Device('nowhere!')  # DeviceError: the name is wrong\n```\n",
    ],
    ids=["measured", "dots", "fails", "not run", "cuda", "one namespace", "file", "error"],
)
def test_page_that_says_the_truth_passes(tmp_path: Path, text: str) -> None:
    run(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ echo one\ntwo\n```\n",
        "```console\n$ echo 41 passed\n31 passed\n```\n",
        "```console\n$ echo score: 13.3 %\nscore: 20.0 %\n```\n",
        "```console\n$ echo speed[sim:0] 9.1229\nspeed[sim:0] 15.2049\n```\n",
        "```console\n$ false\n```\n",
        "<!-- fails -->\n```console\n$ true\n```\n",
        "```python\n1 / 0\n```\n",
        "```python\nx = 1  # RaceError: never\n```\n",
        "```console\n$ printf 'a\\nc\\n'\nc\n...\na\n```\n",
    ],
    ids=["output", "count", "percentage", "virtual", "status", "no failure", "raises", "no error", "order"],
)
def test_page_that_says_something_else_fails(tmp_path: Path, text: str) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:\d"):
        run(tmp_path, text)
