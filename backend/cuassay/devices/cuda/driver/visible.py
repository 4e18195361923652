"""Which CUDA devices this process would see, found out without initialising CUDA in it.

Once initialised, the driver cannot be used in forked children. So a short child process asks the driver; it makes no
context and answers in CUDA's order. (NVML's order is CUDA's only with CUDA_DEVICE_ORDER=PCI_BUS_ID, so NVML is asked
only whether there is any device at all.) `parse` interprets CUDA_VISIBLE_DEVICES by the driver's rules.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from cuassay.core import settings

__all__ = ["Found", "Probe", "parse", "probe", "sharing", "visibility"]

#: The variables that change which devices there are, or their order; if one changes, the driver is asked again.
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")

_NUMBER = re.compile(r"\s*[+-]?\d+")

# Uses only ctypes to call libcuda, so that the child starts as fast as a bare interpreter.
_CHILD = """
import ctypes, json, sys, uuid
def ask():
    try:
        cuda = ctypes.CDLL(sys.argv[1])
    except OSError as error:
        return {"reason": f"no CUDA driver: {error}"}
    status = cuda.cuInit(0)
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(status, ctypes.byref(text))
        return {"reason": f"cuInit failed: {(text.value or b'').decode()} ({status})", "status": status}
    version, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(count))
    devices = []
    for index in range(count.value):
        device, name, raw = ctypes.c_int(), ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, 256, device)
        getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)(ctypes.byref(raw), device)
        mps = ctypes.c_int()
        known = cuda.cuDeviceGetAttribute(ctypes.byref(mps), 133, device) == 0  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED
        found = {"name": name.value.decode(), "uuid": str(uuid.UUID(bytes=bytes(raw)))}
        devices.append({**found, "mps": bool(known and mps.value)})
    return {"devices": devices, "version": version.value, "reason": "" if devices else "the driver shows no device"}
print(json.dumps(ask()))
"""


@dataclass(frozen=True, slots=True)
class Found:
    """One device, in CUDA's order; `mps` says whether contexts on it are shared through MPS."""

    name: str
    uuid: str
    mps: bool = False

    @property
    def word(self) -> str:
        """The word that selects the device in CUDA_VISIBLE_DEVICES, whatever its order."""
        return f"{'MIG' if self._mig() else 'GPU'}-{self.uuid}"

    def sharing(self) -> dict[str, str]:
        """Return how the GPU is shared: the profile of a MIG instance, and the share of threads that MPS allows."""
        threads = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
        mps = f"on, {threads} % of the threads" if threads else "on"
        return {**({"mig": profile} if (profile := self._mig()) else {}), **({"mps": mps} if self.mps else {})}

    def _mig(self) -> str:
        """Return the profile, such as ``1g.18gb``, which the driver appends to the name of the GPU."""
        return self.name.partition(" MIG ")[2].strip()


@dataclass(frozen=True, slots=True)
class Probe:
    """The child's answer; `reason` is empty if there are devices."""

    devices: tuple[Found, ...]
    reason: str
    version: int = 0


def probe() -> Probe:
    """Return the child's answer, which is requested once for each state of the relevant variables."""
    environment = tuple(os.environ.get(name) for name in _VARIABLES)
    mask = environment[0]
    if mask is not None and not _may_name_a_device(mask):
        return Probe((), f"CUDA_VISIBLE_DEVICES={mask!r} hides every device")
    return _probe(environment)


def sharing(index: int) -> dict[str, str]:
    """Return how device `index` is shared; see `Found.sharing`."""
    found = probe().devices[index : index + 1]
    return found[0].sharing() if found else {}


def visibility() -> tuple[str, list[str]]:
    """Return the variable that selects devices for a new process, and the word of each device that is visible now."""
    return "CUDA_VISIBLE_DEVICES", [found.word for found in probe().devices]


def _may_name_a_device(text: str) -> bool:
    """Whether the driver could find a device in `text`: it must start with a number or the beginning of a UUID."""
    first = text.partition(",")[0].strip()
    return first.startswith(("GPU-", "MIG-")) or (_NUMBER.match(first) is not None and not first.startswith("-"))


@cache
def _probe(environment: tuple[str | None, ...]) -> Probe:
    if settings.get("CUASSAY_NVML_BASED_CUDA_CHECK") and _nvml_count() == 0:
        return Probe((), "NVML sees no device")
    seconds = settings.get("CUASSAY_PROBE_SECONDS")
    command = [sys.executable, "-I", "-S", "-c", _CHILD, "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds or None, check=False)
    except subprocess.TimeoutExpired:
        return Probe((), f"the CUDA driver did not answer within {seconds:g} s (CUASSAY_PROBE_SECONDS)")
    except OSError as error:
        return Probe((), f"the probe process could not be started: {error}")
    return _read(done.stdout, done.returncode)


def _read(text: str, returncode: int) -> Probe:
    try:
        answer = json.loads(text)
    except ValueError:
        return Probe((), f"the process that asked the CUDA driver ended with status {returncode}")
    devices = tuple(Found(**device) for device in answer.get("devices", ()))
    reason = answer["reason"]
    if reason and os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        reason += f" (CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r})"
    return Probe(devices, reason, answer.get("version", 0))


def _nvml_count() -> int | None:
    """Return the number of devices, or None if NVML cannot tell; then the driver is asked."""
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
        try:
            return int(nvml.device_get_count_v2())
        finally:
            nvml.shutdown()
    except (ImportError, RuntimeError, AttributeError):
        return None
    except Exception as error:
        if type(error).__module__.startswith("cuda."):  # its NvmlError derives from Exception
            return None
        raise


def parse(text: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the indices, among devices of `uuids` in unmasked order, that CUDA_VISIBLE_DEVICES=`text` leaves visible.

    Parameters
    ----------
    text : str or None
        Indices, or beginnings of ``GPU-...`` or ``MIG-...`` UUIDs, separated by commas; None means unset.
    uuids : sequence of str
        ``GPU-...`` or ``MIG-...`` of every device, in the driver's order.

    Returns
    -------
    list of int
        The result follows the driver's rules: the first invalid or ambiguous entry ends the list, and a duplicate
        empties it. A number is read up to its last digit, so ``"1x"`` is 1.
    """
    if text is None:
        return list(range(len(uuids)))
    chosen: list[int] = []
    for entry in text.split(","):
        place = _place(entry.strip(), uuids)
        if place is None:
            break
        if place in chosen:
            return []
        chosen.append(place)
    return chosen


def _place(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.startswith(("GPU-", "MIG-")):
        matches = [place for place, uuid in enumerate(uuids) if uuid.startswith(entry)]
        return matches[0] if len(matches) == 1 else None
    number = _NUMBER.match(entry)
    place = int(number[0]) if number else -1
    return place if 0 <= place < len(uuids) else None
