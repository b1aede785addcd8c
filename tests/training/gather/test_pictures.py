import subprocess

import pytest

from training.errors import DataMissing
from training.gather.pictures import read_pictures
from training.gather.recipe import Source


def _source(path, **options):
    return Source(name="some", path=path, licence="CC0", **options)


def _write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())


def _commit_all(folder):
    for arguments in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "pictures"],
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)


def test_folder_gives_what_matches_in_an_order_of_the_seed(tmp_path):
    _write(tmp_path / "pictures", "a/1.jpg", "a/2.JPG", "b/3.png", "notes.txt", *(f"c/{i}.jpg" for i in range(9)))

    def names(seed):
        return [file.path for file in read_pictures(_source("pictures"), tmp_path, seed)]

    assert sorted(names(0)) == ["a/1.jpg", "a/2.JPG", "b/3.png", *(f"c/{i}.jpg" for i in range(9))]
    assert names(0) == names(0) != names(1)


def test_limit_and_globs_choose(tmp_path):
    _write(tmp_path / "pictures", "train/1.jpg", "train/2.jpg", "train/3.jpg", "val/4.jpg")
    source = _source("pictures", include=("train/*.jpg",), limit=2)
    chosen = [file.path for file in read_pictures(source, tmp_path, 0)]
    assert len(chosen) == 2
    assert set(chosen) < {"train/1.jpg", "train/2.jpg", "train/3.jpg"}


@pytest.mark.parametrize("bare", [False, True])
def test_git_repository_gives_the_same_files_as_its_work_tree(bare, tmp_path):
    _write(tmp_path / "plain", "a/ä 1.jpg", "b/2.jpg")
    _write(tmp_path / "clone", "a/ä 1.jpg", "b/2.jpg")
    _commit_all(tmp_path / "clone")
    if bare:
        subprocess.run(["git", "clone", "-q", "--bare", "clone", "bare"], cwd=tmp_path, check=True)
    (tmp_path / "clone/b/3.jpg").write_bytes(b"not committed")
    from_git = list(read_pictures(_source("bare" if bare else "clone"), tmp_path, 0))
    assert from_git == list(read_pictures(_source("plain"), tmp_path, 0))


def test_blob_that_a_partial_clone_lacks_is_empty_and_the_rest_is_read(tmp_path):
    _write(tmp_path / "clone", "1.jpg", "2.jpg", "3.jpg")
    _commit_all(tmp_path / "clone")
    blob = subprocess.run(
        ["git", "rev-parse", "HEAD:2.jpg"], cwd=tmp_path / "clone", check=True, capture_output=True, text=True
    ).stdout.strip()
    (tmp_path / "clone/.git/objects" / blob[:2] / blob[2:]).unlink()
    found = {file.path: file.data for file in read_pictures(_source("clone"), tmp_path, 0)}
    assert found == {"1.jpg": b"1.jpg", "2.jpg": b"", "3.jpg": b"3.jpg"}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"remote.evil.url": "ext::sh -c touch% {mark}"}, id="ext"),
        pytest.param({"remote.evil.url": "ext::sh -c touch% {mark}", "protocol.ext.allow": "always"}, id="ext allowed"),
        pytest.param({"remote.evil.url": "{bare}", "remote.evil.uploadpack": "touch {mark};"}, id="upload-pack"),
        pytest.param({"remote.evil.url": "ssh://nowhere/x", "core.sshCommand": "touch {mark};"}, id="ssh"),
    ],
)
def test_repository_runs_no_command_that_its_config_names(settings, tmp_path, monkeypatch):
    _write(tmp_path / "clone", "1.jpg", "2.jpg")
    _commit_all(tmp_path / "clone")
    bare, mark = tmp_path / "bare", tmp_path / "was-run"
    subprocess.run(["git", "clone", "-q", "--bare", "clone", "bare"], cwd=tmp_path, check=True)
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "evil",
        "remote.evil.promisor": "true",
        "remote.evil.partialCloneFilter": "blob:none",
        **settings,
    }.items():
        command = ["git", "--git-dir", str(bare), "config", name, value.format(mark=mark, bare=bare)]
        subprocess.run(command, check=True)
    blob = subprocess.run(
        ["git", "--git-dir", str(bare), "rev-parse", "HEAD:2.jpg"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (bare / "objects" / blob[:2] / blob[2:]).unlink()
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "ext:file:ssh")  # even if the user's environment allows it
    found = {file.path: file.data for file in read_pictures(_source("bare"), tmp_path, 0)}
    assert found == {"1.jpg": b"1.jpg", "2.jpg": b""}
    assert not mark.exists()


def test_missing_and_empty_sources_are_named(tmp_path):
    with pytest.raises(DataMissing, match="source some is missing"):
        list(read_pictures(_source("nowhere"), tmp_path, 0))
    _write(tmp_path / "pictures", "notes.txt")
    with pytest.raises(DataMissing, match=r"nothing matches \*\.jpg"):
        list(read_pictures(_source("pictures", include=("*.jpg",)), tmp_path, 0))


def test_folder_that_only_looks_like_git_is_named(tmp_path):
    _write(tmp_path / "broken", "HEAD", "objects/1.jpg")
    with pytest.raises(DataMissing, match="git cannot list it"):
        list(read_pictures(_source("broken"), tmp_path, 0))
