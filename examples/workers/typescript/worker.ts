// A Towpath worker for Node.js 20 or newer, without dependencies.
//
//     npm ci && npm run build
//     TOWPATH_URL=http://127.0.0.1:4437 EXECUTOR_TOKEN=tpx_... node build/worker.js
//
// Create the token with: towpath executor token create NAME
// It claims up to `batch` jobs with one call and acknowledges them with one call. On SIGINT or SIGTERM it
// finishes the current job, releases the others, and stops.
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

type Lease = { job_id: string; attempt: number };
type Job = Lease & { job_kind: string; payload_json: Record<string, unknown> };
type Progress = (percent: number, message: string) => Promise<unknown>;

const url = `${process.env.TOWPATH_URL ?? "http://127.0.0.1:4437"}/api/v1/jobs/`;
const headers = {
  authorization: `Bearer ${process.env.EXECUTOR_TOKEN}`,
  "towpath-worker": `${hostname()}-${process.pid}`,
};
const leaseSeconds = Number(process.env.LEASE_SECONDS ?? 60);
const batch = 20;
// Longest time until a finished job is acknowledged.
const ackMilliseconds = Number(process.env.ACK_SECONDS ?? 1) * 1000;
const held = new Map<string, Lease>(); // claimed and not finished
let done: Lease[] = []; // finished and not acknowledged
let stopping = false;

/** The job was cancelled, or another worker has it now: stop working on it. */
class LeaseLost extends Error {}

async function call<Answer>(verb: string, body: object = {}): Promise<Answer> {
  const signal = AbortSignal.timeout(60_000);
  const response = await fetch(url + verb, { method: "POST", headers, body: JSON.stringify(body), signal });
  const answer = (await response.json()) as Answer & { error?: string; detail?: string };
  if (response.status === 409) throw new LeaseLost(answer.detail);
  if (!response.ok) throw new Error(`${verb}: ${response.status} ${answer.error}: ${answer.detail}`);
  return answer;
}

/** Your work. An exception is recorded, and the job is retried later. */
async function run(job: Job, progress: Progress): Promise<void> {
  if (job.payload_json.fail) throw new TypeError("told to fail");
  await progress(50, "half way");
  console.log("done", job.job_kind, JSON.stringify(job.payload_json));
}

async function work(job: Job): Promise<void> {
  const lease: Lease = { job_id: job.job_id, attempt: job.attempt };
  try {
    await call("start", lease);
    const failed = await run(job, (percent, message) => call("progress", { ...lease, percent, message })).then(
      () => undefined,
      (error: unknown) => ({ error }),
    );
    if (!failed) {
      done.push(lease);
      return; // finished by the next acknowledge()
    }
    if (failed.error instanceof LeaseLost) throw failed.error;
    await call("fail", { ...lease, error: String(failed.error) });
  } catch (error) {
    if (!(error instanceof LeaseLost)) throw error;
    console.log("dropped:", error.message);
  }
  held.delete(job.job_id);
}

async function acknowledge(): Promise<void> {
  if (done.length === 0) return;
  const { lost } = await call<{ lost: string[] }>("ack_many", { jobs: done });
  for (const job of lost) console.log("dropped:", job);
  for (const lease of done) held.delete(lease.job_id);
  done = [];
}

async function workOnABatch(): Promise<void> {
  await acknowledge(); // what could not be acknowledged the last time
  await call("heartbeat");
  const claim = { limit: batch, wait_seconds: 5, lease_seconds: leaseSeconds };
  const { jobs } = await call<{ jobs: Job[] }>("claim", claim);
  for (const { job_id, attempt } of jobs) held.set(job_id, { job_id, attempt });
  let acknowledged = Date.now();
  while (jobs.length > 0 && !stopping) {
    await work(jobs.shift() as Job);
    if (Date.now() - acknowledged > ackMilliseconds) {
      await acknowledge();
      acknowledged = Date.now();
    }
  }
  await acknowledge();
  if (jobs.length > 0) await call("release", { jobs: jobs.map(({ job_id }) => held.get(job_id)) });
}

/**
 * Renews all leases, because a batch may take longer than one lease. A failed call is retried the next time; a
 * lost lease is reported to the code that works on the job.
 */
async function keep(): Promise<never> {
  for (;;) {
    await sleep((leaseSeconds * 1000) / 3, undefined, { ref: false });
    for (const lease of [...held.values()]) {
      const extended = call("extend", { ...lease, seconds: leaseSeconds });
      await extended.catch((error: unknown) => console.log("not extended:", String(error)));
    }
  }
}

function stop(): void {
  console.log("stopping");
  stopping = true;
}

for (const name of ["SIGINT", "SIGTERM"]) process.on(name, stop);
void keep();
console.log("working");
while (!stopping) {
  try {
    await workOnABatch();
  } catch (error) {
    // The server is down, or a gate is closed. Unfinished jobs are claimed again when their leases expire.
    console.log("waiting:", String(error));
    held.clear();
    for (const lease of done) held.set(lease.job_id, lease);
    await sleep(2000);
  }
}
