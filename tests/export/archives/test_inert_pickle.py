from __future__ import annotations

import os
import pickle

import pytest

from export.archives.inert_pickle import Name, NotReadable, PersistentId, RecordedCall, read_pickle
from tests.export.archives.script_files import called, imported, integer, row, text


def _read(data: bytes, *allowed: str) -> object:
    return read_pickle(b"\x80\x02" + data + b".", lambda name: name in allowed)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 300, -(2**40), 1.5, "ä", (), (1, (2, 3), "x"), [1, [2]], {"a": {"b": 1}}, [{}, {}]],
    ids=repr,
)
def test_plain_values_are_what_pickle_reads(value):
    data = pickle.dumps(value, protocol=2)
    assert read_pickle(data, lambda _name: False) == value


def test_entries_without_a_name_are_left_out():
    assert read_pickle(pickle.dumps({1: 2, "a": 3, (1, 2): 4}, protocol=2), lambda _name: False) == {"a": 3}


def test_calls_are_written_down_and_not_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = _read(called(imported("os", "system"), text("touch hacked")), "os.system")
    assert found == RecordedCall(Name("os.system"), ("touch hacked",))
    assert not (tmp_path / "hacked").exists()


def test_names_that_are_not_allowed_end_the_reading():
    with pytest.raises(NotReadable, match=r"needs posix\.system") as refused:
        read_pickle(pickle.dumps({"a": os.system}, protocol=2), lambda _name: False)
    assert refused.value.name == "posix.system"


def test_references_to_storages_are_kept():
    assert _read(row(text("storage"), integer(3)) + b"Q") == PersistentId(("storage", 3))


def test_values_used_twice_are_the_same():
    shared = [1]
    found = read_pickle(pickle.dumps([shared, shared], protocol=2), lambda _name: False)
    assert isinstance(found, list)
    assert found[0] is found[1]


def test_a_memo_index_of_four_billion_costs_nothing():
    assert _read(b"Nr\xff\xff\xff\xff") is None


def test_deeply_nested_tuples_are_read_and_forgotten():
    assert isinstance(_read(b")" + b"\x85" * 300_000), tuple)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x82\x01", "EXT1, which torch does not write"),
        (b"(ios\nsystem\n", "INST"),
        (b"(cos\nsystem\no", r"needs os\.system"),
        (text("os") + text("system") + b"\x93", "STACK_GLOBAL"),
        (b"N}b", "a state for an object that was not made"),
        (b"NN\x85\x86\x87", "the stack is too short"),
        (b"Nh\x05", "damaged"),
        (b"NNs", "damaged"),
        (b"]NNs", "entries for an object that is not a dictionary"),
        (b"}Na", "entries for an object that is not a list"),
        (b"t", "damaged"),
        (b"", "damaged"),
        (b"NN", "damaged"),
        (b"X\xff\xff\xff\x7fabc", "damaged"),
        (b"\x8b\xff\xff\xff\x7f\x00", "LONG4|damaged"),
        (b"\xff", "damaged"),
        (b"NNR", "arguments are not a tuple"),
    ],
    ids=repr,
)
def test_what_torch_does_not_write_is_refused(data, message):
    with pytest.raises(NotReadable, match=message):
        _read(data)
