"""Concurrent deliveries: receivers that hang delay no others, and one that answers may use spare capacity."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.jobs import webhook_table
from service.jobs.delivery.sender import RETRY_AFTER_S
from tests.fakes.clock import Clock
from tests.serving.backing.webhook_receiver import (
    Receiver,
    announce,
    announce_many,
    deliverer,
    ended,
    found,
    on_loopback,
    outcomes,
    receiving,
)
from tests.serving.waiting import until


async def test_a_silent_receiver_has_one_slot_and_delays_no_other(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock(1e9)
    async with receiving(hangs=True) as hung, deliverer(tmp_path, clock, resolve=on_loopback) as one:
        await announce_many(one, hung, "hung", 48)
        delivering = asyncio.create_task(replace(one, timeout_s=40.0).deliver_due())
        await until(lambda: hung.waiting == 1)
        clock.now += 1.0
        await announce(one, ended(receiver.url))
        await until(lambda: outcomes(one) == {"delivered": 1})
        assert (len(receiver.got), len(hung.got)) == (1, 1), "it did not come to its end"
        hung.let_go()
        assert await delivering == 49
        assert len(hung.got) == 48


async def test_a_receiver_that_answers_may_use_spare_slots_but_not_the_reserved_ones(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)
    async with receiving(hangs=True) as busy, deliverer(tmp_path, clock, resolve=on_loopback) as one:
        await announce_many(one, busy, "busy", 40)
        delivering = asyncio.create_task(replace(one, timeout_s=40.0).deliver_due())
        busy.let_go(1)
        await until(lambda: busy.waiting == 12)
        clock.now += 1.0
        await announce(one, ended(receiver.url))
        await until(lambda: receiver.got)
        assert len(busy.got) == 13, "none of them had ended"
        busy.let_go()
        assert await delivering == 41
        assert busy.most_waiting == 12


async def test_receivers_that_hang_share_a_few_slots_until_they_answer(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock(1e9)
    addresses = ["127.0.0.2"]

    async def resolve(_host: str, port: int, _family: int) -> list[Any]:
        return found(addresses[0], port)

    async with receiving(hangs=True) as hung, deliverer(tmp_path, clock, resolve=resolve) as one:
        for number in range(300):
            await announce_many(one, hung, f"hung{number}", 1)
        assert await one.deliver_due() == 300
        assert hung.got == [], "no receiver listened"
        addresses[0] = "127.0.0.1"
        clock.now += RETRY_AFTER_S[0]
        delivering = asyncio.create_task(replace(one, timeout_s=40.0).deliver_due())
        await until(lambda: hung.waiting == 4)
        clock.now += 1.0
        await announce_many(one, receiver, "healthy", 30)
        await until(lambda: len(receiver.got) == 30)
        assert (hung.waiting, hung.most_waiting) == (4, 4)
        hung.let_go()
        assert await delivering == 330
        assert len(hung.got) == 300


async def test_a_receiver_that_did_not_answer_gets_one_slot_until_it_answers_again(tmp_path: Path) -> None:
    clock = Clock(1e9)
    async with receiving(hangs=True) as hung, deliverer(tmp_path, clock, resolve=on_loopback) as one:
        await announce_many(one, hung, "hung", 40)
        delivering = asyncio.create_task(replace(one, timeout_s=0.5).deliver_due())
        hung.let_go(1)
        await until(lambda: outcomes(one)["failed"] == 12)
        await until(lambda: outcomes(one)["failed"] == 14)
        assert len(hung.got) <= 16, "one that was answered, 14 that failed, and the next"
        await until(lambda: len(hung.got) == 16 and hung.waiting == 1)
        hung.let_go(1)
        await until(lambda: len(hung.got) > 17)
        assert outcomes(one) == {"delivered": 2, "failed": 14}
        hung.let_go()
        assert await delivering == 40


async def test_each_silent_receiver_gets_its_turn_however_old_the_messages_of_others_are(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)
    asked: list[str] = []

    async def nobody_listens(host: str, port: int, _family: int) -> list[Any]:
        asked.append(host)
        return found("127.0.0.2", port)

    async with deliverer(tmp_path, clock, resolve=nobody_listens) as one:
        for number in range(6):
            await announce_many(one, receiver, f"host{number}", 8)
            clock.now += 1.0
        await one.deliver_due()
    times = Counter(asked[:24])
    assert len(times) == 6
    assert min(times.values()) >= 3


async def test_a_new_receiver_waits_briefly_however_many_other_new_ones_hang(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)
    async with receiving(hangs=True) as hung, deliverer(tmp_path, clock, resolve=on_loopback) as one:
        for number in range(60):
            await announce_many(one, hung, f"unknown{number}", 1)
            clock.now += 0.01
        delivering = asyncio.create_task(replace(one, timeout_s=40.0).deliver_due())
        await until(lambda: hung.waiting >= 12)
        clock.now += 1.0
        await announce_many(one, receiver, "healthy", 1)
        await until(lambda: receiver.got)
        assert hung.waiting < 60, "it did not wait for all of them"
        await until(lambda: hung.waiting == 60, 30)
        hung.let_go()
        assert await delivering == 61


async def test_attempts_keep_their_slots_during_dns_look_ups(tmp_path: Path) -> None:
    known = asyncio.Event()
    most = names = 0

    async def slow(_host: str, port: int, _family: int) -> list[Any]:
        nonlocal most, names
        names += 1
        most = max(most, names)
        await known.wait()
        names -= 1
        return found("127.0.0.1", port)

    async with receiving() as receiver, deliverer(tmp_path, Clock(1e9), resolve=slow) as one:
        for number in range(40):
            await announce_many(one, receiver, f"unknown{number}", 1)
        delivering = asyncio.create_task(replace(one, timeout_s=40.0).deliver_due())
        await until(lambda: names == 12)
        await asyncio.sleep(2.0)
        assert most == 12
        known.set()
        assert await delivering == 40


async def test_a_receiver_that_did_not_answer_gets_its_turn_however_busy_others_are(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)

    async def resolve(host: str, port: int, _family: int) -> list[Any]:
        away = host == "away.test" and clock.now < 1e9 + RETRY_AFTER_S[0]
        return found("127.0.0.2" if away else "127.0.0.1", port)

    async with receiving(hangs=True) as slow, deliverer(tmp_path, clock, resolve=resolve) as one:
        for number in range(20):
            url = slow.url.replace("127.0.0.1", f"busy{number}.test")
            await announce(one, replace(ended(url), id=f"first{number}"))
        slow.let_go(20)
        assert await one.deliver_due() == 20
        await announce_many(one, receiver, "away", 1)
        assert await one.deliver_due() == 1
        for number in range(20):
            await announce_many(one, slow, f"busy{number}", 4)
        clock.now += RETRY_AFTER_S[0]
        delivering = asyncio.create_task(replace(one, timeout_s=40.0).deliver_due())
        await until(lambda: slow.waiting == 16)
        slow.let_go(6)
        await until(lambda: receiver.got)
        assert outcomes(one)["failed"] == 1, "none of the busy ones had come to its end"
        slow.let_go()
        assert await delivering == 81


async def test_one_query_of_the_ledger_serves_many_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    due_in_turn = webhook_table.due_in_turn

    def counted(*args: Any, **kwargs: Any) -> list[tuple[str, str]]:
        looks.append(time.monotonic())
        return due_in_turn(*args, **kwargs)

    monkeypatch.setattr(webhook_table, "due_in_turn", counted)
    async with receiving(hangs=True) as slow, deliverer(tmp_path, Clock(1e9), resolve=on_loopback) as one:
        await announce_many(one, slow, "slow", 60)
        delivering = asyncio.create_task(replace(one, timeout_s=40.0).deliver_due())
        for ended_before in range(40):
            slow.let_go(1)
            await until(lambda reached=ended_before + 13: len(slow.got) == reached)  # type: ignore[misc]
        assert len(looks) <= 8 + (time.monotonic() - looks[0]) / 0.5
        slow.let_go()
        assert await delivering == 60
