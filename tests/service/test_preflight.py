"""The preflight: a setup that cannot work gives one line and exit status 2, whichever process would fail later."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from service.auth.links import SECRETS_FILE, read_secrets
from service.core.settings import Settings, SettingsInvalid, load_settings
from service.fleet.assembly import make_ledger_file
from service.ledger.sqlite_file import LEDGER_FILE
from service.preflight import check_address, check_folders, check_ports, run_preflight
from service.processes.launcher.launcher import launch
from service.saving.local_disk.disk_state import INCOMING
from service.saving.spool.process_folder import SPOOL
from service.web.server import run
from tests.serving.served_process import MAX_START_S

pytestmark = [pytest.mark.slow, pytest.mark.covers_processes]


def refused(models_dir: Path, tmp_path: Path, *more: object) -> list[str]:
    """Return the output lines of a server that does not start, without those about the start itself."""
    options = ("--port", "0", "--engine", "fake", "--models-dir", models_dir, "--engine-cache-dir", tmp_path / "cache")
    command = [sys.executable, "-m", "retouch", "serve", *options, "--results-dir", tmp_path / "results", *more]
    with subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True) as server:
        try:
            _, said = server.communicate(timeout=MAX_START_S)
        except subprocess.TimeoutExpired:
            server.terminate()
            raise
    assert server.returncode == 2, said
    starting, *lines = said.splitlines()
    assert '"event": "starting"' in starting
    return [line for line in lines if '"event": "processes"' not in line]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read (No such file or directory)"), ("no secret", "must have one whsec_BASE64 secret per line")],
)
def test_a_wrong_webhook_secret_stops_the_start(
    models_dir: Path, tmp_path: Path, workers: int, content: str | None, reason: str
) -> None:
    path = tmp_path / "webhook-secrets"
    if content is not None:
        path.write_text(content)
    (said,) = refused(models_dir, tmp_path, "--workers", workers, "--webhook-secret-file", path)
    assert f"webhook_secret_file {path} {reason}" in said


@pytest.mark.parametrize("workers", [0, 2])
def test_a_key_file_that_is_not_there_stops_the_start(models_dir: Path, tmp_path: Path, workers: int) -> None:
    path = tmp_path / "keys.json"
    (said,) = refused(models_dir, tmp_path, "--workers", workers, "--keys-file", path)
    assert f"keys_file: key file {path}: No such file or directory; create it with `retouch keys create`" in said


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_ledger_stops_the_start(models_dir: Path, tmp_path: Path, workers: int) -> None:
    path = tmp_path / "results" / LEDGER_FILE
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    (said,) = refused(models_dir, tmp_path, "--workers", workers)
    assert f"the ledger {path} cannot be used" in said
    assert "move it away" in said


def test_a_path_that_is_too_long_for_the_ledger_is_called_too_long(models_dir: Path, tmp_path: Path) -> None:
    long = tmp_path / "/".join(["a" * 200] * 3)
    (said,) = refused(models_dir, tmp_path, "--results-dir", long)
    assert f"its path is too long: {len(str(long / LEDGER_FILE))} bytes, of at most 504; choose a shorter one" in said


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cors_origins", "https://a.example,b.example", "'b.example' is not an origin"),
        ("cors_origins", "https://a.example/", "without a slash"),
        ("cors_origins", "https://A.example", "in lower case"),
        ("cors_origins", "https://", "'https://' is not an origin"),
        ("public_host", "https://a.example", "leave out https://"),
        ("public_host", "a.example/retouch", "what follows the name"),
        ("public_host", "a b", "'a b' is not a name"),
        ("public_host", "a.example,b.example?c", "what follows the name"),
        ("public_host", "a.*.example", "for all below it"),
        ("public_host", "*.a.example:81", "for all below it"),
        ("public_host", "bücher.example", "xn--"),
        ("webhook_hosts", "a.example,https://b.example", "'https://b.example' is not a host"),
        ("webhook_hosts", "a.example:8443", "'a.example:8443' is not a host"),
        ("webhook_hosts", "a.*.example", "for all below it"),
    ],
)
def test_a_site_that_no_request_can_match_stops_the_start(tmp_path: Path, name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{name}: .*{said}"):
        run_preflight(load_settings({"results_dir": tmp_path, name: value}))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "otlp_endpoint",
            "collector:4318",
            "'collector:4318' is not the address of a collector; write http://HOST:4318",
        ),
        ("inpaint_model", "My Model", "'My Model' is not a model name; use NAME or NAME/VERSION"),
        ("generate_model", "faces/new", "'faces/new' is not a model name"),
        ("s3_endpoint", "minio", "'minio' is not http"),
        ("s3_endpoint", "minio:9000", "'minio:9000' is not http"),
    ],
)
def test_a_value_that_could_never_work_stops_the_start(tmp_path: Path, name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{name}: {said}"):
        run_preflight(load_settings({"results_dir": tmp_path, name: value}))


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"workers": 0, "engine_processes": 4}, "set workers to 1 or more, or leave engine_processes out"),
        ({"workers": 2, "engine_processes": 4}, None),
    ],
)
def test_a_setting_that_has_no_effect_beside_the_others_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], settings: dict[str, object], warned: str | None
) -> None:
    run_preflight(load_settings({"results_dir": tmp_path, "workers": 0, **settings}, {}))
    lines = [line for line in capfd.readouterr().err.splitlines() if "has no effect" in line]
    assert [warned in line for line in lines if warned] == len(lines) * [True]
    assert len(lines) == (0 if warned is None else 1)


def test_no_default_model_stops_no_start(tmp_path: Path) -> None:
    run_preflight(load_settings({"results_dir": tmp_path, "inpaint_model": "", "generate_model": "faces/2"}))


def test_sites_as_browsers_name_them_stop_no_start(tmp_path: Path) -> None:
    origins = "*, null, https://a.example, http://b.example:8080, http://[::1]:3000, chrome-extension://abcdef, file://"
    names = {
        "public_host": "*.a.example, A_1.example., b:81, ::1, [::1]:81",
        "webhook_hosts": "*.a.example, A.example, localhost, 192.0.2.7, ::1",
    }
    run_preflight(load_settings({"results_dir": tmp_path, "cors_origins": origins, **names}))
    run_preflight(load_settings({"results_dir": tmp_path, "public_host": "*"}))


@pytest.mark.parametrize("start", [run, partial(launch, front_ends=1)])
@pytest.mark.parametrize("name", ["port", "metrics_port", "grpc_port"])
@pytest.mark.parametrize("reusable", [False, True])
def test_a_second_server_on_a_port_says_so_and_touches_nothing(
    tmp_path: Path, reusable: bool, name: str, start: Callable[[Settings], int]
) -> None:
    """The first server may be several processes that share its port. The next check would miss the key file."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, reusable)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        folders = {"results_dir": tmp_path / "results", "keys_file": str(tmp_path / "none")}
        settings = load_settings({**folders, "port": 0, name: port})
        said = rf"{name}: .*127\.0\.0\.1:{port} \(Address already in use\); end what .* --{name.replace('_', '-')}"
        with pytest.raises(SettingsInvalid, match=said):
            start(settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("first", "second"), [("port", "metrics_port"), ("metrics_port", "grpc_port")])
def test_two_settings_with_one_port_stop_the_start(first: str, second: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{second} 8123 is the {first}, too"):
        check_ports(load_settings({first: 8123, second: 8123}))


def test_a_server_that_just_ended_left_its_port_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listening.accept()[0].close()  # the side that closes first stays in TIME_WAIT
            assert client.recv(1) == b""
    check_address("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("192.0.2.1", "Cannot assign requested address"),
        ("no.invalid", "not known"),
        ("a..b", "label"),
        (64 * "a", "label"),
    ],
)
def test_what_is_no_address_of_this_machine_stops_the_start(host: str, why: str) -> None:
    with pytest.raises(
        SettingsInvalid, match=rf"cannot listen on {host}:0 \(.*{why}.*\); give an address of"
    ) as refused:
        check_address(host, 0)
    assert "end what listens" not in str(refused.value)


@pytest.fixture
def of_root() -> Iterator[Path]:
    """A results folder that all users can write to, with files of root's; the test runs as another user."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    with TemporaryDirectory(dir="/tmp") as name:  # only root can enter pytest's folders
        results = Path(name)
        results.chmod(0o777)
        (results / "lost+found").mkdir(0o700)
        (results / LEDGER_FILE).touch(0o644)
        (results / SECRETS_FILE).touch(0o600)
        (results / SPOOL).mkdir(0o777)
        (results / SPOOL).chmod(0o777)
        os.seteuid(12345)
        try:
            yield results
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("name", [".jobs", ".thumbnails", INCOMING, "7f", f"{SPOOL}/of-a-dead-process"])
def test_a_folder_that_another_user_made_is_named_before_the_start(of_root: Path, name: str) -> None:
    check_folders(of_root)
    os.seteuid(0)
    (of_root / name).mkdir(0o755)
    os.seteuid(12345)
    with pytest.raises(SettingsInvalid, match=rf"{of_root / name} cannot be written to by this user: run chown -R"):
        check_folders(of_root)


def test_files_that_another_user_made_are_not_called_damaged(of_root: Path) -> None:
    with pytest.raises(SettingsInvalid, match="let the user of this server read and write that file"):
        make_ledger_file(Settings(results_dir=of_root)).connections.open()
    with pytest.raises(SettingsInvalid, match=r"cannot be read or created \(Permission denied\)"):
        read_secrets(of_root / SECRETS_FILE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_port_that_this_user_may_not_take_is_not_said_to_be_in_use() -> None:
    limit = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if not limit.exists() or int(limit.read_text()) < 2:
        pytest.skip("every user may take every port here")
    "host".encode("idna")  # loads the codec now, as the other user may not read Python's files
    os.seteuid(12345)
    try:
        with pytest.raises(SettingsInvalid, match=r"127\.0\.0\.1:1 \(Permission denied\); choose a --port from 1024"):
            check_address("127.0.0.1", 1)
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(("allowed", "queue", "told"), [(64, 256, True), (64, 8, True), (120, 8, False)])
def test_a_limit_of_open_files_that_a_full_queue_exceeds_is_told_with_what_to_do(
    tmp_path: Path, allowed: int, queue: int, told: bool
) -> None:
    start = "import sys; from pathlib import Path; from service.core.settings import Settings; "
    start += "from service.preflight import run_preflight; "
    start += "run_preflight(Settings(results_dir=Path(sys.argv[1]), max_queue_size=int(sys.argv[2])))"
    limited = ["prlimit", f"--nofile={allowed}:{allowed}", sys.executable, "-c", start, str(tmp_path), str(queue)]
    ran = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=True)
    remedy = f"allow {2 * queue + 100} with ulimit -n, LimitNOFILE= or --ulimit nofile, or lower --max-queue-size"
    assert (remedy in ran.stdout + ran.stderr) == told
