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
from contextlib import suppress
from pathlib import Path

import nbformat
from jupyter_client import BlockingKernelClient

PATIENCE = 240  # seconds for anything that a slow machine does: a server starts, a kernel imports torch, a cell ends
_SETTINGS = {"@jupyterlab/apputils-extension/notification.jupyterlab-settings":
             {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
             "@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none"}}  # all cells stay


class LabServer:
    """A JupyterLab that sees nothing of its user's settings; `stop` ends it and its kernels, whatever they do."""

    def __init__(self, folder: Path, package: Path):
        self.folder, self.token, self.port = folder / "work", secrets.token_hex(16), _free_port()
        self._runtime, self._log = folder / "runtime", (folder / "server.log").open("w+")
        places = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
                  "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
                  "IPYTHONDIR": "ipython"}
        for name in (*places.values(), "work"):
            (folder / name).mkdir()
        for name, content in _SETTINGS.items():
            path = folder / "settings" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content))
        environment = os.environ | {name: str(folder / place) for name, place in places.items()} | {
            "PYTHONPATH": str(package), "JUPYTER_PREFER_ENV_PATH": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--ServerApp.port={self.port}", "--allow-root",
                   "--ServerApp.ip=127.0.0.1", "--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}",
                   f"--ServerApp.root_dir={self.folder}", "--LabApp.news_url=", "--ServerApp.terminals_enabled=False",
                   "--LabApp.expose_app_in_browser=True"]
        # A group of its own, so that the kernels end with the server even when it cannot be asked to end them.
        self._process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                         stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            self._await()
        except BaseException:
            self.stop()
            raise

    def _await(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            with suppress(OSError):
                self.ask("GET", "/api/status")
                return
            time.sleep(0.5)
        self._log.seek(0)
        raise RuntimeError(f"JupyterLab does not answer:\n{self._log.read()[-3000:]}")

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

    def await_kernel(self, name: str) -> None:
        """Wait until a notebook has a kernel that waits for work."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for session in self.ask("GET", "/api/sessions"):
                if session["path"] == name and session["kernel"]["execution_state"] == "idle":
                    return
            time.sleep(0.5)
        raise RuntimeError(f"no kernel runs {name}: {self.ask('GET', '/api/sessions')}")

    def kernel_of(self, name: str) -> BlockingKernelClient:
        """Return a second client of the kernel that runs a notebook; stop its channels in the end."""
        session, = (session for session in self.ask("GET", "/api/sessions") if session["path"] == name)
        client = BlockingKernelClient()
        client.load_connection_file(str(self._runtime / f"kernel-{session['kernel']['id']}.json"))
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
        self._log.close()


def value_of(client: BlockingKernelClient, expression: str) -> object:
    """Return the value of an expression in a kernel, whatever JSON can hold."""
    found = []

    def hear(message):
        if message["msg_type"] == "stream":
            found.append(message["content"]["text"])

    answer = client.execute_interactive(f"import json; print(json.dumps({expression}))", store_history=False,
                                        timeout=PATIENCE, output_hook=hear)
    if answer["content"]["status"] != "ok":
        raise AssertionError(f"{expression}: {answer['content'].get('ename')}: {answer['content'].get('evalue')}")
    return json.loads("".join(found))


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]
