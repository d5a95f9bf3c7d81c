// The battery: a worker against the real binary, both of which are killed, stopped and restarted. Nothing is lost,
// and nothing ends twice (Q06, Q08).
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { after, before, test } from "node:test";
import type pg from "pg";
import { z } from "zod";
import { Client, job as define, work } from "../src/index.js";
import type { WorkOptions } from "../src/index.js";
import { Server, until } from "./kit.js";

let server: Server;
let tp: Client;
before(async () => {
  server = await Server.start();
  // Jobs of a dead worker are soon tried again.
  await server.cli("config", "set", "queue.retry.backoff_base_sec", "1", "--why", "a test");
  tp = server.client();
});
after(() => server?.stop());

const workers: WorkerProcess[] = [];
after(() => workers.forEach((worker) => worker.process.kill("SIGKILL")));

class WorkerProcess {
  readonly process: ChildProcess;
  readonly lines: string[] = [];
  readonly gone: Promise<unknown>;

  constructor(kind: string, options: WorkOptions = {}) {
    const env = { ...process.env, TOWPATH_URL: server.url, TOWPATH_TOKEN: server.token, TEST_KIND: kind, TEST_OPTIONS: JSON.stringify(options) };
    this.process = fork(new URL("./worker-process.js", import.meta.url), { env });
    this.process.on("message", (line: string) => this.lines.push(line));
    this.gone = new Promise((resolve) => this.process.once("exit", (code, signal) => resolve(signal ?? code)));
    workers.push(this);
  }

  /** Waits for lines that begin like this. */
  async says(start: string, times = 1): Promise<void> {
    const count = () => this.lines.filter((line) => line.startsWith(start)).length;
    await until(`${start} ${times} times`, () => {
      assert.ok(this.process.connected || count() >= times, `the worker ended: ${this.lines.join("\n")}`);
      return count() >= times;
    });
  }
}

const enqueue = (kind: string, count: number, args: Record<string, unknown> = {}) =>
  define(kind, z.looseObject({})).enqueueMany(tp, [...Array(count)].map(() => [args] as const));

/** The end of one attempt, as the database has it. */
interface End {
  job: string;
  attempt: number;
  outcome: string;
}

/** Waits until all jobs of a kind have succeeded, and checks that none was lost and none ended twice. */
async function allSucceeded(kind: string, count: number): Promise<void> {
  await until(`${count} jobs have succeeded`, async () => (await server.states(kind)).succeeded === count);
  const jobs = await server.sql<{ job: string }>("select job_id as job from towpath.job_queue where job_kind = $1", [kind]);
  assert.equal(jobs.length, count);
  const ends = await server.sql<End & pg.QueryResultRow>(
    "select job_id as job, attempt, outcome from towpath._job_run_each where job_id in (select job_id from towpath.job_queue where job_kind = $1)",
    [kind],
  );
  assert.deepEqual(faults(jobs.map(({ job }) => job), ends), []);
}

/** What is wrong with a history: jobs that were lost, and attempts and jobs that ended twice. */
function faults(jobs: readonly string[], ends: readonly End[]): string[] {
  const found: string[] = [];
  const attempts = new Set<string>();
  const succeeded = new Map<string, number>(jobs.map((job) => [job, 0]));
  for (const { job, attempt, outcome } of ends) {
    const name = `attempt ${attempt} of ${job}`;
    if (attempts.has(name)) found.push(`${name} ended twice`);
    attempts.add(name);
    if (outcome === "succeeded") succeeded.set(job, (succeeded.get(job) ?? 0) + 1);
  }
  for (const [job, times] of succeeded) if (times !== 1) found.push(`${job} succeeded ${times} times`);
  return found;
}

test("the checker finds what must not happen", () => {
  const good = { job: "a", attempt: 1, outcome: "succeeded" };
  const failed = { job: "b", attempt: 1, outcome: "failed" };
  const later = { job: "b", attempt: 2, outcome: "succeeded" };
  assert.deepEqual(faults(["a", "b"], [good, failed, later]), []);
  assert.deepEqual(faults(["a", "b"], [good, failed]), ["b succeeded 0 times"]);
  assert.deepEqual(faults(["a", "b"], [good, later, { ...good, attempt: 2 }]), ["a succeeded 2 times"]);
  assert.deepEqual(faults(["a", "b"], [good, failed, failed, later]), ["attempt 1 of b ended twice"]);
});

test("it registers its kinds and works through good and bad jobs", async () => {
  const worker = new WorkerProcess("first");
  await enqueue("first", 20);
  await allSucceeded("first", 20);
  worker.process.kill("SIGTERM");
  assert.equal(await worker.gone, 0, worker.lines.join("\n"));
});

test("SIGKILL: the jobs of a killed worker run again elsewhere, and none is lost", async () => {
  await enqueue("killed", 200, { hold: true });
  const victim = new WorkerProcess("killed", { leaseSeconds: 2, concurrency: 16 });
  await victim.says("began", 16);
  victim.process.kill("SIGKILL");
  await victim.gone;
  const other = new WorkerProcess("killed", { leaseSeconds: 2, concurrency: 16 });
  other.process.send("go");
  await allSucceeded("killed", 200);
  other.process.kill("SIGTERM");
  assert.equal(await other.gone, 0);
});

test("SIGTERM: it claims no more, finishes what is running, and ends with 0", async () => {
  await enqueue("drained", 6, { hold: true });
  const worker = new WorkerProcess("drained", { concurrency: 4 });
  await worker.says("began", 4);
  worker.process.kill("SIGTERM");
  await worker.says("stopping");
  worker.process.send("go");
  assert.equal(await worker.gone, 0, worker.lines.join("\n"));
  assert.equal(worker.lines.filter((line) => line.startsWith("ended")).length, 4);
  assert.deepEqual(await server.states("drained"), { succeeded: 4, queued: 2 });
});

test("after the drain it aborts what still runs, and a second signal ends it at once", async () => {
  await enqueue("stuck", 1, { hold: true });
  const slow = new WorkerProcess("stuck", { drainSeconds: 0.2, leaseSeconds: 2 });
  await slow.says("began");
  slow.process.kill("SIGTERM");
  await slow.says("aborted");
  assert.equal(await slow.gone, 0, slow.lines.join("\n"));
  const impatient = new WorkerProcess("stuck", { leaseSeconds: 2 });
  await impatient.says("began");
  impatient.process.kill("SIGTERM");
  impatient.process.kill("SIGINT");
  assert.ok([130, 143].includes(Number(await impatient.gone)));
});

test("a lost lease: the handler of a cancelled job is aborted, and the worker goes on", async () => {
  const worker = new WorkerProcess("cancelled", { leaseSeconds: 2 });
  const [id] = await enqueue("cancelled", 1, { hold: true });
  await worker.says(`began ${id}`);
  await tp.cancel(String(id), "a test");
  await worker.says(`aborted ${id} LeaseLost`);
  const [next] = await enqueue("cancelled", 1);
  await worker.says(`ended ${next}`);
  await until("the next one has succeeded", async () => (await server.states("cancelled")).succeeded === 1);
  assert.deepEqual(await server.states("cancelled"), { cancelled: 1, succeeded: 1 });
  worker.process.kill("SIGTERM");
  await worker.gone;
});

test("a lost lease: a worker that stood still cannot end a job that another one has", async () => {
  // With one place it has no claim open that the job could go to again.
  const stalled = new WorkerProcess("stalled", { leaseSeconds: 3, concurrency: 1 });
  const [id] = await enqueue("stalled", 1, { hold: true });
  await stalled.says(`began ${id} 1`);
  stalled.process.kill("SIGSTOP");
  const other = new WorkerProcess("stalled", { leaseSeconds: 60 });
  await other.says(`began ${id} 2`);
  stalled.process.kill("SIGCONT");
  await stalled.says(`aborted ${id} LeaseLost`);
  other.process.send("go");
  await allSucceeded("stalled", 1);
  const [job] = await server.sql("select attempts from towpath.job_queue where job_id = $1", [id]);
  assert.equal(job?.attempts, 2);
  for (const worker of [stalled, other]) worker.process.kill("SIGTERM");
});

test("a restart of the server: results are kept, and recorded when it is back", async () => {
  const worker = new WorkerProcess("restarted", { leaseSeconds: 60 });
  await enqueue("restarted", 20, { hold: true });
  await worker.says("began", 20);
  await server.down("SIGKILL");
  worker.process.send("go");
  await worker.says("ended", 20);
  await server.up();
  await allSucceeded("restarted", 20);
  assert.equal(worker.lines.filter((line) => line.startsWith("began")).length, 20, "none ran twice");
  await enqueue("restarted", 5);
  await allSucceeded("restarted", 25);
  worker.process.kill("SIGTERM");
  assert.equal(await worker.gone, 0);
});

test("a closed gate: it waits, and goes on when the gate opens", async () => {
  const worker = new WorkerProcess("gated");
  await enqueue("gated", 1);
  await worker.says("ended", 1);
  await enqueue("gated", 5, { hold: true });
  await worker.says("began", 6);
  await server.cli("gate", "close", "queue.worker.enabled", "--why", "a test");
  worker.process.send("go");
  await worker.says("log waiting: the gate queue.worker.enabled is closed");
  const ids = await enqueue("gated", 10);
  await server.cli("gate", "open", "queue.worker.enabled", "--why", "a test");
  await worker.says("ended", 6 + ids.length);
  await allSucceeded("gated", 16);
  worker.process.kill("SIGTERM");
  assert.equal(await worker.gone, 0);
});

test("10,000 jobs: every one ends once", async () => {
  const count = 10_000;
  await enqueueOnHandle("many", count);
  const stop = new AbortController();
  const task = define("many", z.object({}));
  const seen = new Map<string, number>();
  let ran = 0;
  const run = task.run((_, ctx) => {
    seen.set(ctx.id, (seen.get(ctx.id) ?? 0) + 1);
    if (++ran === count) stop.abort();
  });
  await work([run], { ...server.access, concurrency: 100, signal: stop.signal });
  await allSucceeded("many", count);
  assert.deepEqual([seen.size, Math.max(...seen.values())], [count, 1]);
});

async function enqueueOnHandle(kind: string, count: number): Promise<void> {
  await server.sql("select towpath.enqueue_many((select jsonb_agg(jsonb_build_object('kind', $1::text, 'executor', 'external_worker')) from generate_series(1, $2)))", [kind, count]);
}
