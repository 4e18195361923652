"""What the simulated device can do, and how fast it pretends to be: a table of profiles.

A profile is a set of *missing* things, each with its reason; everything else is available. The text of a reason
contains what a probe of the real device would have found, such as the version of macOS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cuassay.core.capability import DTYPE_NAMES, NOT_DRAWN, Answer, absent, present
from cuassay.errors import SettingError

__all__ = ["PROFILES", "Profile", "profile"]


#: What every profile lacks, because the simulation does not have it.
_NEVER: dict[str, str] = {
    "vmm": "arrays lie in one flat arena; only the allocator's blocks are mapped page by page",
    "ipc": "the simulated memory belongs to one process",
    "cublaslt": "products of the simulation are NumPy's",
    "complex_half": "NumPy has no complex dtype of two float16",
    "l2": "caches are not simulated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One capability set.

    Attributes
    ----------
    name : str
        The value of ``CUASSAY_SIM_PROFILE``.
    features : mapping
        Maps missing features and quantities to reasons.
    dtypes : mapping
        Maps missing dtypes (``"float64"``), or dtypes missing in one op class (``"matmul:complex64"``), to reasons.
    compute : float
        The compute capability, major.minor; 0 if the device has none.
    bandwidth : float
        Virtual bytes per second.
    throughput : float
        Virtual floating-point operations per second.
    """

    name: str
    features: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    compute: float = 0.0
    bandwidth: float = 4.8e12
    throughput: float = 67e12

    def seconds(self, nbytes: int, flops: float) -> float:
        """Return the virtual time of moving `nbytes` and computing `flops`, both at full rate and overlapped."""
        return max(nbytes / self.bandwidth, flops / self.throughput)

    def answer(self, name: str, *, memory: int, devices: int) -> Answer:
        """Return whether a device of this profile has capability `name`."""
        reason = self._why_missing(name)
        if reason is not None:
            return absent(reason)
        if name == "peer_access" and devices < 2:
            return absent("there is one simulated device; set CUASSAY_SIM_DEVICES=2 or more")
        return present({"memory": memory, "count": devices, "compute": self.compute}.get(name, 0))

    def _why_missing(self, name: str) -> str | None:
        op_class, _, dtype = name.rpartition(":")
        if dtype in DTYPE_NAMES:
            if op_class == "random":
                return self.dtypes.get(dtype) or NOT_DRAWN.get(dtype)
            return self.dtypes.get(dtype) or self.dtypes.get(name)
        if name == "compute" and not self.compute:
            return f"the profile {self.name} imitates no CUDA device"
        return self.features.get(name) or _NEVER.get(name)


_METAL_DTYPES = {
    "float64": "Metal has no 64-bit floating point",
    "complex128": "Metal has no 64-bit floating point",
    "float8_e4m3fn": "Metal has no 8-bit floating point",
    "float8_e5m2": "Metal has no 8-bit floating point",
    "matmul:complex64": "Metal Performance Shaders have no complex matrix product",
    "reduction:complex64": "Metal Performance Shaders have no complex reduction",
}
_METAL_FEATURES = {
    "graphs": "Metal command buffers run once; work cannot be captured for replay",
    "conditional_graphs": "Metal has no graphs",
    "peer_access": "Metal devices do not read each other's memory",
    "tf32": "Metal has no TF32",
    "fp8": "Metal has no 8-bit floating point",
    "complex": "complex64 is stored and computed element by element only, complex128 not at all",
}
_MINIMAL_DTYPES = ("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float64", "complex64", "complex128")

#: The profiles. `h200` lacks only what the simulation itself lacks.
PROFILES: dict[str, Profile] = {
    found.name: found
    for found in (
        Profile(name="h200", compute=9.0),
        # torch's MPS backend as of macOS 14: this version added bfloat16, complex is partial, and float64 is missing.
        Profile(name="mps", features=_METAL_FEATURES, dtypes=_METAL_DTYPES, bandwidth=0.4e12, throughput=13e12),
        Profile(
            name="mps-macos13",
            features=_METAL_FEATURES,
            dtypes=_METAL_DTYPES | {"bfloat16": "bfloat16 needs macOS 14; this is macOS 13"},
            bandwidth=0.4e12,
            throughput=13e12,
        ),
        # Slices are copies, as in JAX, MLX and others; everything else is the same as on h200.
        Profile(name="copies", compute=9.0, features={"views": "the profile copies gives a copy for each slice"}),
        # The least that a kind may offer: code written for `h200` must not assume more.
        Profile(
            name="minimal",
            features={
                "streams": "the profile minimal has one stream",
                "timing": "the profile minimal has no device clock",
                "graphs": "the profile minimal captures nothing",
                "conditional_graphs": "the profile minimal captures nothing",
                "peer_access": "the profile minimal has no link between devices",
                "tf32": "the profile minimal computes float32 as it is",
                "fp8": "the profile minimal has float32 and integers only",
                "complex": "the profile minimal has float32 and integers only",
            },
            dtypes=dict.fromkeys(_MINIMAL_DTYPES, "the profile minimal has float32 and integers only"),
            bandwidth=0.1e12,
            throughput=1e12,
        ),
    )
}


def profile(name: str) -> Profile:
    """Return the profile of that name. Raises `SettingError` if there is none."""
    try:
        return PROFILES[name]
    except KeyError:
        known = ", ".join(PROFILES)
        raise SettingError(f"the simulated device has no profile {name!r}; choose one of {known}") from None
