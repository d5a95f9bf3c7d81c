"""The jobs of the shop. `python -m towpath work shop.jobs` runs them."""

from dataclasses import dataclass

from shop.tables import connect
from towpath import Context, PermanentError, emit, job


@dataclass
class Invoice:
    order: int


@dataclass
class Invoiced:
    invoice: int
    cents: int


@job("shop.invoice", max_attempts=5)
def invoice(args: Invoice, ctx: Context) -> Invoiced:
    """Writes the invoice of an order. It may run twice, so it writes the invoice only once."""
    with connect() as connection:
        ctx.progress(10, "reading the order")
        order = connection.execute(
            "select cents from shop.orders where order_id = %s", [args.order]
        ).fetchone()
        if order is None:
            raise PermanentError(f"there is no order {args.order}")
        ctx.progress(50, "writing the invoice")
        with connection.transaction():
            connection.execute(
                "insert into shop.invoices (order_id) values (%s) on conflict (order_id) do nothing",
                [args.order],
            )
            [number] = connection.execute(
                "select invoice_id from shop.invoices where order_id = %s", [args.order]
            ).fetchone() or [0]
            emit(
                connection,
                "shop",
                "invoiced",
                {"order": args.order, "invoice": number},
                subject_ref=str(args.order),
            )
        ctx.append({"invoice": number})
        ctx.progress(100, "done")
    return Invoiced(number, order[0])
