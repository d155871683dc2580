"""A JupyterLab of its own: a server on a free port in a temporary folder, its pages, its kernels, and their end."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import nbformat
from jupyter_client import BlockingKernelClient

PATIENCE = 240  # seconds for anything that a slow machine does: a server starts, a kernel imports torch, a cell ends
_SETTINGS = {"@jupyterlab/apputils-extension/notification.jupyterlab-settings":
             {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
             "@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none"}}  # all cells stay
_PLACES = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
           "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")


def wait(ask: Callable[[], object]) -> None:
    """Call a function until what it returns is true."""
    end = time.monotonic() + PATIENCE
    while not ask():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.3)


class LabServer:
    """A JupyterLab that sees nothing of its user's settings; `stop` ends it and its kernels, whatever they do."""

    def __init__(self, folder: Path, package: Path):
        self.folder, self.token = folder / "work", secrets.token_hex(16)
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            self.port = held.getsockname()[1]
        self._places = {name: folder / name for name in _PLACES}
        for place in (*self._places.values(), self.folder):
            place.mkdir()
        for name, content in _SETTINGS.items():
            path = self._places["JUPYTERLAB_SETTINGS_DIR"] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content))
        environment = os.environ | {name: str(place) for name, place in self._places.items()} | {
            "PYTHONPATH": str(package), "JUPYTER_PREFER_ENV_PATH": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--ServerApp.port={self.port}", "--allow-root",
                   "--ServerApp.ip=127.0.0.1", "--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}",
                   f"--ServerApp.root_dir={self.folder}", "--LabApp.news_url=", "--ServerApp.terminals_enabled=False",
                   "--LabApp.expose_app_in_browser=True"]
        # A group of its own, so that the kernels end with the server even when it cannot be asked to end them.
        self._process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                         stdout=(folder / "server.log").open("w"), stderr=subprocess.STDOUT,
                                         start_new_session=True)
        try:
            wait(self._answers)
        except BaseException as error:
            self.stop()
            raise RuntimeError(f"JupyterLab does not answer:\n{(folder / 'server.log').read_text()[-3000:]}") from error

    def _answers(self) -> bool:
        assert self._process.poll() is None
        with suppress(OSError):
            return bool(self.ask("GET", "/api/status"))
        return False

    def ask(self, method: str, path: str) -> object:
        """Call the server's API and return what it answers."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method,
                                         headers={"Authorization": f"token {self.token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def write(self, name: str, *cells: str) -> str:
        """Write a notebook of code cells into the server's folder and return the address at which Lab opens it."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.folder / name)
        return f"http://127.0.0.1:{self.port}/lab/workspaces/auto-{Path(name).stem}/tree/{name}?token={self.token}"

    def await_kernel(self) -> None:
        """Wait until the one notebook that is open has a kernel that waits for work."""
        wait(lambda: "idle" in [each["kernel"]["execution_state"] for each in self.ask("GET", "/api/sessions")])

    def kernel(self) -> BlockingKernelClient:
        """Return a second client of that kernel; stop its channels in the end."""
        (session,) = self.ask("GET", "/api/sessions")
        client = BlockingKernelClient()
        client.load_connection_file(str(self._places["JUPYTER_RUNTIME_DIR"] / f"kernel-{session['kernel']['id']}.json"))
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE)
        return client

    def stop(self) -> None:
        """End the server with its kernels, and every process that they left."""
        with suppress(OSError, ValueError):
            for kernel in self.ask("GET", "/api/kernels"):
                self.ask("DELETE", f"/api/kernels/{kernel['id']}")
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20)


def value_of(client: BlockingKernelClient, expression: str) -> object:
    """Return the value of an expression in a kernel, whatever JSON can hold."""
    found = []
    answer = client.execute_interactive(
        f"import json; print(json.dumps({expression}))", store_history=False, timeout=PATIENCE,
        output_hook=lambda message: found.append(message["content"].get("text", "")))
    assert answer["content"]["status"] == "ok", f"{expression}: {answer['content']}"
    return json.loads("".join(found))
