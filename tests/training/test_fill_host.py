"""The commands for a borrowed GPU host (fill_host.sh), with fake python3 and nvidia-smi."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.serving.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
Host = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Run commands of fill_host.sh as on a host with one GPU; the fake python3 records its arguments.

    It fails while the file `broken` exists, or `broken-N` for GPU N, and waits while `slow` exists.
    """
    programs, work = tmp_path / "bin", tmp_path / "work"
    for folder in (programs, work):
        folder.mkdir()
    judges = (
        f'if [ -e "$2/made" ]; then for last; do :; done; exec cp "$2/made/"* "$last"; fi; exec "{sys.executable}" "$@"'
    )
    noted = f'echo "$CUDA_VISIBLE_DEVICES: $*" >>"{work}/called"; pwd >>"{work}/folders"'
    slow = f'while [ -e "{work}/slow" ]; do sleep 0.1; done'
    sound = f'[ ! -e "{work}/broken" ] && [ ! -e "{work}/broken-$CUDA_VISIBLE_DEVICES" ]'
    python = f'{noted}; if [ "$1" = - ]; then {judges}; fi; {slow}; {sound}'
    for name, line in (("python3", python), ("nvidia-smi", '[ "$1" != -L ] || echo "GPU 0"')):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        given = {"PATH": f"{programs}:{os.environ['PATH']}", "WORK": str(work), "CARRIED": str(tmp_path)}
        ours = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        environment = ours | given | {"OUT": str(tmp_path / "out")} | variables
        command = ["bash", str(ROOT / "training/fill_host.sh"), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)

    return run


def compiled(work: Path) -> list[Path]:
    return list(work.rglob("compiled*"))


def test_a_run_uses_a_copy_of_the_code_because_uploads_replace_the_files(host: Host, tmp_path: Path) -> None:
    folders = tmp_path / "work/folders"
    assert host("stage").returncode == 0
    (tmp_path / "work/repo/old").touch()
    assert host("stage").returncode == 0
    assert not (tmp_path / "work/repo/old").exists(), "the second copy is as new as the repository"
    folders.unlink()
    host("start", "5", SHAPES="256:32")
    assert set(folders.read_text().split()) == {str(tmp_path / "work/repo")}
    for folder in ("training/configs", "export", "engines"):
        assert (tmp_path / "work/repo" / folder).is_dir()


def test_a_shape_is_compiled_with_the_data_that_the_host_has(host: Host, tmp_path: Path) -> None:
    assert host("prepare", "0", "256", "32", CONFIG="training/configs/fill-large.toml").returncode == 0
    called = (tmp_path / "work/called").read_text()
    for option, folder in (("data.path", "photos"), ("data.validation", "val"), ("features", "features/")):
        assert f"--set {option}={tmp_path}/work/{folder}" in called


def test_compiling_that_fails_is_tried_again_by_the_next_start(host: Host, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "broken").touch()
    assert "ENDED" in host("start", "5", SHAPES="256:32").stdout
    assert not compiled(work)
    (work / "broken").unlink()
    # a busy machine may notice the first failure late
    wait_until(lambda: host("start", "5", SHAPES="256:32") and bool(compiled(work)))


def test_only_the_gpu_whose_compiling_failed_compiles_again(host: Host, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "broken-1").touch()

    def start() -> list[str]:
        host("start", "5", CUDA_VISIBLE_DEVICES="0,1", SHAPES="256:32 384:16")
        return [line[0] for line in (work / "called").read_text().splitlines() if "training plan" in line]

    wait_until(lambda: {"0", "1"} <= set(start()))  # a busy machine may start late
    assert not compiled(work)
    (work / "broken-1").unlink()
    wait_until(lambda: start() and bool(compiled(work)))
    assert start().count("0") == 1


def test_a_gpu_that_compiles_is_not_asked_again(host: Host, tmp_path: Path) -> None:
    slow, called = tmp_path / "work/slow", tmp_path / "work/called"
    slow.touch()
    try:
        assert host("warm", SHAPES="256:32").returncode == 0
        wait_until(called.exists)
        assert host("warm", SHAPES="256:32").returncode == 0
    finally:
        slow.unlink()
    wait_until(lambda: bool(compiled(tmp_path / "work")))
    assert called.read_text().count("training plan") == 1


def test_a_run_is_not_begun_beside_one_that_is_under_way(host: Host, tmp_path: Path) -> None:
    slow, called = tmp_path / "work/slow", tmp_path / "work/called"
    slow.touch()
    with ThreadPoolExecutor(1) as beside:
        first = beside.submit(host, "start", "5", SHAPES="256:32")
        try:
            wait_until(lambda: called.exists() and "distributed.run" in called.read_text())
            second, staged = host("start", "5", SHAPES="256:32"), host("stage")
        finally:
            slow.unlink()
        assert "ENDED" in first.result().stdout
    assert second.returncode == 1
    assert staged.returncode == 1
    assert "fill_host.sh wait" in second.stderr
    assert called.read_text().count("distributed.run") == 1
    # the first one's process may end a little later than its run
    wait_until(lambda: host("start", "5", SHAPES="256:32").returncode == 0)


def test_a_run_waits_for_its_own_shapes(host: Host, tmp_path: Path) -> None:
    shapes, work = "256:32 384:16", tmp_path / "work"
    host("prepare", "0", "256", "32", NAME="run-2", SHAPES=shapes)
    host("prepare", "0", "256", "32", SHAPES=shapes)
    assert not compiled(work), "the other run's is another"
    host("prepare", "0", "384", "16", SHAPES=shapes)
    assert compiled(work)


def test_a_run_takes_the_gpus_that_it_is_given(host: Host, tmp_path: Path) -> None:
    called = tmp_path / "work/called"
    for given, process, gpu in (("1", "0", "1"), ("2,3", "1", "3"), ("GPU-5f,GPU-7a", "1", "GPU-7a")):
        for command in (("rank",), ("prepare", process, "256", "32")):
            called.unlink(missing_ok=True)
            assert host(*command, CUDA_VISIBLE_DEVICES=given, LOCAL_RANK=process).returncode == 0
            assert called.read_text().startswith(f"{gpu}: -m training"), command
    host("start", "5", CUDA_VISIBLE_DEVICES="1", SHAPES="256:32")
    assert "--nproc-per-node 1" in called.read_text()


def test_a_run_that_is_shown_no_gpu_takes_none(host: Host, tmp_path: Path) -> None:
    host("start", "5", CUDA_VISIBLE_DEVICES="", PROCESSES="2", SHAPES="256:32")
    called = (tmp_path / "work/called").read_text()
    assert called.startswith(": -m torch.distributed.run --standalone --nproc-per-node 2")
    assert "training plan" not in called, "compiled for no GPU"


@pytest.mark.parametrize(
    ("shapes", "waits_for"),
    [("256:32 384:16", ["shape-256:32", "shape-384:16"]), ("256:32", ["compiled", "compiled"])],
)
def test_a_phase_waits_for_its_own_shape_where_each_has_one(
    host: Host, tmp_path: Path, shapes: str, waits_for: list[str]
) -> None:
    host("start", "5", SHAPES=shapes, CONFIG="training/configs/fill-large.toml")
    wanted = [f"phase.{phase}.compile_after={tmp_path}/work/run/{name}" for phase, name in enumerate(waits_for)]
    assert " --set ".join(wanted) in (tmp_path / "work/called").read_text()


@pytest.mark.parametrize("graphs", [True, False], ids=["with CUDA graphs", "without"])
def test_a_run_that_fails_goes_on_without_what_may_have_failed(host: Host, tmp_path: Path, *, graphs: bool) -> None:
    (tmp_path / "work/broken").touch()
    host("start", "5", SHAPES="256:32", EXTRA="--set cuda_graphs=true" if graphs else "")
    called = (tmp_path / "work/called").read_text().splitlines()
    attempts = [line for line in called if "distributed.run" in line]
    replayed = [" ".join(line.split()).endswith("cuda_graphs=true") for line in attempts]
    compiled = ["compile_after=" in line and "/never" not in line for line in attempts]
    assert replayed == [graphs, False, False]
    assert compiled == [True, graphs, False]


def test_features_are_those_that_the_config_names(host: Host, tmp_path: Path) -> None:
    for config, name in (("fill", "vgg16_pool3"), ("fill-large", "vgg16")):
        host("prepare", "0", "256", "32", CONFIG=f"training/configs/{config}.toml")
        assert f"features={tmp_path}/work/features/{name}.safetensors " in (tmp_path / "work/called").read_text()


def test_weights_can_be_saved_while_a_run_goes_on(host: Host, tmp_path: Path) -> None:
    run, work = tmp_path / "work/run", tmp_path / "work"
    (run / "sheets").mkdir(parents=True)
    for name, content in (("began", "0"), ("train.log", "step 7")):
        (work / name).write_text(content)
    assert "step 7" in host("save").stdout, "there are none yet"
    (run / "generator.pth").write_bytes(bytes(16 << 20))
    for step in range(5):
        (run / f"sheets/{step}.png").touch()
    found = host("save")
    assert "ENDED" not in found.stdout
    parts = [(tmp_path / f"out/generator.pth.0{part}").read_bytes() for part in (0, 1)]
    assert b"".join(parts) == bytes(16 << 20)
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {"2.png", "3.png", "4.png"}


def test_a_run_hands_over_its_own_judges(host: Host, tmp_path: Path) -> None:
    for name, judges in (("a", ("judge", "patches")), ("b", ("judge",))):
        run, made = tmp_path / "work" / name, tmp_path / "work" / name / "made"
        made.mkdir(parents=True)
        for file in (run / "generator.pth", run / "prepare-0.log", *(made / f"{judge}.pth" for judge in judges)):
            file.write_text(name)
        found = host("collect", NAME=name, OUT=str(tmp_path / name))
        assert found.returncode == 0, found.stderr
        assert {path.stem: path.read_text() for path in (tmp_path / name).glob("*.pth")} == dict.fromkeys(judges, name)
        assert (tmp_path / name / "prepare.log").read_text() == name


def test_judges_are_handed_over_in_half_precision(host: Host, tmp_path: Path) -> None:
    run = tmp_path / "work/run"
    run.mkdir()
    (run / "generator.pth").touch()
    trainee = {judge: {"net": {"weight": torch.ones(2)}} for judge in ("judge", "patches")}
    torch.save({"step": 3, "spent_s": 1.0, "trainee": trainee}, run / "checkpoint.pt")
    assert "step 3 after 1 s" in host("collect").stdout
    for judge in trainee:
        found = torch.load(tmp_path / f"out/{judge}.pth", weights_only=True)
        assert found["weight"].dtype == torch.float16
