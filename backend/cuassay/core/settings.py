"""All environment variables that configure this package: a table of name, type, default and meaning.

A variable is read when its value is needed rather than at import, so that a test can set it. If ours is unset, the
variables of ``torch`` and CUDA in `Setting.aliases` are read instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuassay.core.nearest import nearest
from cuassay.core.units import parse_bytes
from cuassay.errors import SettingError

__all__ = ["SETTINGS", "Setting", "Shown", "check", "describe", "get", "misspelt"]


def _text(value: str) -> str:
    return value


def _path(value: str) -> str:
    return str(Path(value).expanduser())


def _flag(value: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return words[value.strip().lower()]
    except KeyError:
        raise ValueError(f"one of {', '.join(words)}") from None


def _count(value: str) -> int:
    if not value.strip().isdecimal():
        raise ValueError("a whole number, 0 or more")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ValueError("seconds, 0 or more")
    return seconds


def _nbytes(value: str) -> int:
    try:
        return parse_bytes(value)
    except ValueError:
        raise ValueError("bytes, such as 1073741824, 512MiB or 1GiB") from None


def _names(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _mode(value: str) -> str:
    """Parse a precision mode. torch's flags 1 and 0 mean tf32 and ieee. `core.precision` validates the name."""
    try:
        return "tf32" if _flag(value) else "ieee"
    except ValueError:
        return value.strip().lower()


def _workspaces(value: str) -> int:
    """Parse ``:SIZE:COUNT...`` in KiB, as cuBLAS does, to the total in bytes."""
    numbers = value.strip().removeprefix(":").split(":")
    if not value.strip().startswith(":") or len(numbers) % 2 or not all(number.isdigit() for number in numbers):
        raise ValueError("sizes in KiB with their counts, such as :4096:2:16:8")
    sizes, counts = map(int, numbers[::2]), map(int, numbers[1::2])
    return 1024 * sum(size * count for size, count in zip(sizes, counts, strict=True))


def _mebibytes(value: str) -> int | None:
    """Parse a whole number of MiB. A negative number means None, the reader's default."""
    try:
        number = int(value)
    except ValueError:
        raise ValueError("a whole number of MiB, or -1") from None
    return None if number < 0 else number


def _tolerances(value: str) -> tuple[float, ...]:
    """Parse ``atol_rtol``. 0 or off means no check, the empty tuple."""
    if value.strip().lower() in ("0", "off", "false", "no"):
        return ()
    try:
        absolute, relative = map(float, value.split("_"))
    except ValueError:
        raise ValueError("atol_rtol, such as 1e-2_1e-2, or 0") from None
    return absolute, relative


def _kib(value: str) -> int:
    return 1024 * _count(value)


def _default_cache() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _path(f"{base}/cuassay")


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: its name, the parser of its text, its value when unset, and its description.

    `default` is a value or a function that returns it. `aliases` are variables of other projects that are read if this
    one is unset. `parse` raises `ValueError`.
    """

    name: str
    parse: Callable[[str], Any]
    default: Any
    meaning: str
    aliases: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """The type of the value as shown to users."""
        return _TYPE_NAMES[self.parse]

    def default_value(self) -> Any:
        """Return the value that is used if neither the variable nor an alias is set."""
        return self.default() if callable(self.default) else self.default


_TYPE_NAMES: dict[Callable[[str], Any], str] = {
    _text: "text",
    _path: "path",
    _flag: "flag",
    _count: "count",
    _seconds: "seconds",
    _nbytes: "bytes",
    _names: "names, comma separated",
    _mode: "precision mode",
    _workspaces: "KiB, :size:count...",
    _kib: "KiB",
    _mebibytes: "MiB",
    _tolerances: "atol_rtol",
}

#: All of our variables. Apart from the aliases, other projects' variables are read only to find devices
#: (`devices.cuda.driver.visible`), CUDA's headers (`devices.cuda.launch.source`) and the user's cache folder.
SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "CUASSAY_ALLOC_CONF",
            _text,
            "",
            "options of the allocators of device and pinned memory, such as max_split_size_mb:128,...",
            aliases=("PYTORCH_CUDA_ALLOC_CONF",),
        ),
        Setting(
            "CUASSAY_BLAS_PREFER_CUBLASLT",
            _flag,
            True,
            "compute matrix products with cuBLASLt; off: with cuBLAS, which fuses no bias or activation",
            aliases=("TORCH_BLAS_PREFER_CUBLASLT",),
        ),
        Setting(
            "CUASSAY_CACHE_DIR",
            _path,
            _default_cache,
            "folder for compiled kernels and for results of the device probe",
        ),
        Setting(
            "CUASSAY_CLOCKS",
            _text,
            "",
            "clock policy of the GPU, for the record, such as: locked at 1500 MHz; NVML does not report it",
        ),
        Setting("CUASSAY_CPU_THREADS", _count, 0, "threads of the BLAS of kind cpu; 0: the library's default"),
        Setting(
            "CUASSAY_CUBLASLT_WORKSPACE_SIZE",
            _kib,
            0,
            "largest workspace of a cuBLASLt product, KiB; 0: 32 MiB from compute capability 9.0 on, else 4 MiB",
            aliases=("CUBLASLT_WORKSPACE_SIZE",),
        ),
        Setting(
            "CUASSAY_CUBLAS_WORKSPACE_CONFIG",
            _workspaces,
            0,
            "workspace of a cuBLAS product, as :size:count..., in KiB; unset: 32 MiB on Hopper, 4 MiB elsewhere",
            aliases=("CUBLAS_WORKSPACE_CONFIG",),
        ),
        Setting(
            "CUASSAY_CUDA_SANITIZER",
            _flag,
            False,
            "report unordered accesses and early frees on CUDA devices, from the import of cuassay on",
            aliases=("TORCH_CUDA_SANITIZER",),
        ),
        Setting("CUASSAY_DEVICES", _names, (), "devices to test where --device is not given, such as cpu,cuda:*"),
        Setting(
            "CUASSAY_FLOAT32_PRECISION",
            _mode,
            "ieee",
            "default precision mode of float32 products; 1, as in torch's variable, means tf32",
            aliases=("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",),
        ),
        Setting("CUASSAY_HANG_SECONDS", _seconds, 0.0, "abort a longer test, and print every stack; 0: never"),
        Setting(
            "CUASSAY_LAUNCH_BLOCKING",
            _flag,
            False,
            "wait after each launch of a cuassay kernel, to find which one fails; not during graph capture",
            aliases=("CUDA_LAUNCH_BLOCKING",),
        ),
        Setting(
            "CUASSAY_NVML_BASED_CUDA_CHECK",
            _flag,
            True,
            "count CUDA devices with NVML before a probe process is started",
            aliases=("PYTORCH_NVML_BASED_CUDA_CHECK",),
        ),
        Setting(
            "CUASSAY_PROBE_SECONDS", _seconds, 20.0, "time limit of the process that looks for CUDA devices, seconds"
        ),
        Setting(
            "CUASSAY_RESERVATIONS",
            _path,
            "",
            "folder where pytest processes sharing devices reserve the memory of their tests; unset: no reservations",
        ),
        Setting("CUASSAY_REVISION", _text, "", "commit of the code, where there is no git history"),
        Setting("CUASSAY_SEED", _count, 2026, "seed of generated samples; printed with every failure"),
        Setting("CUASSAY_SIM_DEVICES", _count, 2, "number of simulated devices"),
        Setting("CUASSAY_SIM_MEMORY", _nbytes, 2**30, "memory of each simulated device"),
        Setting("CUASSAY_SIM_PROFILE", _text, "h200", "GPU whose capabilities the simulated devices have"),
        Setting(
            "CUASSAY_SIM_VISIBLE_DEVICES",
            _names,
            (),
            "visible simulated devices, in order, such as SIM-1,SIM-0; works as CUDA_VISIBLE_DEVICES; unset: all",
        ),
        Setting(
            "CUASSAY_START_WORKERS",
            _flag,
            False,
            "with --cuassay-isolate, start each worker as a new session; off: fork it where that is safe",
        ),
        Setting(
            "CUASSAY_TUNABLEOP_CUBLASLT_REQUESTED_ALGO_COUNT",
            _count,
            100,
            "number of algorithms to ask cuBLASLt for, at each workspace limit, when a product is tuned",
            aliases=("PYTORCH_TUNABLEOP_CUBLASLT_REQUESTED_ALGO_COUNT",),
        ),
        Setting(
            "CUASSAY_TUNABLEOP_ENABLED",
            _flag,
            False,
            "use tuning results for matrix products, and tune products without one",
            aliases=("PYTORCH_TUNABLEOP_ENABLED",),
        ),
        Setting(
            "CUASSAY_TUNABLEOP_FILENAME",
            _text,
            "",
            "file of tuning results; %d becomes the device index; empty: in the cache folder, by GPU and versions",
        ),
        Setting(
            "CUASSAY_TUNABLEOP_MAX_TUNING_DURATION_MS",
            _count,
            500,
            "time limit of the search for one product, over all candidates, milliseconds",
        ),
        Setting(
            "CUASSAY_TUNABLEOP_MAX_TUNING_ITERATIONS",
            _count,
            100,
            "largest number of timing samples of a candidate",
            aliases=("PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS",),
        ),
        Setting(
            "CUASSAY_TUNABLEOP_NUMERICAL_CHECK",
            _tolerances,
            None,
            "allowed difference of a tuned result: atol over its root mean square; 0: no check; unset: by dtype",
        ),
        Setting(
            "CUASSAY_TUNABLEOP_RECORD_UNTUNED",
            _flag,
            False,
            "write products without a tuning result to a file, to tune them later",
            aliases=("PYTORCH_TUNABLEOP_RECORD_UNTUNED",),
        ),
        Setting(
            "CUASSAY_TUNABLEOP_ROTATING_BUFFER_SIZE",
            _mebibytes,
            None,
            "least size of the rotated operands of a search, MiB; 0: no rotation; -1: three times the L2 cache",
            aliases=("PYTORCH_TUNABLEOP_ROTATING_BUFFER_SIZE",),
        ),
        Setting(
            "CUASSAY_TUNABLEOP_TUNING",
            _flag,
            True,
            "tune products without a result while tuning is enabled; off: only use results that are there",
            aliases=("PYTORCH_TUNABLEOP_TUNING",),
        ),
        Setting(
            "CUASSAY_TUNABLEOP_UNTUNED_FILENAME", _text, "cuassay_untuned.jsonl", "file of the products to tune later"
        ),
        Setting(
            "CUASSAY_WITHOUT",
            _names,
            (),
            "modules that ci/run gpu --without hides, as if not installed; they are part of the fingerprint",
            aliases=("WITHOUT_MODULES",),
        ),
    )
}


def get(name: str, environ: Mapping[str, str] | None = None) -> Any:
    """Return the parsed value of setting `name`, from `environ` or else from the variables of the process.

    Raises
    ------
    SettingError
        If there is no such setting, or its value cannot be parsed.
    """
    setting = _setting(name)
    source, text = _found(setting, os.environ if environ is None else environ)
    if text is None:
        return setting.default_value()
    try:
        return setting.parse(text)
    except ValueError as error:
        raise SettingError(f"{source} must be {error}; got {text!r}; correct it or unset it") from error


def _setting(name: str) -> Setting:
    try:
        return SETTINGS[name]
    except KeyError:
        raise SettingError(f"there is no setting {name!r}; settings: {', '.join(SETTINGS)}") from None


def _found(setting: Setting, environ: Mapping[str, str]) -> tuple[str, str | None]:
    for name in (setting.name, *setting.aliases):
        if environ.get(name):
            return name, environ[name]
    return "default", None


@dataclass(frozen=True, slots=True)
class Shown:
    """One row of ``cuassay settings``. `source` is the variable that set the value, or ``default``."""

    name: str
    type: str
    value: Any
    source: str
    meaning: str
    aliases: tuple[str, ...]


def describe(environ: Mapping[str, str] | None = None) -> tuple[Shown, ...]:
    """Return every setting with its effective value and the source of the value."""
    environ = os.environ if environ is None else environ
    return tuple(
        Shown(s.name, s.type, get(s.name, environ), _found(s, environ)[0], s.meaning, s.aliases)
        for s in SETTINGS.values()
    )


def check(environ: Mapping[str, str] | None = None) -> None:
    """Parse every one of our variables that is set, so that an invalid value is reported at the start.

    Aliases are not checked, because they may be meant for the other project alone.

    Raises
    ------
    SettingError
        If a value cannot be parsed.
    """
    environ = os.environ if environ is None else environ
    for name in SETTINGS.keys() & environ.keys():
        get(name, environ)


def misspelt(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return unknown variables, each with the setting that was likely meant: ``CUASSAY_SEEDS``, ``CUASSAY_SEED``."""
    environ = os.environ if environ is None else environ
    strange = [name for name in environ if name.startswith("CUASSAY_") and name not in SETTINGS]
    near = {name: nearest(name, SETTINGS, likeness=0.9) for name in strange}
    return {name: found for name, found in near.items() if found is not None}
