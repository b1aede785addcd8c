from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from retouch.command_line import app
from tests.serving.waiting import wait_until

INTERRUPTED = """
import runpy, signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background programs with it ignored
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the coverage measurement has a handler
runpy.run_module("retouch", run_name="__main__")
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_one_image_is_filled_and_the_line_says_by_whom(contract, pictures: Path) -> None:
    out = pictures / "new" / "o.png"
    image, mask = pictures / "images/a.png", pictures / "masks/a.png"
    result = run(
        *("inpaint", image, mask, "-o", out, "--url", contract.url, "--mask-mode", "alpha", "--seed", 3),
        *("--strategy", "crop", "--model", "photos/1", "--mask-resize", "nearest"),
        *("--texture", "copied"),
    )
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == b"filled images/a.png"
    assert result.stdout.startswith(f"{out} (photos/1 on fake, ")
    assert contract.asked == [
        {
            "task": "inpaint",
            "image": b"images/a.png",
            "mask": b"masks/a.png",
            "mask_mode": "alpha",
            "seed": "3",
            "strategy": "crop",
            "texture": "copied",
            "model": "photos/1",
            "mask_resize": "nearest",
            "format": "png",
        }
    ]


def test_an_output_with_a_slash_at_its_end_is_a_folder(contract, pictures: Path) -> None:
    image, mask, out = pictures / "images/a.png", pictures / "masks/a.png", pictures / "new"
    result = run("inpaint", image, mask, "-o", f"{out}/", "--format", "png", "--url", contract.url)
    assert result.exit_code == 0, result.output
    assert [path.name for path in out.iterdir()] == ["a.png"]
    assert run("generate", "-o", f"{pictures}/drawn/", "--url", contract.url).exit_code == 0
    assert [path.name for path in (pictures / "drawn").iterdir()] == ["generated.png"]


def test_a_folder_is_filled_and_summed_up_as_json(contract, pictures: Path) -> None:
    out = pictures / "out"
    result = run(
        *("inpaint", pictures / "images", pictures / "masks", "-o", out, "--url", contract.url),
        *("--format", "jpeg", "--quality", 80, "--json"),
    )
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["done"], summary["failed"]) == (3, 0)
    assert summary["images_per_s"] == pytest.approx(3 / summary["seconds"], rel=0.05)
    assert [Path(file["out"]).name for file in summary["files"]] == ["a.jpg", "b.jpg", "c.jpg"]
    assert {file["model"] for file in summary["files"]} == {"photos/1"}
    assert sorted(path.name for path in out.iterdir()) == ["a.jpg", "b.jpg", "c.jpg"]
    assert {(asked["format"], asked["quality"]) for asked in contract.asked} == {("jpeg", "80")}


def test_one_that_fails_is_named_and_the_others_are_done(contract, pictures: Path) -> None:
    contract.unwelcome = b"images/b.jpg"
    result = run("translate", pictures / "images", "-o", pictures / "out", "--url", contract.url)
    assert result.exit_code == 1
    assert f"{pictures}/images/b.jpg: 400 invalid_image: these bytes are no image" in result.stderr
    assert "2 done, 1 failed in " in result.stdout
    assert sorted(path.name for path in (pictures / "out").iterdir()) == ["a.png", "c.png"]


def test_a_failure_that_all_pictures_share_is_printed_once(contract, pictures: Path) -> None:
    for image in (pictures / "images").iterdir():
        image.write_bytes(contract.unwelcome)
    result = run("translate", pictures / "images", "-o", pictures / "out", "--url", contract.url)
    assert result.stderr == "all 3 pictures: 400 invalid_image: these bytes are no image\n"


def test_what_failed_is_made_later_without_the_others(contract, pictures: Path) -> None:
    command = ("translate", pictures / "images", "-o", pictures / "out", "--url", contract.url)
    contract.unwelcome = b"images/b.jpg"
    run(*command)
    contract.unwelcome = b""
    refused = run(*command)
    assert (refused.exit_code, len(contract.asked)) == (1, 3)
    assert "exist already; add --missing to make only the others, --overwrite" in refused.output
    assert "leave one out" in " ".join(run(*command, "--missing", "--overwrite").output.replace("│", " ").split())
    made = run(*command, "--missing")
    assert made.output.startswith(f"{pictures}/out/b.png (photos/1 on fake")
    assert [asked["image"] for asked in contract.asked[3:]] == [b"images/b.jpg"]
    nothing = run(*command, "--missing")
    assert (nothing.exit_code, nothing.output) == (0, "nothing to do: all 3 results exist already\n")
    assert json.loads(run(*command, "--missing", "--json").output)["files"] == []


@pytest.mark.parametrize(
    ("flags", "how"), [([], b"; --missing makes the others"), (["--overwrite"], b"")], ids=["", "overwrite"]
)
def test_an_interrupted_run_says_how_much_is_done_and_how_to_continue(
    contract, pictures: Path, flags: list[str], how: bytes
) -> None:
    contract.answers = 1
    folders = (pictures / "images", "-o", pictures / "out")
    command = ("translate", *folders, "--url", contract.url, "--concurrency", "1", *flags)
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, *command], stderr=subprocess.PIPE) as process:
        wait_until(lambda: len(contract.asked) == 2)
        process.send_signal(signal.SIGINT)
        assert b"interrupted: 1 of 3 are done" + how + b"\n" in process.communicate(timeout=60)[1]
    assert process.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_prints_as_json_what_is_done(contract, pictures: Path, number: signal.Signals) -> None:
    contract.answers = 1
    folders = (pictures / "images", "-o", pictures / "out")
    command = ("translate", *folders, "--url", contract.url, "--concurrency", "1", "--json")
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, *command], stdout=subprocess.PIPE) as process:
        wait_until(lambda: len(contract.asked) == 2)
        process.send_signal(number)
        printed = json.loads(process.communicate(timeout=60)[0])
    assert (printed["done"], printed["failed"], len(printed["files"])) == (1, 0, 1)
    assert process.returncode == 128 + number


def test_a_file_may_have_the_longest_name_that_the_disk_takes(contract, pictures: Path) -> None:
    out = pictures / f"{'o' * 251}.png"
    result = run("translate", pictures / "images/a.png", "-o", out, "--url", contract.url)
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == b"filled images/a.png"


def test_an_empty_file_is_named(contract, pictures: Path) -> None:
    (pictures / "masks/a.png").write_bytes(b"")
    result = run(
        *("inpaint", pictures / "images/a.png", pictures / "masks/a.png", "-o", pictures / "o.png"),
        *("--url", contract.url),
    )
    assert result.exit_code == 1
    assert f"{pictures}/images/a.png: {pictures}/masks/a.png is empty" in result.stderr
    assert contract.asked == []


def test_a_busy_server_is_waited_for(contract, pictures: Path) -> None:
    contract.busy = 3
    result = run("translate", pictures / "images", "-o", pictures / "out", "--url", contract.url, "--concurrency", 3)
    assert result.exit_code == 0, result.output
    assert len(contract.asked) == 6


def test_an_output_that_cannot_be_written_is_a_failure_of_that_file(contract, pictures: Path) -> None:
    (pictures / "file").write_bytes(b"")
    out = pictures / "file" / "o.png"
    result = run("translate", pictures / "images/a.png", "-o", out, "--url", contract.url)
    assert result.exit_code == 1
    assert f"images/a.png: {out} cannot be written ({pictures}/file is not a folder); name another" in result.stderr


def test_no_half_written_file_stays(contract, pictures: Path) -> None:
    (pictures / "out" / "a.png").mkdir(parents=True)
    result = run(
        *("translate", pictures / "images/a.png", "-o", pictures / "out", "--url", contract.url, "--overwrite")
    )
    assert result.exit_code == 1
    assert [path.name for path in (pictures / "out").iterdir()] == ["a.png"]


def test_a_file_that_is_overwritten_keeps_its_mode_and_the_link_to_it(contract, pictures: Path) -> None:
    kept, link = pictures / "kept.png", pictures / "link.png"
    kept.write_bytes(b"before")
    kept.chmod(0o640)
    link.symlink_to("kept.png")
    result = run("translate", pictures / "images/a.png", "-o", link, "--url", contract.url, "--overwrite")
    assert result.exit_code == 0, result.output
    assert link.readlink() == Path("kept.png")
    assert kept.read_bytes() == b"filled images/a.png"
    assert kept.stat().st_mode & 0o777 == 0o640


def test_a_server_and_models_of_ones_own_exclude_each_other(contract, pictures: Path) -> None:
    image = pictures / "images/a.png"
    result = run("translate", image, "-o", pictures / "o.png", "--url", contract.url, "--engine", "fake")
    assert result.exit_code == 2
    assert "leave out --models-dir and --engine" in " ".join(result.output.replace("│", " ").split())


def test_repeating_requests_is_for_a_server(pictures: Path) -> None:
    result = run("translate", pictures / "images/a.png", "-o", pictures / "o.png", "--retries", 0)
    assert result.exit_code == 2
    assert "--retries is for requests to a server: add --url" in " ".join(result.stderr.replace("│", " ").split())


def test_a_plan_that_cannot_work_is_one_line_and_exit_1(pictures: Path) -> None:
    result = run("translate", pictures / "gone.png", "-o", pictures / "o.png")
    assert (result.exit_code, result.output) == (1, f"error: {pictures}/gone.png does not exist\n")


def test_several_samples_are_numbered_files(contract, pictures: Path) -> None:
    out = pictures / "o.png"
    image, mask = pictures / "images/a.png", pictures / "masks/a.png"
    result = run("inpaint", image, mask, "-o", out, "--url", contract.url, "--samples", 3, "--seed", 5, "--json")
    assert result.exit_code == 0, result.output
    outs = [pictures / f"o-{number}.png" for number in (1, 2, 3)]
    assert [path.read_bytes() for path in outs] == [b"filled images/a.png" + end for end in (b"", b" 1", b" 2")]
    assert json.loads(result.stdout)["files"][0]["outs"] == [str(path) for path in outs]
    assert not out.exists()
    again = run("inpaint", image, mask, "-o", out, "--url", contract.url, "--samples", 4)
    assert (again.exit_code, "exist already" in again.output) == (1, True)
    assert len(contract.asked) == 1


def test_samples_that_are_there_stay_when_the_missing_ones_are_made(contract, pictures: Path) -> None:
    (pictures / "o-1.png").write_bytes(b"chosen")
    command = ("translate", pictures / "images/a.png", "-o", pictures / "o.png", "--url", contract.url, "--samples", 2)
    assert run(*command, "--missing").exit_code == 0
    assert (pictures / "o-1.png").read_bytes() == b"chosen"
    assert (pictures / "o-2.png").read_bytes() == b"filled images/a.png 1"


def test_a_server_that_keeps_samples_back_is_reported(contract, pictures: Path) -> None:
    contract.keeps_back = 1
    image, mask = pictures / "images/a.png", pictures / "masks/a.png"
    result = run("inpaint", image, mask, "-o", pictures / "o.png", "--url", contract.url, "--samples", 3)
    assert result.exit_code == 1
    assert "2 pictures were returned, but 3 were requested" in result.stderr
    assert not list(pictures.glob("o*.png"))


def test_pictures_are_generated_from_nothing(contract, pictures: Path) -> None:
    out = pictures / "o.webp"
    result = run("generate", "-o", out, "--url", contract.url, "--seed", 3, "--count", 2, "--model", "faces")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{pictures}/o-1.webp {pictures}/o-2.webp (photos/1 on fake, ")
    assert (pictures / "o-2.webp").read_bytes() == b"filled nothing 1"
    assert contract.asked == [{"task": "generate", "seed": "3", "count": "2", "model": "faces", "format": "webp"}]
    one = run("generate", "-o", out, "--url", contract.url, "--json")
    assert out.read_bytes() == b"filled nothing"
    assert json.loads(one.stdout)["files"][0]["image"] is None


def test_a_generation_that_cannot_be_written_is_named_by_its_output(contract, pictures: Path) -> None:
    (pictures / "file").write_bytes(b"")
    out = pictures / "file" / "o.png"
    result = run("generate", "-o", out, "--url", contract.url)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{out}: cannot be written ({pictures}/file is not a folder); name another -o,")


def test_references_go_with_their_images_beside_instance_maps(contract, pictures: Path) -> None:
    done = run(
        *("translate", pictures / "images", "-o", pictures / "out", "--url", contract.url, "--concurrency", 1),
        *("--instance", pictures / "masks", "--reference", pictures / "images/a.png"),
    )
    assert done.exit_code == 0, done.output
    asked = [(asked["image"], asked["instance"], asked["reference"]) for asked in contract.asked]
    assert asked[1] == (b"images/b.jpg", b"masks/b.png", b"images/a.png")
    assert {reference for _, _, reference in asked} == {b"images/a.png"}


def test_instance_maps_go_with_their_images(contract, pictures: Path) -> None:
    one = run(
        *("translate", pictures / "images/a.png", "-o", pictures / "o.png", "--url", contract.url),
        *("--instance", pictures / "masks/b.png"),
    )
    assert one.exit_code == 0, one.output
    many = run(
        *("translate", pictures / "images", "-o", pictures / "out", "--url", contract.url),
        *("--instance", pictures / "masks", "--concurrency", 1),
    )
    assert many.exit_code == 0, many.output
    pairs = [(asked["image"], asked["instance"]) for asked in contract.asked]
    assert pairs == [
        (b"images/a.png", b"masks/b.png"),
        (b"images/a.png", b"masks/a.png"),
        (b"images/b.jpg", b"masks/b.png"),
        (b"images/c.webp", b"masks/c.png"),
    ]
    (pictures / "masks/b.png").unlink()
    missing = run(
        *("translate", pictures / "images", "-o", pictures / "more", "--url", contract.url),
        *("--instance", pictures / "masks"),
    )
    assert missing.exit_code == 1
    assert "no instance map of the same name" in missing.output
