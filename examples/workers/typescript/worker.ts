// A Towpath worker for Node.js 20 or newer, with nothing but what Node brings.
//
//     npm ci && npm run build
//     TOWPATH_URL=http://127.0.0.1:4437 EXECUTOR_TOKEN=tpx_... node build/worker.js
//
// Make the token with: towpath executor token create NAME
// Stops after the job in hand on SIGINT or SIGTERM.
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

type Held = { job_id: string; attempt: number };
type Job = Held & { job_kind: string; payload_json: Record<string, unknown> };
type Progress = (percent: number, message: string) => Promise<unknown>;

const url = `${process.env.TOWPATH_URL ?? "http://127.0.0.1:4437"}/api/v1/jobs/`;
const headers = {
  authorization: `Bearer ${process.env.EXECUTOR_TOKEN}`,
  "towpath-worker": `${hostname()}-${process.pid}`,
};
const leaseSeconds = 60;
let stopping = false;

/** Somebody else has the job now: stop working on it. */
class LeaseLost extends Error {}

async function call<Answer>(verb: string, body: object = {}): Promise<Answer> {
  const signal = AbortSignal.timeout(60_000);
  const response = await fetch(url + verb, { method: "POST", headers, body: JSON.stringify(body), signal });
  const answer = (await response.json()) as Answer & { error?: string; detail?: string };
  if (response.status === 409) throw new LeaseLost(answer.detail);
  if (!response.ok) throw new Error(`${verb}: ${response.status} ${answer.error}: ${answer.detail}`);
  return answer;
}

/** Your work. What it throws is recorded, and the job is tried again later. */
async function run(job: Job, progress: Progress): Promise<void> {
  if (job.payload_json.fail) throw new TypeError("told to fail");
  await progress(50, "half way");
  console.log("done", job.job_kind, JSON.stringify(job.payload_json));
}

async function work(job: Job): Promise<void> {
  const held: Held = { job_id: job.job_id, attempt: job.attempt };
  await call("start", held);
  // A job may take longer than its lease. A failed extension is heard by the next call.
  const extend = () => call("extend", { ...held, seconds: leaseSeconds }).catch(() => {});
  const keep = setInterval(extend, (leaseSeconds * 1000) / 3);
  try {
    await run(job, (percent, message) => call("progress", { ...held, percent, message }));
    await call("ack", held);
  } catch (error) {
    if (error instanceof LeaseLost) return console.log("dropped:", error.message);
    await call("fail", { ...held, error: String(error) });
  } finally {
    clearInterval(keep);
  }
}

for (const name of ["SIGINT", "SIGTERM"]) process.on(name, () => (stopping = true));
console.log("working");
while (!stopping) {
  try {
    await call("heartbeat");
    const { jobs } = await call<{ jobs: Job[] }>("claim", { wait_seconds: 5, lease_seconds: leaseSeconds });
    for (const job of jobs) await work(job);
  } catch (error) {
    // The server is away, or a gate is closed.
    console.log("waiting:", String(error));
    await sleep(2000);
  }
}
