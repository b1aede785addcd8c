"""`retouch import` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner, Result

from retouch.command_line import app
from tests.export.foreign.inpainters import carve_layout, joint_layout

pytestmark = pytest.mark.slow  # a process for each import


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["import", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def graph(tmp_path) -> Path:
    onnx.save(carve_layout(64), tmp_path / "LaMa fp32.onnx")
    return tmp_path / "LaMa fp32.onnx"


def test_json_says_what_was_made_and_what_was_enforced(graph, tmp_path):
    result = run(graph, "--output", tmp_path / "models", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["directory"] == str(tmp_path / "models" / "lama-fp32" / "1")
    assert facts["manifest"]["generator"] == "onnx"
    assert set(facts["enforced"]) == {"memory", "time", "network", "files"}
    assert any("--output-range 0..255" in sentence for sentence in facts["found"])


def test_report_has_the_flags_that_describe_the_graph(graph, tmp_path):
    result = run(graph, "--output", tmp_path / "models", "--name", "lama", "--image-range", "0..1")
    assert result.exit_code == 0, result.output
    assert "wired: --image image --mask mask --output-tensor output" in result.stdout
    assert "while it was read, memory: 8 GiB of address space" in result.stdout


def test_report_states_the_bar_that_the_wrapped_graph_was_held_to(graph, tmp_path):
    result = run(graph, "--output", tmp_path / "models", "--name", "lama")
    assert "bar 60 dB" in result.stdout
    assert "45 dB" not in result.stdout


def test_ranges_that_begin_with_a_minus_are_flags_values(tmp_path):
    onnx.save(joint_layout(64), tmp_path / "net.onnx")
    flags = ("--image-range", "-1..1", "--output-range", "-1..1", "--mask-range", "-0.5..0.5")
    result = run(tmp_path / "net.onnx", "--output", tmp_path / "models", *flags)
    assert result.exit_code == 0, result.output


def test_a_file_that_is_not_there_is_a_wrong_argument_and_leaves_no_folder(tmp_path):
    result = run(tmp_path / "nowhere.onnx", "--output", tmp_path / "models")
    assert result.exit_code == 2
    assert "does not exist" in result.stderr
    assert "is called" not in result.stderr
    assert not (tmp_path / "models").exists()


def test_refusal_is_one_line_and_status_1(graph, tmp_path):
    result = run(graph, "--output", tmp_path / "models", "--mask-means", "known")
    assert result.exit_code == 1
    assert "error: as declared the graph does not inpaint" in result.stderr
    assert "--mask-means hole" in result.stderr


def test_invalid_flags_are_reported(graph):
    assert "write numbers with commas" in run(graph, "--sides", "a,b").stderr
    assert "--memory-gib" in run(graph, "--memory-gib", "inf").stderr
    assert "NAME[FIRST:AFTER_LAST]" in run(graph, "--image", "x[3:3]").stderr
    assert "lower-case" in run(graph, "--name", "No!").stderr


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e300", "86401"])
def test_times_that_no_limit_can_have_are_refused(graph, tmp_path, seconds):
    refused = run(graph, "--output", tmp_path / "models", "--timeout-s", seconds)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--timeout-s" in refused.stderr
