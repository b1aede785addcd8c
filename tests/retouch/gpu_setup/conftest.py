"""A virtual environment and a folder of small wheels in place of NVIDIA's: pip installs them for real."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import shutil
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from retouch.gpu_setup.pip import Environment

WriteWheel = Callable[..., Path]


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of wheels, pip's only source."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def write_wheel(wheels: Path) -> WriteWheel:
    """Write a wheel with one file: `module` is the file's path, `folder` overrides the folder of the wheel."""

    def write(requirement: str, module: str, text: str, folder: Path | None = None) -> Path:
        name, _, version = requirement.partition("==")
        stem = f"{name.replace('-', '_')}-{version}"
        files = {
            module: text,
            f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in files.items())
        target = (folder or wheels) / f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(target, "w") as archive:
            for path, content in {**files, f"{stem}.dist-info/RECORD": record}.items():
                archive.writestr(path, content)
        return target

    return write


def _digest(content: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="session")
def new_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A template environment for copies; it has a copy of this Python's pip, which is faster than an installation."""
    folder = tmp_path_factory.mktemp("new") / "environment"
    pip = importlib.util.find_spec("pip")
    venv.create(folder, with_pip=pip is None)
    if pip is not None and pip.origin is not None:
        (packages,) = folder.glob("lib/python3*/site-packages")
        shutil.copytree(Path(pip.origin).parent, packages / "pip")
    return folder


@pytest.fixture
def environment(tmp_path: Path, new_environment: Path) -> Environment:
    """A fresh environment with its own pip."""
    folder = shutil.copytree(new_environment, tmp_path / "environment", symlinks=True)
    return Environment(folder / "bin" / "python", folder)
