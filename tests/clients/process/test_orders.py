"""Orders whose workers are killed at random: each is paid once, goes on where it was, and ends once (P13 to P16)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from conftest import PATIENCE_SECONDS, Towpath, until

EXAMPLES = Path(os.environ["EXAMPLES"])
KILLS = int(os.environ["TOWPATH_TEST_ORDER_KILLS"])
# Kickoff to suspended takes some milliseconds: a kill falls before, between and after the steps.
DELAY_SECONDS_MAX = 0.06

CLOCK = """
    create schema testkit authorization towpath_owner;
    set role towpath_owner;
    create table testkit.clock (shift interval not null default '0');
    insert into testkit.clock default values;
    create or replace function towpath.fn_now() returns timestamptz
        language sql volatile parallel safe security definer set search_path = pg_catalog, pg_temp
    as $$ select clock_timestamp() + shift from testkit.clock $$;
    reset role"""


class Worker(Protocol):
    def start(self) -> None: ...
    def kill(self) -> None: ...


class Program:
    """A worker that is a program of its own."""

    def __init__(self, towpath: Towpath, log: Path, *command: str) -> None:
        self.towpath, self.log, self.command = towpath, log, command

    def start(self) -> None:
        settings = {
            "TOWPATH_URL": self.towpath.url,
            "TOWPATH_TOKEN": self.towpath.token,
            "DATABASE_URL": self.towpath.database_url,
        }
        with self.log.open("ab") as out:
            environment = {**self.towpath.environment(), **settings}
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out, env=environment)

    def kill(self) -> None:
        assert self.process.poll() is None, self.log.read_text()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)


class Server:
    """The worker of SQL functions: `towpath up` itself."""

    def __init__(self, towpath: Towpath) -> None:
        self.towpath = towpath

    def start(self) -> None:
        if self.towpath.process is None or self.towpath.process.poll() is not None:
            self.towpath.start()

    def kill(self) -> None:
        self.towpath.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def shop(towpath: Towpath) -> Towpath:
    """The table and kinds of the example, and a clock that can be moved."""
    towpath.sql(CLOCK)
    towpath.sql((EXAMPLES / "order.sql").read_text())
    return towpath


@pytest.fixture(params=["sql", "rust", "python", "typescript"])
def form(request: pytest.FixtureRequest, shop: Towpath, tmp_path: Path) -> Iterator[tuple[str, Worker]]:
    commands = {
        "rust": [os.environ["EXAMPLE_RUST"]],
        "python": [sys.executable, str(EXAMPLES / "order.py")],
        "typescript": ["node", os.environ["EXAMPLE_TYPESCRIPT"]],
    }
    name = request.param
    worker = Program(shop, tmp_path / "worker.log", *commands[name]) if name in commands else Server(shop)
    if name != "sql":
        shop.sql("select towpath.process_kind(%s)", f"shop.{name}_order")
    # Many kills in a row use no attempt up.
    shop.sql("update towpath.process_kind set max_attempts = 1000, backoff_seconds = 0 where process_kind like 'shop.%%'")
    yield name, worker
    if name != "sql":
        worker.kill()


def orders(shop: Towpath, kind: str, where: str = "true") -> list[str]:
    return shop.sql(f"select ref from towpath.process where process_kind = %s and {where} order by ref", kind)


def violations(order: dict[str, Any]) -> list[str]:
    """What is wrong with an order that has ended."""
    facts = [fact["fact"] for fact in order["facts"]]
    steps = [fact["name"] for fact in order["facts"] if fact["fact"] == "stepped"]
    wrong = [f"{step} is recorded {steps.count(step)} times" for step in ("pay", "shipped", "mail") if steps.count(step) != 1]
    if facts.count("succeeded") != 1 or facts[-1] != "succeeded":
        wrong.append(f"it ended with {facts[-1]}")
    if order["payments"] != 1:
        wrong.append(f"it was paid {order['payments']} times")
    if order["mails"] != ["succeeded"]:
        wrong.append(f"its e-mails: {order['mails']}")
    if order["result"] != {"shipped": order["signalled"], "mail": "succeeded"}:
        wrong.append(f"its result: {order['result']}")
    return wrong


def test_the_checker_sees_bad_orders() -> None:
    steps = [{"fact": "stepped", "name": name} for name in ("pay", "shipped", "mail")]
    good: dict[str, Any] = {
        "facts": [*steps, {"fact": "succeeded", "name": None}],
        "payments": 1,
        "mails": ["succeeded"],
        "signalled": True,
        "result": {"shipped": True, "mail": "succeeded"},
    }
    assert violations(good) == []
    for bad in (
        {"facts": [steps[0], *good["facts"]]},
        {"facts": good["facts"][1:]},
        {"facts": [*steps, {"fact": "gave_up", "name": None}]},
        {"payments": 2},
        {"mails": []},
        {"mails": ["succeeded", "succeeded"]},
        {"signalled": False},
    ):
        assert violations(good | bad) != [], bad


def test_a_killed_order_goes_on_where_it_was(shop: Towpath, form: tuple[str, Worker]) -> None:
    name, worker = form
    kind = f"shop.{name}_order"
    chance = random.Random(seed := random.randrange(10**9))
    print(f"seed {seed}")
    number = 0

    def start() -> str:
        nonlocal number
        number += 1
        order = json.dumps({"cents": number, "email": "ann@example.org"})
        shop.sql("select towpath.start_process(%s, %s, input => %s)", kind, f"{name}-{number}", order)
        return f"{name}-{number}"

    def ship(ref: str) -> None:
        shop.sql("select towpath.signal_process(%s, %s, 'shipped', '{\"parcel\": \"1Z\"}')", kind, ref)

    def begin_life() -> None:
        worker.start()
        # What a dead worker held runs out. Only now: killing the server stops its PostgreSQL, too.
        shop.sql("update testkit.clock set shift = shift + interval '10 minutes'")

    def waits(ref: str) -> bool:
        return orders(shop, kind, f"waits_for = 'shipped' and ref = '{ref}'") != []

    for _ in range(KILLS):
        begin_life()
        first = start()
        until(f"{first} waits", lambda: waits(first))
        # One goes on after its signal while others begin, and one is signalled before it waits.
        ship(first)
        start()
        ship(start())
        time.sleep(chance.uniform(0, DELAY_SECONDS_MAX))
        worker.kill()
    begin_life()
    last = start()
    until("all wait or have ended", lambda: orders(shop, kind, "waits_for is distinct from 'shipped' and finished_at is null") == [])
    assert waits(last), "sleeps for three days"
    shop.sql("update testkit.clock set shift = shift + interval '3 days 1 minute'")
    until("all have ended", lambda: orders(shop, kind, "finished_at is null") == [])

    for ref in orders(shop, kind):
        [shown] = shop.sql("select towpath.fn_process_show(process_id) from towpath.process where process_kind = %s and ref = %s", kind, ref)
        order = {
            "facts": shown["facts"],
            "result": shown["process"]["result"],
            "payments": shop.sql("select count(*) from shop.payment where order_ref = %s", ref)[0],
            "mails": shop.sql("select state from towpath.process where process_kind = 'shop.order_mail' and ref = %s", f"{name}:{ref}"),
            "signalled": any(fact["fact"] == "signalled" and fact["name"] == "shipped" for fact in shown["facts"]),
        }
        assert violations(order) == [], (ref, shown)
    assert len(orders(shop, kind)) == 3 * KILLS + 1
