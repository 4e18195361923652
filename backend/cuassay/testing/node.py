"""What plugins for pytest-xdist see of a worker of ``pytest --cuassay-isolate``: their hooks, and a node to talk to.

Such a plugin takes a process with ``config.workerinput`` for a worker of xdist, and expects there what its own hook
``pytest_configure_node`` has put in. What it leaves in ``config.workeroutput`` reaches its ``pytest_testnodedown``.
"""

from __future__ import annotations

import os
import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ["Node", "Told", "followers"]

#: Not called: pytest-cov measures the process that reports as if there were no workers, and combines the files that
#: they leave; ours would look for devices that no test may need.
_LEFT_OUT = ("_cov", "cuassay_workers")


def followers(config: pytest.Config) -> list[str]:
    """The plugins that talk to workers of xdist while these are configured."""
    manager = config.pluginmanager
    hook = getattr(manager.hook, "pytest_configure_node", None)
    found = [] if hook is None else hook.get_hookimpls()
    return [str(one.plugin_name) for one in found if one.plugin_name not in _LEFT_OUT]


class Told(dict[str, Any]):
    """The ``workerinput`` of a worker."""

    def __missing__(self, key: str) -> Any:
        """Refuse what the process that reports was not asked to tell."""
        raise pytest.UsageError(
            f"a plugin or conftest reads workerinput[{key!r}], which its hook pytest_configure_node has not set; "
            "install pytest-xdist, by which such plugins know that there are workers, or leave out --cuassay-isolate"
        )


class Node:
    """A worker as plugins for xdist know it.

    Parameters
    ----------
    config : pytest.Config
        Of the process that reports.
    run : str
        Id of the session, the same for each of its workers.

    Attributes
    ----------
    workerinput : dict
        What plugins tell the worker; it is plain data.
    workeroutput : dict
        What plugins of the worker left there; absent, as it is with xdist, if the worker did not come to its end.
    """

    workeroutput: dict[str, Any]

    def __init__(self, config: pytest.Config, run: str) -> None:
        self.config = config
        self.gateway = SimpleNamespace(id="master", spec=SimpleNamespace(popen=True, chdir=None))
        self.nodemanager = SimpleNamespace(roots=[], specs=[self.gateway.spec], testrunuid=run)
        self.workerinput: dict[str, Any] = {
            "workerid": "master",  # xdist's word where tests are not spread; at any time one worker runs tests
            "workercount": 1,
            "testrunuid": run,
            "mainargv": sys.argv,
            "cov_master_host": socket.gethostname(),
            "cov_master_topdir": str(config.invocation_params.dir),
        }

    def __repr__(self) -> str:
        return f"Node({self.gateway.id})"

    def configure(self) -> dict[str, Any]:
        """Let the plugins tell the worker what it must know."""
        self._call("pytest_configure_node")
        return self.workerinput

    def went_down(self, error: str | None) -> None:
        """Let the plugins see that the worker has ended, by `error` or well."""
        self._call("pytest_testnodedown", error=error)

    def words(self) -> list[str]:
        """The worker's command line: as here, and pytest-cov must not erase what other workers have left."""
        words = [os.fspath(word) for word in self.config.invocation_params.args]
        return ["--cov-append", *words] if self.config.pluginmanager.hasplugin("_cov") else words

    def _call(self, name: str, **values: Any) -> None:
        manager = self.config.pluginmanager
        if not hasattr(manager.hook, name):  # nobody has it: xdist declares it, or a plugin that does not need xdist
            return
        left_out = [plugin for plugin in map(manager.get_plugin, _LEFT_OUT) if plugin is not None]
        manager.subset_hook_caller(name, left_out)(node=self, **values)
