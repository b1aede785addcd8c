"""External data of a graph: limits on the number of files and bytes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.errors import GraphRefused
from export.foreign.guard.policy import check_policy
from export.foreign.guard.reading import read_model
from export.foreign.guard.tensors import MAX_BYTES
from tests.export.foreign.inpainters import FLOAT, carve_layout


def _with_external(path: Path, locations: list[str], dims: list[int]) -> Path:
    model = carve_layout(32)
    for index, location in enumerate(locations):
        tensor = TensorProto(name=f"far_{index}", data_type=FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        model.graph.initializer.append(tensor)
    path.write_bytes(model.SerializeToString())
    return path


def test_data_in_a_file_beside_the_graph_is_taken_into_it(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "data").write_bytes(values.tobytes())
    model, _ = read_model(_with_external(tmp_path / "graph.onnx", ["data"], [2, 3]))
    found = {tensor.name: tensor for tensor in model.graph.initializer}["far_0"]
    assert found.data_location == TensorProto.DEFAULT
    np.testing.assert_array_equal(numpy_helper.to_array(found), values)


def test_data_that_changes_changes_the_digest(tmp_path: Path) -> None:
    path = _with_external(tmp_path / "graph.onnx", ["data"], [1])
    digests = []
    for content in (b"\0\0\0\0", b"\0\0\0\1"):
        (tmp_path / "data").write_bytes(content)
        digests.append(read_model(path)[1])
    assert digests[0] != digests[1]


def test_data_in_sixty_five_files_is_refused(tmp_path: Path) -> None:
    path = _with_external(tmp_path / "graph.onnx", [f"data_{i}" for i in range(65)], [1])
    with pytest.raises(GraphRefused, match="spread over 65 files; at most 64"):
        read_model(path)


def test_data_that_claims_more_than_is_read_is_refused(tmp_path: Path) -> None:
    path = _with_external(tmp_path / "graph.onnx", ["one", "two"], [2**14, 2**14])
    with pytest.raises(GraphRefused, match="graph and external data claim"):
        read_model(path)


def test_file_that_is_larger_than_what_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    onnx.save(carve_layout(32), path)
    os.truncate(path, MAX_BYTES + 1)  # a sparse file, which takes no space on the disk
    with pytest.raises(GraphRefused, match=f"{MAX_BYTES + 1} bytes; at most {MAX_BYTES} are read"):
        read_model(path)


def test_declared_domains_of_which_no_node_is_are_forgotten(tmp_path: Path) -> None:
    model = carve_layout(32)
    for domain in ("com.microsoft", "ai.onnx.ml", "com.microsoft.nchwc"):
        model.opset_import.insert(0, helper.make_opsetid(domain, 1))
    model.graph.node[0].domain = "com.microsoft"
    (tmp_path / "graph.onnx").write_bytes(model.SerializeToString())
    read, _ = read_model(tmp_path / "graph.onnx")
    assert [entry.domain for entry in read.opset_import] == ["com.microsoft", ""]
    with pytest.raises(GraphRefused, match=r"needs operators of 'com\.microsoft'; only"):
        check_policy(read)
