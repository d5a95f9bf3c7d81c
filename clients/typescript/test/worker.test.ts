// The battery: a worker against the real binary, both of which are killed, stopped and restarted. Nothing is lost,
// and nothing ends twice (Q06, Q08).
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { after, before, test } from "node:test";
import { z } from "zod";
import { Towpath } from "../src/index.js";
import type { WorkOptions } from "../src/index.js";
import { Server, until } from "./kit.js";

let server: Server;
let tp: Towpath;
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
  tp.job(kind, z.looseObject({})).enqueueMany([...Array(count)].map(() => [args] as const));

/** Waits until all jobs of a kind have succeeded, and checks that none did twice. */
async function allSucceeded(kind: string, count: number): Promise<void> {
  await until(`${count} jobs have succeeded`, async () => (await server.states(kind)).succeeded === count);
  assert.deepEqual(await server.states(kind), { succeeded: count });
  const [twice] = await server.sql(
    `select count(*)::integer as count from (
       select r.job_id from towpath._job_run_each r join towpath.job_queue q using (job_id)
        where q.job_kind = $1 and r.outcome = 'succeeded' group by r.job_id having count(*) > 1) x`,
    [kind],
  );
  assert.equal(twice?.count, 0, "no job ended twice");
}

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
  await tp.jobs.cancel(String(id), "a test");
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
  const stalled = new WorkerProcess("stalled", { leaseSeconds: 1, concurrency: 1 });
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

test("10,000 jobs: every one ends once, about as fast as calls that are batched by hand", async () => {
  const count = 10_000;
  const byHand = await handBatched(count);
  await enqueueOnHandle("many", count);
  const stop = new AbortController();
  const task = tp.job("many", z.object({}));
  const seen = new Map<string, number>();
  let ran = 0;
  let ended = 0;
  const began = Date.now();
  const run = task.run((_, job) => {
    seen.set(job.id, (seen.get(job.id) ?? 0) + 1);
    if (++ran < count) return;
    ended = Date.now();
    stop.abort();
  });
  await tp.work([run], { concurrency: 100, signal: stop.signal });
  const rate = count / ((ended - began) / 1000);
  await allSucceeded("many", count);
  assert.deepEqual([seen.size, Math.max(...seen.values())], [count, 1]);
  console.log(`by hand ${byHand.toFixed(0)} jobs/s; work() ${rate.toFixed(0)} jobs/s; ${((100 * rate) / byHand).toFixed(0)} %`);
  assert.ok(rate > byHand * 0.5, "much slower than by hand");
});

async function enqueueOnHandle(kind: string, count: number): Promise<void> {
  await server.sql("select towpath.enqueue_many((select jsonb_agg(jsonb_build_object('kind', $1::text, 'executor', 'external_worker')) from generate_series(1, $2)))", [kind, count]);
}

/** Claims of 100 and one ack for all of them, in turn: what one writes without the package. */
async function handBatched(count: number): Promise<number> {
  const call = async (path: string, body: object): Promise<any> => {
    const headers = { authorization: `Bearer ${server.token}`, "content-type": "application/json", "towpath-worker": "by-hand" };
    const response = await fetch(`${server.url}/api/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    assert.ok(response.ok, await response.clone().text());
    return response.json();
  };
  await call("executors/register", { kinds: ["by_hand"] });
  await enqueueOnHandle("by_hand", count);
  const began = Date.now();
  for (let done = 0; done < count; ) {
    const { jobs } = await call("jobs/claim", { kinds: ["by_hand"], limit: 100, wait_seconds: 5, lease_seconds: 60 });
    const leases = jobs.map(({ job_id, attempt, entry_id }: Record<string, unknown>) => ({ job_id, attempt, entry_id }));
    if (leases.length > 0) done += (await call("jobs/ack_many", { jobs: leases })).acked;
  }
  return count / ((Date.now() - began) / 1000);
}
