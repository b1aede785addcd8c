"""A model folder with a small exported program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.cuda.inductor import PROGRAM_FILE
from tests.engines.conftest import PublishModel, conv_graph


@pytest.fixture(autouse=True)
def _products_of_other_tests_are_not_changed() -> Iterator[None]:
    """Restore torch's float32 matmul precision, a setting of the whole process."""
    yield
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_float32_matmul_precision("highest")


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
