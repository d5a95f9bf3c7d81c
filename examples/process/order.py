"""An order, in Python: pay, wait for the signal `shipped` or three days, send an e-mail. Kill it at any moment.

psql -v ON_ERROR_STOP=1 -f order.sql "$(towpath db url)"    # the table, and the kind of the e-mail
towpath process kind shop.python_order
TOWPATH_URL=… TOWPATH_TOKEN=… DATABASE_URL=… python order.py
"""

import asyncio
import os
from typing import Any

import psycopg
from towpath import Worker
from towpath.process import Steps, process


async def pay(ref: str, cents: int) -> dict[str, Any]:
    """Stands for a payment service that takes each key once."""
    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as connection:
        sql = "insert into shop.payment values (%s, %s) on conflict do nothing"
        await connection.execute(sql, (ref, cents))
    return {"paid": cents}


@process("shop.python_order")
async def order(input: dict[str, Any], steps: Steps) -> dict[str, Any]:
    await steps.step("pay", lambda: pay(steps.ref, input["cents"]))
    shipped = await steps.wait_for("shipped", timeout=3 * 86_400)
    message = {
        "to": input["email"],
        "from": "shop@example.com",
        "subject": f"Your order {steps.ref}",
        "text": f"It is on its way: {shipped['parcel']}" if shipped else "It is late. We are looking for it.",
    }
    mail = await steps.child("mail", "shop.order_mail", f"python:{steps.ref}", message)
    return {"shipped": shipped is not None, "mail": mail["state"]}


if __name__ == "__main__":
    asyncio.run(Worker([order]).run())
