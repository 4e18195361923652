"""What plugins for pytest-xdist see of a worker of ``pytest --cuassay-isolate``: their hooks, and a node object.

Such a plugin takes a process with ``config.workerinput`` for a worker of xdist, and expects it to contain what its hook
``pytest_configure_node`` has stored. Its hook ``pytest_testnodedown`` gets what the worker stored in
``config.workeroutput``.
"""

from __future__ import annotations

import os
import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ["Node", "Told", "followers"]

#: Plugins whose hooks are not called. pytest-cov measures the controller as if there were no workers, and combines the
#: files that these leave. Our own plugin would look for devices that no test may need.
_LEFT_OUT = ("_cov", "cuassay_workers")


def followers(config: pytest.Config) -> list[str]:
    """The plugins that communicate with xdist workers while these are configured."""
    manager = config.pluginmanager
    hook = getattr(manager.hook, "pytest_configure_node", None)
    found = [] if hook is None else hook.get_hookimpls()
    return [str(one.plugin_name) for one in found if one.plugin_name not in _LEFT_OUT]


class Told(dict[str, Any]):
    """The ``workerinput`` of a worker."""

    def __missing__(self, key: str) -> Any:
        """Raise for a key that no plugin has set in the controller."""
        raise pytest.UsageError(
            f"a plugin or conftest reads workerinput[{key!r}], which its hook pytest_configure_node has not set; "
            "install pytest-xdist, by which such plugins know that there are workers, or leave out --cuassay-isolate"
        )


class Node:
    """A worker as plugins for xdist know it.

    Parameters
    ----------
    config : pytest.Config
        The controller's configuration.
    run : str
        The id of the session, the same for all of its workers.

    Attributes
    ----------
    workerinput : dict
        Plain data that plugins send to the worker.
    workeroutput : dict
        What plugins of the worker stored there. As with xdist, it is absent if the worker did not finish.
    """

    workeroutput: dict[str, Any]

    def __init__(self, config: pytest.Config, run: str) -> None:
        self.config = config
        self.gateway = SimpleNamespace(id="master", spec=SimpleNamespace(popen=True, chdir=None))
        self.nodemanager = SimpleNamespace(roots=[], specs=[self.gateway.spec], testrunuid=run)
        self.workerinput: dict[str, Any] = {
            "workerid": "master",  # xdist's name if tests are not distributed; only one worker runs tests at a time
            "workercount": 1,
            "testrunuid": run,
            "mainargv": sys.argv,
            "cov_master_host": socket.gethostname(),
            "cov_master_topdir": str(config.invocation_params.dir),
        }

    def __repr__(self) -> str:
        return f"Node({self.gateway.id})"

    def configure(self) -> dict[str, Any]:
        """Let the plugins store what the worker needs to know, and return it."""
        self._call("pytest_configure_node")
        return self.workerinput

    def went_down(self, error: str | None) -> None:
        """Tell the plugins that the worker has ended, with `error` if it failed."""
        self._call("pytest_testnodedown", error=error)

    def words(self) -> list[str]:
        """The worker's command line: that of the controller, with an option that keeps pytest-cov's earlier data."""
        words = [os.fspath(word) for word in self.config.invocation_params.args]
        return ["--cov-append", *words] if self.config.pluginmanager.hasplugin("_cov") else words

    def _call(self, name: str, **values: Any) -> None:
        manager = self.config.pluginmanager
        if not hasattr(manager.hook, name):  # neither xdist nor another plugin has declared the hook
            return
        left_out = [plugin for plugin in map(manager.get_plugin, _LEFT_OUT) if plugin is not None]
        manager.subset_hook_caller(name, left_out)(node=self, **values)
