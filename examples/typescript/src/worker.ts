// Packs the parcels of orders.
import { setTimeout as sleep } from "node:timers/promises";
import { ship, tp } from "./jobs.js";

const pack = ship.run(async ({ order, parcels }, job) => {
  for (let parcel = 1; parcel <= parcels; parcel += 1) {
    await sleep(100, undefined, { signal: job.signal }); // the work: it stops when the job is cancelled
    await job.append({ packed: parcel });
    await job.progress((100 * parcel) / parcels, `packed ${parcel} of ${parcels}`);
  }
  return { order, parcels };
});

console.log("working");
await tp.work([pack], { concurrency: 8 });
