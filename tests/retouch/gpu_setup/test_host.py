"""The driver is queried with the nvidia-smi on PATH; any failure is reported as a reason in words."""

from __future__ import annotations

import http.server
import socketserver
import sys
import threading
import time
import venv
from pathlib import Path

import pytest

from engines.trt.library import MODULES
from retouch.gpu_setup.errors import InstallFailed
from retouch.gpu_setup.host import (
    Driver,
    Gpu,
    SearchFolders,
    TimeLimits,
    ask_driver,
    find_system_tensorrt,
    index_answers,
    read_answer,
    this_host,
)

L4 = "NVIDIA L4, 580.65.06, 8.9"


@pytest.fixture
def put_smi(tmp_path):
    """Put an nvidia-smi that prints the text and exits with the status on its own PATH; returns that environment."""

    def put(text: str, status: int = 0, *, mode: int = 0o755) -> dict[str, str]:
        command = tmp_path / "bin" / "nvidia-smi"
        command.parent.mkdir()
        command.write_text(f"#!/bin/sh\necho '{text}'\nexit {status}\n")
        command.chmod(mode)
        return {"PATH": str(command.parent)}

    return put


def places(pci: Path) -> SearchFolders:
    """Return the folders of a host whose only nvidia-smi is on PATH."""
    return SearchFolders(pci, wsl=pci / "none")


def write_card(pci: Path, vendor: str, kind: str) -> None:
    card = pci / "0000:01:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text(f"{vendor}\n")
    (card / "class").write_text(f"{kind}\n")


def test_a_driver_names_its_gpus(put_smi, tmp_path):
    assert ask_driver(put_smi(f"{L4}\nNVIDIA H200, 580.65.06, 9.0"), places(tmp_path)) == Driver(
        (580, 65, 6), (Gpu("NVIDIA L4", (8, 9)), Gpu("NVIDIA H200", (9, 0)))
    )


def test_without_nvidia_smi_and_without_a_card_there_is_nothing_to_say(tmp_path):
    assert ask_driver({"PATH": str(tmp_path)}, places(tmp_path)) == Driver()


@pytest.mark.parametrize(
    ("vendor", "kind", "is_said"),
    [
        pytest.param("0x10de", "0x030200", True, id="NVIDIA's for computing"),
        pytest.param("0x10de", "0x030000", True, id="NVIDIA's with a display"),
        pytest.param("0x10de", "0x0c0330", False, id="NVIDIA's, but USB"),
        pytest.param("0x1002", "0x030000", False, id="another maker's"),
    ],
)
def test_a_card_without_a_driver_is_a_problem(tmp_path, vendor, kind, is_said):
    write_card(tmp_path / "pci", vendor, kind)
    problem = ask_driver({"PATH": str(tmp_path)}, places(tmp_path / "pci")).problem
    assert problem == ("no driver for it: nvidia-smi is not installed" if is_said else "")


@pytest.mark.parametrize(
    ("text", "status", "problem"),
    [
        ("NVIDIA-SMI has failed because it cannot talk to the driver.", 9, "nvidia-smi fails: NVIDIA-SMI has failed"),
        ("No devices were found", 0, "nvidia-smi shows no usable GPU: No devices were found"),
        ("Old Card, 340.108, [N/A]", 0, "nvidia-smi shows no usable GPU: Old Card"),
        (f"{L4}\n[Unknown Error]", 0, "nvidia-smi shows no usable GPU"),
        ("", 0, "nvidia-smi shows no usable GPU: no output"),
    ],
)
def test_an_answer_without_a_usable_gpu_is_quoted_as_the_problem(put_smi, tmp_path, text, status, problem):
    driver = ask_driver(put_smi(text, status), places(tmp_path))
    assert driver.problem.startswith(problem)
    assert driver.gpus == ()


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_are_hidden_from_this_process_do_not_count(put_smi, tmp_path, hidden):
    assert ask_driver({**put_smi(L4), "CUDA_VISIBLE_DEVICES": hidden}, places(tmp_path)) == Driver()


@pytest.mark.parametrize("script", ["trap '' TERM INT\nsleep 30", "sleep 30 &\nwait"])
def test_a_driver_that_does_not_answer_is_left_after_a_while_with_whatever_it_started(put_smi, tmp_path, script):
    said: list[str] = []
    environ = put_smi(L4)
    (tmp_path / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}\n")
    began = time.monotonic()
    patience = TimeLimits(seconds=0.3, quiet_seconds=0.1, notify=said.append)
    assert ask_driver(environ, places(tmp_path), patience).problem == "nvidia-smi does not answer within 0.3 s"
    assert said == ["asking the NVIDIA driver"]
    assert time.monotonic() - began < 10


def test_a_child_that_a_quick_driver_leaves_running_is_neither_awaited_nor_reported(put_smi, tmp_path):
    environ = put_smi(L4)
    (tmp_path / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\necho '{L4}'\n/bin/sleep 30 &\n")
    said: list[str] = []
    began = time.monotonic()
    patience = TimeLimits(quiet_seconds=15, notify=said.append)  # a busy machine may start a shell late
    assert ask_driver(environ, places(tmp_path), patience).version == (580, 65, 6)
    assert (said, time.monotonic() - began < 20) == ([], True)


def test_an_nvidia_smi_that_cannot_be_started_is_a_problem(put_smi, tmp_path):
    environ = put_smi(L4)
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/no/such/shell\n")
    assert ask_driver(environ, places(tmp_path)).problem.startswith("nvidia-smi does not start (")


def test_spaces_around_the_lines_do_not_matter():
    assert read_answer(f"\n {L4} \r\n\n").gpus == (Gpu("NVIDIA L4", (8, 9)),)


def test_this_host_is_described_without_the_network(put_smi, monkeypatch, tmp_path):
    for module in MODULES:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    host = this_host(put_smi(L4))
    assert (host.python, host.system, host.nvidia_index) == (sys.version_info[:2], sys.platform, "")
    assert host.driver.version == (580, 65, 6)
    assert (host.tensorrt, host.system_tensorrt) == ("", None)


def test_a_systems_tensorrt_must_have_the_library(tmp_path):
    venv.create(tmp_path / "system")
    python = tmp_path / "system" / "bin" / "python"
    assert find_system_tensorrt(python) is None
    package = next((tmp_path / "system").glob("lib/python3*/site-packages")) / "tensorrt"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '10.9.0'\n")
    assert find_system_tensorrt(python) is None
    (package / "__init__.py").write_text("__version__ = '10.9.0'\nOnnxParser = object\n")
    assert find_system_tensorrt(python) == ("10.9.0", package)
    assert find_system_tensorrt(tmp_path / "no-python") is None


class Index(http.server.BaseHTTPRequestHandler):
    """A package index that has the TensorRT library for CUDA 13."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/simple/tensorrt-cu13-libs/" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_an_index_answers_if_it_has_the_library():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert index_answers(f"{address}/simple/")
        assert not index_answers(f"{address}/other")
        server.shutdown()
    assert not index_answers(address, seconds=1)


def test_a_server_that_speaks_something_else_is_no_index():
    class Banner(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Banner) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert not index_answers(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()


@pytest.mark.parametrize("address", ["nonsense://", "http://host:port", "http://[::1", "http://a b/"])
def test_what_is_no_address_is_an_error_that_names_the_setting(address):
    with pytest.raises(InstallFailed, match=r"not the address of a package index .*RETOUCH_NVIDIA_INDEX"):
        index_answers(address)


def test_a_folder_of_wheels_is_an_index(tmp_path):
    assert not index_answers(str(tmp_path))
    (tmp_path / "tensorrt_cu13_libs-11.4.0.106-py3-none-manylinux_2_28_x86_64.whl").touch()
    assert index_answers(str(tmp_path))
