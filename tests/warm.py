"""Kernels that need no second to start: each is forked from a process that has imported what every notebook imports.

A kernel of its own takes two to three seconds for torch and matplotlib, and a run starts nearly fifty. Forked from
`multiprocessing`'s fork server it takes a tenth of one. What of ours is imported beforehand is what every notebook
imports itself (`tests/test_notebooks.py` holds it to that), so no notebook finds more than it has asked for; besides,
torch and matplotlib are made to import what they bring themselves at their first use (`warmed.py`). Where a fork is
unknown (Windows) or unsafe after such imports (macOS), kernels start as always.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

BEFOREHAND = ["torch", "course_lib.live"]


def install() -> None:
    """Let every kernel that this process starts be a warm one, if forking is safe."""
    if sys.platform == "linux":
        group = KernelProvisionerFactory.GROUP_NAME
        KernelProvisionerFactory.provisioners["warm"] = EntryPoint("warm", f"{__name__}:Warm", group)
        KernelProvisionerFactory.instance().default_provisioner_name = "warm"


class Warm(LocalProvisioner):
    """Launches a kernel by forking it; all else is as for any local kernel."""

    async def launch_kernel(self, cmd, **kwargs):
        if "ipykernel_launcher" not in cmd:  # a kernel of another kind
            return await super().launch_kernel(cmd, **kwargs)
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        self.process = Forked(arguments, os.fspath(kwargs.get("cwd") or os.getcwd()), dict(kwargs["env"]))
        self.pid = self.pgid = self.process.pid  # it leads a group of its own
        self.cwd = kwargs.get("cwd")
        return self.connection_info


class Forked:
    """A forked kernel with the face of `subprocess.Popen`, which a provisioner expects."""

    stdin = stdout = stderr = None
    _clean_path: list[str] | None = None

    def __init__(self, arguments: list[str], folder: str, environment: dict[str, str]):
        if Forked._clean_path is None:  # pytest has added folders to its own
            seen = subprocess.check_output([sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"])
            Forked._clean_path = json.loads(seen)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["ipykernel.kernelapp", "ipykernel.ipkernel", *BEFOREHAND, "tests.warmed"])
        given = (arguments, folder, environment, Forked._clean_path)
        self._process = context.Process(target=be_a_kernel, args=given, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def be_a_kernel(arguments: list[str], folder: str, environment: dict[str, str], path: list[str]) -> None:
    """Become what `python -m ipykernel_launcher` is, in a process that was forked for it."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    sys.path[:] = path
    sys.argv = ["ipykernel_launcher", *arguments]
    multiprocessing.current_process()._config["daemon"] = False  # it may start processes, as any kernel may
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(arguments)
