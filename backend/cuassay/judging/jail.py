"""The jail of a candidate's process: namespaces, a private root, no privileges, few files, few system calls.

It needs no privileges, but Linux 6.1 or newer with user namespaces. If this process is root, the candidate's runs as
nobody. Each part is tried separately; a part that the machine rejects is reported with the reason, and the judge
decides what a verdict without it is worth. A jail is not a virtual machine: it shares the kernel and the GPU driver.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cuassay.judging import landlock, linux, seccomp
from cuassay.judging.limits import JailOptions, Limits
from cuassay.judging.places import Places, places

__all__ = ["NOBODY", "PARTS", "Jail"]

#: The parts of a jail, in the order in which they are reported.
PARTS: dict[str, str] = {
    "user": "a user namespace: nobody's rights, and processes counted by themselves",
    "pid": "a process namespace: it sees and signals its own processes alone, and all end with its first",
    "net": "a network namespace without a network",
    "ipc": "a namespace for System V IPC",
    "mount": "a root folder of its own: Python, libraries, devices, a folder in memory",
    "files": "landlock: what may be opened, checked again by another part of the kernel",
    "calls": "seccomp: no tracing, no sockets, no namespaces, no other programs",
    "privileges": "no capabilities, and none to be had",
    "limits": "memory and processes are limited and watched",
}

ON = "on"

#: User and group of a candidate if the judge is root.
NOBODY = 65534

_CAP_SETUID, _CAP_SYS_ADMIN = 7, 21
_NAMESPACES = {
    "net": linux.CLONE_NEWNET,
    "ipc": linux.CLONE_NEWIPC,
    "mount": linux.CLONE_NEWNS | linux.CLONE_NEWUTS,
}
_OPEN_FILES = 1024

#: The candidate's folder inside a private root.
_SCRATCH = "/tmp"  # noqa: S108  a private tmpfs


class Jail:
    """One jail, and which of its parts are on.

    Parameters
    ----------
    options : JailOptions
        The wanted confinement.
    limits : Limits
        The limits of the process.
    kind : str
        The device kind that the candidate uses.
    scratch : str
        The folder that it may write to if it has no private root.

    Attributes
    ----------
    parts : dict of str to str
        Each part that was tried: ``on``, or why it is missing.
    scratch : str
        The folder that it may write to.
    """

    def __init__(self, options: JailOptions, limits: Limits, kind: str, scratch: str) -> None:
        self.options, self.limits, self.kind, self.scratch = options, limits, kind, scratch
        self.parts: dict[str, str] = {}
        self._is_root = linux.has_capability(_CAP_SYS_ADMIN) and linux.has_capability(_CAP_SETUID)
        self._places: Places = places(kind, options)
        self._data_nbytes = 0

    def __repr__(self) -> str:
        missing = [name for name, state in self.parts.items() if state != ON]
        return f"Jail({'without ' + ', '.join(missing) if missing else 'whole so far'})"

    def missing(self) -> str:
        """Return the required parts that are not on, with their reasons, as text; empty if there are none."""
        lacking = (name for name in PARTS if self.parts.get(name) != ON) if self.options.required else ()
        return ", ".join(f"{name} ({self.parts.get(name, 'not tried')})" for name in lacking)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """Try a part; record an error of the machine, and continue."""
        try:
            yield
        except OSError as error:
            self.parts[name] = f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'no number')})"
        else:
            self.parts.setdefault(name, ON)

    # ---------------------------------------------------------------------------------------- the supervisor's part

    def before_fork(self) -> None:
        """Set up, in the supervisor, what applies to the processes that it starts."""
        if not self._is_root:
            with self._part("user"):
                own = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)
                try:
                    _own_user_namespace(own)
                finally:
                    os.close(own)
        with self._part("pid"):
            linux.unshare(linux.CLONE_NEWPID)

    # ---------------------------------------------------------------------------------------- the candidate's parts

    def enter(self) -> None:
        """Enter, first of all in the candidate's process, its namespaces, its root folder and its user."""
        os.umask(0o077)
        own = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)  # stays valid when the root folder changes
        for name, flags in _NAMESPACES.items():
            with self._part(name):
                linux.unshare(flags)
                if name == "mount":
                    self._enter_root()
        if self._is_root:
            self._become_nobody()
            with self._part("user"):
                linux.own_files_of_process()  # the change of user removed this ownership, which includes the id maps
                _own_user_namespace(own)
        os.close(own)
        linux.die_with_parent()  # the change of user reset it

    def _enter_root(self) -> None:
        root = self.scratch
        linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("tmpfs", root, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,mode=0755")
        for name in ("/dev", "/proc", _SCRATCH):
            _make_folder(Path(root + name))
        owner = NOBODY if self._is_root else os.getuid()
        options = f"size={self.limits.scratch_nbytes},mode=0700,uid={owner}"
        linux.mount("tmpfs", root + _SCRATCH, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
        for place in (*self._places.read, *self._places.names):  # after /tmp, which may hold Python
            _bind(place, root + place)
        for one in self._places.devices:
            _bind(one, root + one, devices=True)
        self._hide(root)
        Path(root + "/dev/shm").symlink_to(_SCRATCH)  # noqa: S108
        with self._part("pid"):
            self._mount_proc(root + "/proc")
        linux.mount(None, root, None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)
        linux.pivot_root(root)
        self.scratch = _SCRATCH

    def _mount_proc(self, target: str) -> None:
        try:
            linux.mount("proc", target, "proc", linux.MS_NOSUID | linux.MS_NODEV)
        except OSError:  # in a container that masks parts of /proc
            if self.kind == "cuda":  # the driver reads /proc; landlock protects other processes' files
                linux.mount("/proc", target, None, linux.MS_BIND | linux.MS_REC)
            raise

    def _hide(self, root: str) -> None:
        for place in (*self._places.read, *self._places.names):
            for one in self._places.hidden_at(place):
                if Path(root + one).is_dir():
                    linux.mount("tmpfs", root + one, "tmpfs", linux.MS_RDONLY, "size=4k,mode=0555")
                elif Path(root + one).exists():
                    linux.mount("/dev/null", root + one, None, linux.MS_BIND)

    def _become_nobody(self) -> None:
        if self.scratch != _SCRATCH:
            os.chown(self.scratch, NOBODY, NOBODY)
        with self._part("privileges"):
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)

    # ---------------------------------------------------------------------------------------- before the first line

    def close(self) -> None:
        """Give up, before the candidate's first line runs, all rights that it must not have."""
        with self._part("limits"):
            self._limit()
        with self._part("privileges"):
            linux.clear_capabilities()
            linux.forbid_new_privileges()
        with self._part("files"):
            self._restrict_files()
        is_own = self.parts.get("mount") == ON and self.parts.get("net") == ON
        with self._part("calls"):
            is_cuda = self.kind == "cuda"
            filtered = seccomp.program(
                linux.MACHINE, sockets=is_cuda and is_own, executes=self.options.executes, memfd=is_cuda
            )
            seccomp.install(filtered)
        self._verify()

    def _limit(self) -> None:
        bounds = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: _OPEN_FILES, resource.RLIMIT_MSGQUEUE: 0}
        bounds[resource.RLIMIT_FSIZE] = self.limits.scratch_nbytes
        if self.parts.get("user") == ON:  # otherwise all processes of the user count
            bounds[resource.RLIMIT_NPROC] = self.limits.processes + (not self._is_root)  # the supervisor counts too
        if self.kind != "cuda":  # the driver reserves terabytes of addresses
            bounds[resource.RLIMIT_DATA] = _data_nbytes() + self.limits.memory_nbytes
        for which, most in bounds.items():
            hard = resource.getrlimit(which)[1]
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(which, (least, least))

    def _restrict_files(self) -> None:
        whole, listed = self._places.granted()
        own = ["/proc/self"] if self.kind == "cuda" else []  # the driver names its threads there
        landlock.restrict(
            read=[*whole, *self._places.names, "/proc"] if self.parts.get("mount") == ON else whole,
            listed=listed,
            written=[self.scratch, *own],
            devices=self._places.devices,
            executes=self.options.executes,
        )

    def _verify(self) -> None:
        """Try actions that must fail; a part that does not hold is not on."""
        for path in self.options.hidden:
            if _is_readable(path):
                self.parts["files"] = f"{path} can still be read"
        if self.parts["calls"] == ON and not _is_refused(lambda: linux.unshare(linux.CLONE_NEWUSER)):
            self.parts["calls"] = "a filter was installed and refuses nothing"


def _own_user_namespace(own: int) -> None:
    """Enter a new user namespace with the same ids as outside; `own` is the folder of this process in /proc."""
    user, group = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        file = os.open(name, os.O_WRONLY, dir_fd=own)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def _bind(source: str, target: str, *, devices: bool = False) -> None:
    if Path(source).is_dir():
        _make_folder(Path(target))
    else:
        _make_folder(Path(target).parent)
        Path(target).touch()
    linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
    if not devices:
        linux.make_read_only(target)


def _make_folder(path: Path) -> None:
    """Make a folder and its parents like `Path.mkdir`, accessible to everybody."""
    before = os.umask(0)
    try:
        path.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(before)


def _data_nbytes() -> int:
    with suppress(OSError, IndexError, ValueError):
        text = Path("/proc/self/status").read_text(encoding="ascii")
        return int(text.partition("\nVmData:")[2].split()[0]) << 10
    return 0


def _is_readable(path: str) -> bool:
    with suppress(OSError):
        return (
            any(one.is_file() for one in Path(path).iterdir())
            if Path(path).is_dir()
            else Path(path).read_bytes() != b""
        )
    return False


def _is_refused(call: Callable[[], None]) -> bool:
    try:
        call()
    except OSError as error:
        return error.errno == errno.EPERM
    return False
