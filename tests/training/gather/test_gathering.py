import io
import json
import subprocess
import sys
import tarfile

import pytest
from PIL import Image

from training.errors import ConfigInvalid, DataMissing
from training.gather.gathering import gather
from training.gather.recipe import read_recipe
from training.gather.shards import ShardWriter

pytestmark = pytest.mark.covers_processes
RECIPE = """
shard_mib = 0.25
[[source]]
name = "first"
path = "first"
licence = "CC0"
[[source]]
name = "second"
path = "second"
licence = "CC BY 4.0"
"""


@pytest.fixture
def picture(smooth_picture):
    return lambda seed, height=300, width=420: Image.fromarray(smooth_picture(seed, height, width))


def _gather(root, output):
    command = [sys.executable, "-m", "training", "gather", str(root / "recipe.toml"), "--root", str(root)]
    command += ["--held-out", str(root / "held"), "-o", str(output)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command_leaves_out_what_is_held_out_or_came_before_and_counts_it(picture, tmp_path):
    for folder in ("first", "second", "held"):
        (tmp_path / folder).mkdir()
    for i in range(12):
        picture(i).save(tmp_path / f"first/{i}.jpg", quality=90)
    picture(3, 600, 840).save(tmp_path / "second/again.png")
    picture(99).save(tmp_path / "second/new.jpg")
    (tmp_path / "second/broken.jpg").write_bytes(b"\xff\xd8\xff")
    picture(5).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "held/5.png")
    (tmp_path / "recipe.toml").write_text(RECIPE)

    done = _gather(tmp_path, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "'broken.jpg' is broken: no complete picture; copy it again, or remove it" in done.stderr
    manifest = json.loads((tmp_path / "out/photos.json").read_text())
    first, second = manifest["sources"]
    assert first == {
        "name": "first",
        "from": "first",
        "licence": "CC0",
        "files": 12,
        "kept": 11,
        "side 256": 11,
        "held out": 1,
    }
    assert {key: second[key] for key in ("files", "kept", "seen before", "broken")} == {
        "files": 3,
        "kept": 1,
        "seen before": 1,
        "broken": 1,
    }
    names = []
    for shard, size in manifest["shards"].items():
        assert (tmp_path / "out" / shard).stat().st_size == size <= 0.25 * 2**20
        with tarfile.open(tmp_path / "out" / shard) as tar:
            for member in tar:
                names.append(member.name)
                assert Image.open(io.BytesIO(tar.extractfile(member).read())).size == (403, 288)
    assert len(set(names)) == len(names) == manifest["pictures"] == 12

    assert _gather(tmp_path, tmp_path / "again").returncode == 0
    for shard in manifest["shards"]:
        assert (tmp_path / "out" / shard).read_bytes() == (tmp_path / "again" / shard).read_bytes()


def test_many_broken_files_are_named_in_part_and_counted(picture, tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "held").mkdir()
    for folder in ("first", "held"):
        picture(len(folder)).save(tmp_path / folder / "whole.jpg")
    for number in range(23):
        (tmp_path / f"first/{number}.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "recipe.toml").write_text(RECIPE.partition('[[source]]\nname = "second"')[0])
    said = _gather(tmp_path, tmp_path / "out").stderr
    assert said.count(".jpg' is broken") == 20
    assert "and 3 more are broken" in said


def test_nothing_is_enlarged_where_min_side_and_min_source_side_are_the_same_and_sides_are_counted(picture, tmp_path):
    for folder in ("first", "second", "held"):
        (tmp_path / folder).mkdir()
    for seed, height in enumerate((255, 256, 300, 400, 600)):
        picture(seed, height, height + 9).save(tmp_path / f"first/{seed}.png")
    picture(98).save(tmp_path / "second/98.png")
    picture(99).save(tmp_path / "held/99.png")
    (tmp_path / "recipe.toml").write_text("max_side = 512\nmin_side = 256\nmin_source_side = 256\n" + RECIPE)

    done = _gather(tmp_path, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "out/photos.json").read_text())["sources"][0]
    counted = {key: first[key] for key in ("small", "kept", "side 256", "side 384", "side 512")}
    assert counted == {"small": 1, "kept": 4, "side 256": 2, "side 384": 1, "side 512": 1}


def test_misspelt_recipe_and_missing_source_end_the_command_in_a_line(picture, tmp_path):
    (tmp_path / "held").mkdir()
    picture(0).save(tmp_path / "held/0.jpg")
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("shard_mib", "shard_mb"))
    done = _gather(tmp_path, tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("not a recipe for gathering: unknown setting shard_mb; did you mean shard_mib?")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    done = _gather(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert "source first is missing" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def gathered(picture, tmp_path):
    """Gather two pictures into `out`; returns the recipe."""
    for number, folder in enumerate(("first", "second")):
        (tmp_path / folder).mkdir()
        picture(number).save(tmp_path / folder / "a.jpg")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    recipe = read_recipe(tmp_path / "recipe.toml")
    gather(recipe, tmp_path, tmp_path / "out")
    return recipe


def _files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_that_cannot_be_written_leaves_the_files_of_the_one_before(gathered, tmp_path, monkeypatch):
    before = _files(tmp_path / "out")
    assert set(before) == {"photos-000.tar", "photos.json"}

    def full(writer, name, data):
        (writer._directory / "photos-000.tar").write_bytes(data[:9])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ShardWriter, "add", full)
    with pytest.raises(OSError, match="No space"):
        gather(gathered, tmp_path, tmp_path / "out")
    assert _files(tmp_path / "out") == before


def test_a_run_that_keeps_no_picture_leaves_the_files_of_the_one_before(gathered, tmp_path):
    before = _files(tmp_path / "out")
    with pytest.raises(DataMissing, match="no picture of any source passed"):
        gather(gathered, tmp_path, tmp_path / "out", held_out=[tmp_path / "first", tmp_path / "second"])
    assert _files(tmp_path / "out") == before


def test_held_out_pictures_that_cannot_be_read_end_the_run_as_nothing_would_be_held_out(gathered, tmp_path):
    (tmp_path / "held").mkdir()
    (tmp_path / "held/a.jpg").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(DataMissing, match="none of the pictures to hold out can be read"):
        gather(gathered, tmp_path, tmp_path / "out", held_out=[tmp_path / "held"])


def test_a_missing_folder_of_held_out_pictures_is_the_flags_fault(gathered, tmp_path):
    with pytest.raises(DataMissing, match=r"no such folder of held-out pictures; correct --held-out"):
        gather(gathered, tmp_path, tmp_path / "out", held_out=[tmp_path / "held"])


def test_fewer_shards_replace_all_those_of_the_run_before(gathered, tmp_path):
    (tmp_path / "out/photos-007.tar").write_bytes(b"of a longer run")
    gather(gathered, tmp_path, tmp_path / "out")
    assert set(_files(tmp_path / "out")) == {"photos-000.tar", "photos.json"}


def test_an_output_that_is_no_folder_is_met_before_any_picture_is_read(gathered, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "first/a.jpg").unlink()
    with pytest.raises(FileExistsError):
        gather(gathered, tmp_path, tmp_path / "file")


def test_a_recipe_that_is_nested_too_deeply_is_refused(tmp_path):
    (tmp_path / "recipe.toml").write_text("seed = " + "[" * 5000)
    with pytest.raises(ConfigInvalid, match=r"recipe\.toml: not TOML \(it is nested too deeply"):
        read_recipe(tmp_path / "recipe.toml")


def test_two_sources_of_one_name_are_refused(tmp_path):
    (tmp_path / "recipe.toml").write_text(RECIPE.replace('"second"', '"first"', 1))
    with pytest.raises(ConfigInvalid, match="several sources are called first"):
        read_recipe(tmp_path / "recipe.toml")
