"""The job of the shop. `python -m towpath work shop.jobs` runs it."""

import asyncio
from dataclasses import dataclass

from towpath import AsyncContext, job


@dataclass
class Ship:
    order: int
    parcels: int


@job("shop.ship", max_attempts=5)
async def ship(args: Ship, ctx: AsyncContext) -> dict[str, int]:
    """Packs the parcels of an order, and reports how far it is."""
    for parcel in range(1, args.parcels + 1):
        await asyncio.sleep(0.1)  # the work: it is cancelled with the job
        await ctx.append({"packed": parcel})
        await ctx.progress(100 * parcel // args.parcels, f"packed {parcel} of {args.parcels}")
    return {"order": args.order, "parcels": args.parcels}
