"""A model folder with a small exported program."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.cuda.inductor import PROGRAM_FILE
from tests.engines.conftest import PublishModel, conv_graph


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from tests.engines.cuda.programs import write_program  # noqa: PLC0415 -- needs torch, which the folder does not

    directory = tmp_path_factory.mktemp("program")
    write_program(directory)
    return (directory / PROGRAM_FILE).read_bytes()


@pytest.fixture
def directory(publish: PublishModel, program: bytes) -> Path:
    directory = publish(onnx_model=conv_graph())
    (directory / PROGRAM_FILE).write_bytes(program)
    return directory
