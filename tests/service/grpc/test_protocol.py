"""The committed message classes are protoc's output for our .proto file, which agrees with the public protocol."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor
from grpc_tools import protoc

from service.grpc.methods import METHODS, SERVICE
from service.grpc.protocol import open_inference_pb2 as messages

ROOT = Path(__file__).parents[3]
FOLDER = Path("service/grpc/protocol")


def test_what_is_committed_is_what_is_generated(tmp_path: Path) -> None:
    to = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main(["protoc", f"--proto_path={ROOT}", *to, str(FOLDER / "open_inference.proto")]) == 0
    for name in ("open_inference_pb2.pyi", "open_inference_pb2.py"):
        made = _without_version((tmp_path / FOLDER / name).read_text("utf-8"))
        assert made == _without_version((ROOT / FOLDER / name).read_text("utf-8")), "make grpc-messages"


def _without_version(text: str) -> str:
    """Return a generated file without the version of protoc, which changes with grpcio-tools."""
    before, _, after = text.partition("_runtime_version.ValidateProtobufRuntimeVersion(")
    _, _, rest = after.partition(")\n")
    return "\n".join(line for line in before.splitlines() if "Python Version" not in line) + rest


def test_every_method_of_the_file_is_answered_and_no_other() -> None:
    service = messages.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert service.full_name == SERVICE[1:-1]
    assert {f"{SERVICE}{method.name}" for method in service.methods} == set(METHODS)


def test_names_and_numbers_are_those_of_the_public_protocol() -> None:
    """The expected values were copied from the specification by hand, so that a change of our file is noticed."""
    expected = {
        "ModelInferRequest": "model_name=1 model_version=2 id=3 parameters=4 inputs=5 outputs=6 raw_input_contents=7",
        "ModelInferRequest.InferInputTensor": "name=1 datatype=2 shape=3 parameters=4 contents=5",
        "ModelInferRequest.InferRequestedOutputTensor": "name=1 parameters=2",
        "ModelInferResponse": "model_name=1 model_version=2 id=3 parameters=4 outputs=5 raw_output_contents=6",
        "ModelInferResponse.InferOutputTensor": "name=1 datatype=2 shape=3 parameters=4 contents=5",
        "InferParameter": "bool_param=1 int64_param=2 string_param=3 double_param=4 uint64_param=5",
        "InferTensorContents": "bytes_contents=8",
        "ModelMetadataResponse": "name=1 versions=2 platform=3 inputs=4 outputs=5",
        "ServerMetadataResponse": "name=1 version=2 extensions=3",
        "RepositoryIndexRequest": "repository_name=1 ready=2",
        "RepositoryIndexResponse.ModelIndex": "name=1 version=2 state=3 reason=4",
        "ModelConfig": "name=1 platform=2 max_batch_size=4 input=5 output=6 backend=17",
        "ModelStatistics": "name=1 version=2 last_inference=3 inference_count=4 execution_count=5 inference_stats=6",
        "InferStatistics": "success=1 fail=2 queue=3 compute_input=4 compute_infer=5 compute_output=6",
    }
    for name, numbers in expected.items():
        found = messages.DESCRIPTOR.pool.FindMessageTypeByName(f"inference.{name}")
        assert " ".join(f"{field.name}={field.number}" for field in found.fields) == numbers, name
    shape = messages.ModelInferRequest.InferInputTensor.DESCRIPTOR.fields_by_name["shape"]
    assert shape.type == FieldDescriptor.TYPE_INT64
