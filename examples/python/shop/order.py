"""Places an order and follows its job: `python -m shop.order 7`"""

import sys

from shop.jobs import Invoice, invoice
from shop.tables import connect
from towpath import Client


def main(order: int) -> None:
    with connect() as connection:
        with connection.transaction():
            connection.execute("insert into shop.orders (order_id, cents) values (%s, 1990)", [order])
            job_id = invoice.enqueue(connection, Invoice(order), key=f"invoice:{order}")
        print(f"order {order} is placed, job {job_id} writes its invoice", flush=True)
    with Client() as client:
        for message in client.follow(job_id):
            value = message["value"]
            if message["type"] == "job":
                print(
                    f"{value['state']} {value.get('percent') or 0} % {value.get('message') or ''}".strip(),
                    flush=True,
                )
            else:
                print(f"the job says {value}", flush=True)
        print(f"result: {client.wait(job_id).result}", flush=True)


main(int(sys.argv[1]))
