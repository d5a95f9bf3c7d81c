// pg-boss tuned: four workers that fetch 100 jobs at a time and go on at once while batches
// come back full, woken by notifications.
// Its defaults (one job per fetch, a fetch every two seconds) are bound by their timer.

import pg from "pg";
import { PgBoss } from "pg-boss";
import { payload, run, started } from "../measure.mjs";

const queue = "noop";
const worker = {
  batchSize: 100,
  localConcurrency: 4,
  burstWhenBatchFull: true,
  pollingIntervalSeconds: 0.5,
};

// Everything but the schema: no timers of its own while somebody else is measured.
const client = (connectionString, max) =>
  new PgBoss({ connectionString, max, supervise: false, schedule: false });

async function start(boss) {
  boss.on("error", console.error);
  return boss.start();
}

await run({
  async setup(url) {
    const boss = await start(client(url, 2));
    await boss.createQueue(queue, { notify: true });
    await boss.stop({ graceful: false });
  },

  async connect(url, connections) {
    const boss = await start(client(url, connections));
    const observer = new pg.Pool({ connectionString: url, max: 1 });
    return {
      enqueueOne: (number) => boss.send(queue, payload(number)),
      enqueueMany: (numbers) => boss.insert(queue, numbers.map((number) => ({ data: payload(number) }))),
      async allFinished() {
        const left = await observer.query("select from pgboss.job where state < 'completed' limit 1");
        return left.rowCount === 0;
      },
    };
  },

  async work(url) {
    // With its supervision, as it would run in earnest.
    const boss = await start(new PgBoss({ connectionString: url, max: 10, useListenNotify: true }));
    await boss.work(queue, worker, async (jobs) => jobs.forEach(started));
    return () => boss.stop({ graceful: false });
  },
});
