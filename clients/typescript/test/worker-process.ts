// A worker in a process of its own, for tests that kill, stop and restart it. It reports what happens as
// messages to its parent: `ready`, `began ID ATTEMPT`, `ended ID`, `aborted ID NAME`, `log LINE`, `stopping`, `stopped`.
import { z } from "zod";
import { job as define, work } from "../src/index.js";
import type { WorkOptions } from "../src/index.js";

const tell = (line: string) => process.send?.(line);

/** The parent opens the gate for jobs that hold: all that wait, and all later ones. */
let open = false;
const waiting: (() => void)[] = [];
process.on("message", () => {
  open = true;
  for (const go of waiting) go();
});
process.on("SIGTERM", () => tell("stopping"));
// The parent is gone.
const orphaned = () => process.exit(2);
process.on("disconnect", orphaned);

const task = define(process.env.TEST_KIND ?? "task", z.object({ hold: z.boolean().default(false), milliseconds: z.number().default(0) }));
const options = { log: (line: string) => tell(`log ${line}`), ...(JSON.parse(process.env.TEST_OPTIONS ?? "{}") as WorkOptions) };

const working = work(
  [
    task.run(async ({ hold, milliseconds }, ctx) => {
      tell(`began ${ctx.id} ${ctx.attempt}`);
      const aborted = new Promise<never>((_, reject) => ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)));
      aborted.catch((reason: Error) => tell(`aborted ${ctx.id} ${reason.name}`));
      if (hold && !open) await Promise.race([new Promise<void>((go) => waiting.push(go)), aborted]);
      if (milliseconds > 0) await new Promise((resolve) => setTimeout(resolve, milliseconds));
      tell(`ended ${ctx.id}`);
    }),
  ],
  options,
);
tell("ready");
await working;
tell("stopped");
process.off("disconnect", orphaned);
process.disconnect();
