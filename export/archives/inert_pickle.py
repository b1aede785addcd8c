"""Reads a pickle as data, without the pickle module.

A pickle is a program for a small stack machine, and two of its instructions import names and call them. This machine
does neither: it records what would be called, with which arguments. A name that the caller does not allow ends the
reading, so a file that tries to run code is refused as a whole.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, BinaryIO, TypeAlias


class NotReadable(Exception):
    """The bytes are not a pickle of the kind that torch writes, or hold a name that is not allowed."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        """The forbidden name, as in `os.system`."""


@dataclass(frozen=True)
class Name:
    """An imported name, as in `collections.OrderedDict`; it is never imported."""

    path: str


@dataclass
class RecordedCall:
    """A call that was recorded, not executed: its callable, its arguments, and what was then stored in its result."""

    of: object
    """The callable; a `Name` in every file that torch writes."""
    arguments: tuple[object, ...]
    items: dict[str, object] = field(default_factory=dict)
    """Entries that were set on the result, if that is a dictionary."""
    state: object = None
    """The state that was set on the result (opcode BUILD), for instance a dictionary of attributes."""


@dataclass(frozen=True)
class PersistentId:
    """A persistent id: a reference to data outside the pickle. Torch's are ('storage', type, key, device, elements)."""

    reference: object


def read_pickle(
    data: bytes | BinaryIO,
    is_allowed: Callable[[str], bool],
    on_reference: Callable[[PersistentId], None] = lambda _: None,
) -> object:
    """Return the value that the pickle describes: numbers, strings, tuples, lists, dictionaries, calls and ids.

    Args:
        data: the pickle, protocol 2 as torch writes it; a file is read to the pickle's end.
        is_allowed: returns whether an imported name, as in `collections.OrderedDict`, may occur.
        on_reference: called with every persistent id, also with those of entries that are not returned.

    Raises:
        NotReadable: the pickle is damaged, uses an opcode that torch does not write, or has a name that is not allowed.
    """
    machine = _Machine(is_allowed, on_reference)
    try:
        for opcode, argument, _ in pickletools.genops(data):
            _step_of(opcode.name)(machine, argument)
        (value,) = machine.stack
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise NotReadable(f"its pickle is damaged ({error})") from error
    return value


class _Machine:
    """The stack, its marks, and the memo: a dictionary, so that a large index in the file costs no memory."""

    def __init__(self, is_allowed: Callable[[str], bool], on_reference: Callable[[PersistentId], None]) -> None:
        self.is_allowed = is_allowed
        self.on_reference = on_reference
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError("the stack is too short")
        values = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.push(values)

    def name(self, argument: str) -> None:
        path = argument.replace(" ", ".")
        if not self.is_allowed(path):
            raise NotReadable(f"it needs {path}", path)
        self.push(Name(path))

    def refer(self) -> None:
        reference = PersistentId(self.pop())
        self.on_reference(reference)
        self.push(reference)

    def make(self) -> None:
        arguments, of = self.pop(), self.pop()
        if not isinstance(arguments, tuple):
            raise TypeError("arguments are not a tuple")
        self.push(RecordedCall(of, arguments))

    def build(self) -> None:
        state, made = self.pop(), self.stack[-1]
        if not isinstance(made, RecordedCall):
            raise TypeError("a state for an object that was not made")
        made.state = state

    def set_items(self, values: list[Any]) -> None:
        """Set entries of the dictionary on top of the stack; entries whose key is not a string are dropped."""
        target = self.stack[-1]
        entries = target.items if isinstance(target, RecordedCall) else target
        if not isinstance(entries, dict) or len(values) % 2:
            raise TypeError("entries for an object that is not a dictionary")
        entries.update(
            (key, value) for key, value in zip(values[::2], values[1::2], strict=True) if isinstance(key, str)
        )

    def append(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, RecordedCall):  # a subclass of list, whose entries are not needed
            raise TypeError("entries for an object that is not a list")


def _step_of(instruction: str) -> _Step:
    if instruction not in _STEPS:
        raise NotReadable(f"its pickle uses {instruction}, which torch does not write")
    return _STEPS[instruction]


_Step: TypeAlias = Callable[[_Machine, Any], Any]
_STEPS: Mapping[str, _Step] = MappingProxyType(
    {
        "PROTO": lambda _machine, _version: None,
        "STOP": lambda _machine, _: None,
        "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
        "POP": lambda machine, _: machine.pop(),
        "BINGET": lambda machine, index: machine.push(machine.memo[index]),
        "LONG_BINGET": lambda machine, index: machine.push(machine.memo[index]),
        "BINPUT": lambda machine, index: machine.memo.update({index: machine.stack[-1]}),
        "LONG_BINPUT": lambda machine, index: machine.memo.update({index: machine.stack[-1]}),
        "NONE": lambda machine, _: machine.push(None),
        "NEWTRUE": lambda machine, _: machine.push(True),
        "NEWFALSE": lambda machine, _: machine.push(False),
        **{
            name: lambda machine, value: machine.push(value)
            for name in (
                "BININT",
                "BININT1",
                "BININT2",
                "LONG1",
                "BINFLOAT",
                "BINUNICODE",
                "SHORT_BINSTRING",
                "BINSTRING",
            )
        },
        "EMPTY_TUPLE": lambda machine, _: machine.push(()),
        "EMPTY_LIST": lambda machine, _: machine.push([]),
        "EMPTY_DICT": lambda machine, _: machine.push({}),
        "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
        "TUPLE1": lambda machine, _: machine.tuple_of(1),
        "TUPLE2": lambda machine, _: machine.tuple_of(2),
        "TUPLE3": lambda machine, _: machine.tuple_of(3),
        "APPEND": lambda machine, _: machine.append([machine.pop()]),
        "APPENDS": lambda machine, _: machine.append(machine.since_mark()),
        "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
        "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
        "GLOBAL": lambda machine, argument: machine.name(argument),
        "REDUCE": lambda machine, _: machine.make(),
        "NEWOBJ": lambda machine, _: machine.make(),
        "BUILD": lambda machine, _: machine.build(),
        "BINPERSID": lambda machine, _: machine.refer(),
    }
)
