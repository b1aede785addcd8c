"""The images are really built, and started as by a container engine: without root, on a read-only file system."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image as Picture

from tests.docker import containers
from tests.docker.containers import ROOT, Container, Image, stopped
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow

DATA = ROOT / "tests" / "data"
NOBODY = 65532
MAX_BYTES = 900_000_000
EXTENSIONS = {
    "service/devices/_planes.abi3.so": "to_planes.default",
    "service/imaging/files/_png_filters.abi3.so": "restore_rows",
    "service/imaging/files/_scanlines.abi3.so": "pack_rows",
    "service/imaging/pasting/_pasting.abi3.so": "paste",
    "service/imaging/texture/_patch_match.abi3.so": "sweep",
}
"""Libraries compiled from C++, each with one of its functions."""
HADOLINT = Path(sys.executable).with_name("hadolint")


@pytest.mark.parametrize("name", ["cpu.Dockerfile", "gpu.Dockerfile"])
def test_the_dockerfiles_pass_the_linter(name: str) -> None:
    done = subprocess.run([HADOLINT, ROOT / "docker" / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_stays_the_same_in_both_dockerfiles_is_the_same() -> None:
    """A Dockerfile cannot include another, but the server's environment must not differ between them."""
    cpu, gpu = (
        (ROOT / "docker" / f"{name}.Dockerfile").read_text().partition("AS serve\n")[2] for name in ("cpu", "gpu")
    )
    its_own = re.compile(r" +(CUDA|NVIDIA)_|HEALTHCHECK|# The first start")
    assert cpu.splitlines()[-1] == 'CMD ["serve"]'
    assert [line for line in cpu.splitlines() if not its_own.match(line)] == [
        line for line in gpu.splitlines() if not its_own.match(line)
    ]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the images' Python has tomllib")
@pytest.mark.parametrize("name", ["cpu.Dockerfile", "gpu.Dockerfile"])
def test_the_images_are_told_to_install_what_serves_and_the_client_of_s3_and_what_is_asked_for(name: str) -> None:
    """Compose and Kubernetes store results in S3. The test runs the program in the Dockerfile."""
    text = (ROOT / "docker" / name).read_text()
    (program,) = re.findall(r'python3 -c "([^"]+)"\s+(?:\\\s+)?> dependencies.txt', text)
    program = program.replace("\\\n", "")  # as the shell joins lines
    (default,) = re.findall(r'ARG EXTRAS="([\w ]+)"', text)
    required = {}
    for extras in (default, f"{default} grpc"):
        environ = {**os.environ, "EXTRAS": extras}
        command = [sys.executable, "-c", program]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environ)
        required[extras] = {re.split(r"[^\w-]", line)[0] for line in listed.stdout.splitlines()}
        assert {"httpx", "fastapi", "openvino", "obstore"} <= required[extras]
        assert "retouch" not in required[extras]  # copied: an index may have another one of that name
    assert required[f"{default} grpc"] - required[default] == {"grpcio", "protobuf"}
    assert "--requirement dependencies.txt" in text


@pytest.fixture(scope="module")
def base() -> str:
    if missing := containers.missing_tools():
        pytest.skip(missing)
    return containers.make_base()


@pytest.fixture(scope="module")
def image(base: str) -> Iterator[Image]:
    assert (ROOT / "models/photos/5/model.onnx").exists(), "the checkout lacks the models that ship"
    with containers.unpacked(containers.build("localhost/retouch-test:cpu", "cpu.Dockerfile", BASE=base)) as image:
        yield image


@dataclass
class Served:
    url: str
    log: Path
    results: Path
    process: subprocess.Popen[str]
    key: str
    promised: set[str] = field(default_factory=set)
    """Ids of the results in all replies."""

    def post(self, **options: str) -> httpx.Response:
        files = {"image": (DATA / "dress.jpg").read_bytes(), "mask": (DATA / "dress_mask.png").read_bytes()}
        headers = {"X-API-Key": self.key}
        reply = httpx.post(f"{self.url}/v1/inpaint", files=files, data=options, headers=headers, timeout=120)
        if reply.status_code == 200:
            self.promised.add(reply.headers["Location"].rpartition("/")[2])
        return reply

    def in_flight(self) -> float:
        series = httpx.get(f"{self.url}/metrics", headers={"X-API-Key": self.key}, timeout=60).text
        return float(re.findall(r"^retouch_requests_in_flight (\S+)", series, re.MULTILINE)[0])

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False


def pixels(encoded: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.asarray(Picture.open(io.BytesIO(encoded)).convert("RGB"))


def volume(folder: Path) -> Path:
    folder.mkdir()
    folder.chmod(0o777)  # a container engine lets the image's user write to a named volume
    return folder


@pytest.fixture(scope="module")
def served(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run the image's default command with a key file, listening on loopback only."""
    folder = tmp_path_factory.mktemp("container")
    volumes = {f"/{name}": volume(folder / name) for name in ("results", "cache")}
    keys, scopes = Container(image, volumes), ("--scope", "inference", "--scope", "metrics")
    made = keys.run("keys", "create", "tester", *scopes, "--file", "/cache/keys.json")
    assert made.returncode == 0, made.stderr
    port = str(free_port())
    own = {"RETOUCH_HOST": "127.0.0.1", "RETOUCH_PORT": port, "RETOUCH_KEYS_FILE": "/cache/keys.json"}
    with (folder / "log").open("w") as log:
        process = Container(image, volumes, own).start(*image.config["Cmd"], stderr=log)
    try:
        running = Served(f"http://127.0.0.1:{port}", folder / "log", folder / "results", process, made.stdout.strip())
        wait_until(running.ready, 180)
        yield running
    finally:  # not killed, as the server, tini's child, would outlive it
        stopped(process, image, 90)


class TestCpuImage:
    def test_it_is_small_and_holds_no_compiler_no_torch_and_nothing_of_nvidia(self, image: Image) -> None:
        assert image.size_bytes <= MAX_BYTES
        assert not [tool for tool in ("cc", "gcc", "g++", "clang", "make") if (image.root / "usr/bin" / tool).exists()]
        installed = {path.name for path in (image.root / "opt/retouch/lib").glob("python3*/site-packages/*")}
        assert "service" in installed
        assert not {name for name in installed if name.startswith(("torch", "nvidia", "tensorrt", "pip", "pytest"))}
        assert not list((image.root / "var/cache/apt").iterdir())  # 78 MB, if the base image leaves apt's cache on
        for name in ("tests", "docs", "benchmarks", ".git"):
            assert not (image.root / name).exists()

    def test_its_configuration_says_how_to_run_it(self, image: Image) -> None:
        config = image.config
        assert (config["Entrypoint"], config["Cmd"]) == (["tini", "--", "retouch"], ["serve"])
        assert (config["User"], config["StopSignal"]) == (f"{NOBODY}:{NOBODY}", "SIGTERM")
        assert config["Labels"]["org.opencontainers.image.title"] == "Retouch"
        assert "/readyz" in " ".join(config["Healthcheck"]["Test"])

    def test_it_is_not_root_and_cannot_write_where_no_volume_is(self, image: Image, tmp_path: Path) -> None:
        inside = Container(image, {"/results": volume(tmp_path / "results")})
        assert inside.run("-u", entry=["id"]).stdout == f"{NOBODY}\n"
        written = inside.run("-c", "touch /results/a /tmp/b && touch /models/c", entry=["sh"])
        assert "Read-only file system" in written.stderr
        assert (tmp_path / "results" / "a").exists()

    def test_it_can_send_results_to_s3(self, image: Image) -> None:
        opens = (
            "from service.saving.storage.s3 import ObjectLocation, open_object_storage\n"
            "open_object_storage(ObjectLocation('s3://retouch/results'))"
        )
        opened = Container(image).run("-c", opens, entry=["python3"])
        assert opened.returncode == 0, opened.stderr

    def test_it_does_not_start_for_everybody_unless_told_so(self, image: Image) -> None:
        refused = Container(image).run("serve")
        assert refused.returncode == 2
        assert "--allow-anonymous" in refused.stderr

    def test_it_does_the_main_job_and_its_health_check_agrees(self, image: Image, served: Served) -> None:
        assert httpx.get(f"{served.url}/v1/models").status_code == 401
        reply = served.post()
        assert reply.status_code == 200, reply.text
        assert reply.headers["X-Engine"].startswith("openvino/")
        hole = np.asarray(Picture.open(DATA / "dress_mask.png").convert("L")) >= 128
        before, after = pixels((DATA / "dress.jpg").read_bytes()), pixels(reply.content)
        assert np.array_equal(before[~hole], after[~hole])
        assert not np.array_equal(before[hole], after[hole])
        kind, *check = image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        for address, status in ((served.url.removeprefix("http://"), 0), ("127.0.0.1:9", 1)):
            moved = [word.replace("127.0.0.1:8000", address) for word in check]
            assert Container(image).run(entry=moved).returncode == status

    def test_it_copies_texture(self, served: Served) -> None:
        textured = served.post(texture="copied")
        assert textured.status_code == 200, textured.text
        assert textured.headers["X-Texture"] == "copied"
        assert not np.array_equal(pixels(textured.content), pixels(served.post().content))

    @pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed (it comes with g++)")
    @pytest.mark.parametrize(("extension", "function"), EXTENSIONS.items())
    def test_its_extensions_use_no_instructions_that_only_some_processors_have(
        self, image: Image, extension: str, function: str
    ) -> None:
        (library,) = (image.root / "opt/retouch/lib").glob(f"python3*/site-packages/{extension}")
        code = containers.run("objdump", "--disassemble", library)
        _, *rest = re.split(r"^\w+ <(.+)>:$", code, flags=re.MULTILINE)
        functions = dict(zip(rest[::2], rest[1::2], strict=True))
        assert function in functions
        wide = {name for name, body in functions.items() if re.search("%[yz]mm", body)}
        assert {name for name in wide if ".avx2" not in name} == set()  # a -march of the build machine would add them
        assert not wide or any(name.endswith(".resolver") for name in functions)  # picks a variant at load time

    def test_on_sigterm_it_finishes_what_is_inside_saves_it_and_exits_with_0(
        self, image: Image, served: Served
    ) -> None:
        replies: list[httpx.Response] = []

        def post() -> None:
            with suppress(httpx.TransportError):  # the server had ended before this thread sent anything
                replies.append(served.post())

        threads = [threading.Thread(target=post) for _ in range(24)]
        for thread in threads:
            thread.start()
        wait_until(lambda: served.in_flight() >= 4)
        status = stopped(served.process, image, 90)
        for thread in threads:
            thread.join(60)
        assert status == 0, served.log.read_text()[-3000:]
        answered = sorted(reply.status_code for reply in replies)
        assert set(answered) <= {200, 503}
        assert answered.count(200) >= 1
        assert {path.stem for path in served.results.rglob("*.png")} == served.promised


def test_the_stages_of_the_gpu_image_that_are_not_nvidias_are_built(base: str) -> None:
    tag = containers.build("localhost/retouch-test:gpu-wheel", "gpu.Dockerfile", "wheel", WHEEL_BASE=base, BASE=base)
    with containers.unpacked(tag) as image:
        (wheel,) = (image.root / "wheels").iterdir()
        assert wheel.name.startswith("retouch-")
        assert {"retouch/py.typed", *EXTENSIONS} <= set(zipfile.ZipFile(wheel).namelist())
        assert not list((image.root / "source" / "service").rglob("*.so"))  # built in the checkout for this machine
        listed = (image.root / "source" / "dependencies.txt").read_text().splitlines()
        assert {"httpx", "fastapi", "obstore"} <= {line.partition(">")[0] for line in listed}
