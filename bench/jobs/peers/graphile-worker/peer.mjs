// graphile-worker (npm) in the settings of its authors' performance test: 24 slots, a local
// queue of 500, completions gathered until the next turn of the event loop.
// Its defaults (1 slot, no local queue, no gathering) are some ten times slower.

import { Logger, makeWorkerUtils, run as runWorker, runMigrations } from "graphile-worker";
import { payload, run, started } from "../measure.mjs";

const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

const tuned = {
  concurrentJobs: 24,
  maxPoolSize: 26,
  pollInterval: 2000,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
  logger,
};

await run({
  setup: (connectionString) => runMigrations({ connectionString, logger }),

  async connect(connectionString, connections) {
    // It wants a pool of two at least.
    const maxPoolSize = Math.max(connections, 2);
    const utils = await makeWorkerUtils({ preset: { worker: { connectionString, maxPoolSize, logger } } });
    return {
      enqueueOne: (number) => utils.addJob("noop", payload(number)),
      enqueueMany: (numbers) =>
        utils.addJobs(numbers.map((number) => ({ identifier: "noop", payload: payload(number) }))),
      async allFinished() {
        const left = await utils.withPgClient((client) =>
          client.query("select from graphile_worker._private_jobs limit 1"));
        return left.rowCount === 0;
      },
    };
  },

  async work(connectionString) {
    const runner = await runWorker({
      preset: { worker: { connectionString, ...tuned } },
      taskList: { noop: started },
      noHandleSignals: true,
    });
    return () => runner.stop();
  },
});
