"""How a client reaches a cluster of dask: one of this machine, started for a run, or one that runs somewhere."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from cuassay.core import extras
from cuassay.errors import CapabilityError, StateError
from cuassay.fleet import forks
from cuassay.fleet.places import local_offers, offers
from cuassay.fleet.shard import COMPILED

__all__ = ["connected", "local_cluster", "require_dask", "security_of", "work"]

_START_SECONDS = 60.0

_CONNECTS = 30.0

#: When a cluster of dask closes the nanny of a lost worker. It does so even if the worker was restarted and lost again.
_GIVE_UP_AFTER = "distributed.deploy.lost-worker-timeout"

#: dask samples the stack of the thread that waits for a shard and measures how late its event loop is, many times a
#: second in each worker, and nobody sees the result here. With four workers that took a tenth of a core.
_QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}

#: How the warning of dask begins where the disk is slow. It tells a delay, so a run survives it under ``-W error`` too.
_SLOW_DISK = "Creating scratch directories is taking"


def require_dask() -> Any:
    """The module `distributed`.

    Raises
    ------
    CapabilityError
        It is not installed.
    """
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise CapabilityError(
            f"a fleet needs {error.name}, which is not installed; install it with: {extras.pip_install('fleet')}"
        ) from error
    return distributed


def security_of(ca: str | None, certificate: str | None, key: str | None) -> Any:
    """TLS for the client and for workers, or None where no file is named."""
    if ca is None and certificate is None and key is None:
        return None
    own = {
        f"tls_{who}_{what}": path
        for who in ("client", "worker")
        for what, path in (("cert", certificate), ("key", key))
    }
    return require_dask().Security(require_encryption=True, tls_ca_file=ca, **own)


@contextmanager
def local_cluster(
    kinds: Sequence[str], number: int, dashboard: str | None = None, *, is_forked: bool = False
) -> Iterator[Any]:
    """A client of a scheduler and `number` workers of this machine, which end with the block.

    Parameters
    ----------
    kinds : sequence of str
        The kinds of devices that each worker has.
    number : int
        How many workers there are.
    dashboard : str, optional
        Where dask's dashboard listens; none by default.
    is_forked : bool
        Fork the workers from the server that `forks.start` has started. They have its environment and working folder.
    """
    distributed = require_dask()
    import dask

    found = {
        offer.name: {"cls": distributed.Nanny, "options": offer.options()} for offer in local_offers(kinds, number)
    }
    scheduler = {
        "cls": distributed.Scheduler,
        "options": {"dashboard": dashboard is not None, "dashboard_address": dashboard or ":0", "host": "127.0.0.1"},
    }
    how = forks.use() if is_forked else {}
    with ExitStack() as stack:
        compiled = stack.enter_context(TemporaryDirectory(prefix="cuassay-", ignore_cleanup_errors=True))
        stack.enter_context(dask.config.set({_GIVE_UP_AFTER: "100 days", COMPILED: compiled, **_QUIET, **how}))
        with _patient():
            cluster = distributed.SpecCluster(workers=found, scheduler=scheduler, silence_logs=logging.ERROR)
        stack.enter_context(cluster)
        client = stack.enter_context(distributed.Client(cluster))
        client.wait_for_workers(number, timeout=_START_SECONDS)
        yield client


@contextmanager
def _patient() -> Iterator[None]:
    """Where dask starts: its warning of a slow disk stays a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("default", _SLOW_DISK)
        yield


@contextmanager
def connected(address: str, security: Any = None, seconds: float = _CONNECTS) -> Iterator[Any]:
    """A client of the scheduler at `address`, which answers within `seconds`, at most 30.

    Raises
    ------
    StateError
        Nobody answers there.
    """
    distributed = require_dask()
    try:
        client = distributed.Client(address, security=security, set_as_default=False, timeout=min(seconds, _CONNECTS))
    except (OSError, TimeoutError) as error:
        raise StateError(f"no scheduler answers at {address}: {error}; start one with: dask scheduler") from error
    with client:
        yield client


def work(address: str, kinds: Sequence[str], security: Any = None) -> None:
    """Offer the devices of this machine to the scheduler at `address`, until that ends."""
    import asyncio

    distributed = require_dask()

    async def run() -> None:
        with _patient():
            nannies = [distributed.Nanny(address, security=security, **offer.options()) for offer in offers(kinds)]
        try:
            await asyncio.gather(*nannies)
            await asyncio.gather(*(nanny.finished() for nanny in nannies))
        finally:
            await asyncio.gather(*(nanny.close() for nanny in nannies))

    asyncio.run(run())
