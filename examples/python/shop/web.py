"""The shop: takes orders, receives its own webhook, and serves the page. `python -m shop.web`"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
from standardwebhooks import Webhook, WebhookVerificationError

from shop.jobs import Ship, ship
from towpath import Client, emit

PAGE = Path(__file__).parents[2] / "page.html"
client = Client()  # TOWPATH_URL, TOWPATH_TOKEN
webhook = Webhook(os.environ["WEBHOOK_KEY"])


def database() -> psycopg.Connection[Any]:
    return psycopg.connect(os.environ["DATABASE_URL"])


def place_order(parcels: int) -> int:
    """An order, its job and its event commit together, or not at all."""
    with database() as connection, connection.transaction():
        insert = "insert into shop.orders (parcels) values (%s) returning order_id"
        [order] = connection.execute(insert, [parcels]).fetchone() or [0]
        job_id = ship.enqueue(connection, Ship(order, parcels), key=f"ship:{order}")
        connection.execute("update shop.orders set job_id = %s where order_id = %s", [job_id, order])
        emit(connection, "shop", "order.placed", {"order": order}, subject_ref=str(order))
        return order


def show_order(order: int) -> dict[str, Any] | None:
    """What the page needs to follow an order: its job, and a token for that job only."""
    with database() as connection:
        find = "select job_id, announced_at is not null from shop.orders where order_id = %s"
        found = connection.execute(find, [order]).fetchone()
    if found is None:
        return None
    [job_id, announced] = found
    token = client.job_token(job_id)
    where = {"towpath": client.url, "stream": token.stream}
    return {"order": order, "job": str(job_id), "token": token.token, "announced": announced, **where}


def announce(body: bytes, headers: dict[str, str]) -> bool:
    """The webhook: its signature proves that it comes from Towpath."""
    try:
        event: Any = webhook.verify(body, headers)
    except WebhookVerificationError as error:
        print(f"refused: {error}", flush=True)
        return False
    with database() as connection:
        update = "update shop.orders set announced_at = now() where order_id = %s and announced_at is null"
        connection.execute(update, [event["data"]["payload"]["order"]])
    return True


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/":
            return self.answer(200, PAGE.read_bytes(), "text/html; charset=utf-8")
        [directory, _, order] = self.path[1:].partition("/")
        shown = show_order(int(order)) if directory == "orders" and order.isdigit() else None
        self.answer(200 if shown else 404, shown or {"error": "not found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/orders":
            return self.answer(201, {"order": place_order(json.loads(body)["parcels"])})
        if self.path == "/webhook":
            verified = announce(body, {name.lower(): value for name, value in self.headers.items()})
            return self.answer(200 if verified else 401, {"verified": verified})
        self.answer(404, {"error": "not found"})

    def answer(self, status: int, body: Any, type: str = "application/json") -> None:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", type)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing of each request."""


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Shop)
print(f"open http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
