// Packs the parcels of orders, and reports how far it is.
import { setTimeout as sleep } from "node:timers/promises";
import { work } from "@towpath/client";
import { ship } from "./jobs.js";

const pack = ship.run(async ({ order, parcels }, ctx) => {
  for (let parcel = 1; parcel <= parcels; parcel += 1) {
    await sleep(100, undefined, { signal: ctx.signal }); // the work: it stops when the job is cancelled
    await ctx.append({ packed: parcel });
    await ctx.progress((100 * parcel) / parcels, `packed ${parcel} of ${parcels}`);
  }
  return { order, parcels };
});

await work([pack], { concurrency: 8 });
