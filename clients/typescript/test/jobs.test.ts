// What a handler can say, and what the caller of a job sees: results, failures, snoozes, progress, the job's stream.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import pg from "pg";
import { z } from "zod";
import { Conflict, Invalid, LeaseLost, NotAuthorised, NotFound, PermanentError, RetryAfter, Snooze, Towpath } from "../src/index.js";
import type { JobState, Middleware, RunnableJob } from "../src/index.js";
import { followJob } from "../src/follow.js";
import { expectEnqueued, runUntilDrained } from "../src/testing.js";
import { Server, until } from "./kit.js";

let server: Server;
let tp: Towpath;
before(async () => {
  server = await Server.start();
  tp = server.client();
});
after(() => server?.stop());

const any = z.looseObject({});

/** Runs one worker while `meanwhile` lasts. */
async function working(jobs: RunnableJob[], meanwhile: () => Promise<void>, options: { middleware?: Middleware[]; leaseSeconds?: number } = {}): Promise<string[]> {
  const stop = new AbortController();
  const lines: string[] = [];
  const worker = tp.work(jobs, { signal: stop.signal, log: (line) => lines.push(line), ...options });
  await meanwhile().finally(() => stop.abort());
  await worker;
  return lines;
}

test("a result is kept, and waited for", async () => {
  const double = tp.job("double", z.object({ n: z.number() }));
  await working([double.run(({ n }) => ({ twice: 2 * n }))], async () => {
    const id = await double.enqueue({ n: 21 });
    const job = await tp.jobs.wait<{ twice: number }>(id, { timeoutSeconds: 60 });
    assert.deepEqual([job.kind, job.state, job.attempt, job.result?.twice], ["double", "succeeded", 1, 42]);
    assert.ok(job.finishedAt && job.finishedAt >= job.createdAt);
    assert.deepEqual((await tp.jobs.get(id)).result, { twice: 42 });
    const none = tp.job("double", z.object({ n: z.number() }));
    await assert.rejects(tp.jobs.cancel(await none.enqueue({ n: 1 }, { key: "kept" }).then(() => id)), Conflict);
  });
});

test("a wait that is over answers with the state of the moment", async () => {
  const id = await tp.job("never", any).enqueue({});
  const job = await tp.jobs.wait(id, { timeoutSeconds: 1 });
  assert.deepEqual([job.state, job.result, job.finishedAt], ["queued", undefined, undefined]);
  assert.equal(await tp.jobs.cancel(id, "not needed"), "cancelled");
  assert.equal((await tp.jobs.wait(id)).state, "cancelled");
  await assert.rejects(tp.jobs.get("00000000-0000-7000-8000-000000000000"), NotFound);
});

test("an error is retried, a permanent one is not, and a snooze does not count", async () => {
  const times = new Map<string, number>();
  const task = tp.job("outcomes", z.object({ what: z.string() }));
  const run = task.run(({ what }, job) => {
    const time = (times.get(what) ?? 0) + 1;
    times.set(what, time);
    if (what === "permanent") throw new PermanentError("no such customer");
    if (what === "retry" && time === 1) throw new RetryAfter(0, "busy", { cause: new TypeError("deeper") });
    if (what === "snooze" && time === 1) job.snooze(0);
    if (what === "thrown snooze" && time === 1) throw new Snooze(0);
    if (what === "fail") throw new RangeError("too far");
    return what;
  });
  const ids = Object.fromEntries(
    await Promise.all(
      ["permanent", "retry", "snooze", "thrown snooze", "fail"].map(async (what) => [what, await task.enqueue({ what }, { maxAttempts: 2 })] as const),
    ),
  );
  const lines = await working([run], async () => {
    for (const what of ["permanent", "retry", "snooze", "thrown snooze"]) await tp.jobs.wait(String(ids[what]), { timeoutSeconds: 60 });
    await until("the failed one waits", async () => (await tp.jobs.get(String(ids.fail))).state === "retry_waiting");
  });
  const told = async (what: string): Promise<Partial<JobState>> => tp.jobs.get(String(ids[what]));
  assert.deepEqual([(await told("permanent")).state, (await told("permanent")).error], ["dead_letter", "PermanentError: no such customer"]);
  assert.deepEqual([(await told("retry")).state, (await told("retry")).attempt, times.get("retry")], ["succeeded", 2, 2]);
  for (const what of ["snooze", "thrown snooze"]) {
    assert.deepEqual([(await told(what)).state, (await told(what)).attempt, times.get(what)], ["succeeded", 1, 2]);
  }
  const failed = await told("fail");
  assert.deepEqual([failed.state, failed.error], ["retry_waiting", "RangeError: too far"]);
  assert.ok(failed.scheduledAt && failed.scheduledAt > new Date(Date.now() + 2_000), "a retry waits");
  assert.ok(lines.some((line) => line.includes("RetryAfter: busy; caused by TypeError: deeper")), lines.join("\n"));
});

test("arguments that do not match, and results that cannot be kept, are dead letters that say why", async () => {
  const loose = tp.job("strict", any);
  const strict = tp.job("strict", z.object({ size: z.coerce.number() }));
  const sizes = ["big", 70_000, -1, -2, "3"];
  const [wrong, large, zero, deep, fine] = await loose.enqueueMany(sizes.map((size) => [{ size }] as const));
  const run = strict.run(({ size }) => {
    if (size === -1) return "\0";
    if (size === -2) return [...Array(100)].reduce<unknown[]>((inner) => [inner], []);
    return "x".repeat(size);
  });
  await working([run], async () => {
    for (const id of [wrong, large, zero, deep, fine]) await tp.jobs.wait(String(id), { timeoutSeconds: 60 });
  });
  const error = async (id: string | undefined) => (await tp.jobs.get(String(id))).error;
  assert.match(String(await error(wrong)), /arguments of strict do not match their schema: size: /);
  assert.match(String(await error(large)), /the result is larger than 64 KiB; store it/);
  assert.match(String(await error(zero)), /the result contains a zero character/);
  assert.match(String(await error(deep)), /the result was refused: .*64 levels/);
  for (const id of [wrong, large, zero, deep]) assert.equal((await tp.jobs.get(String(id))).state, "dead_letter");
  assert.deepEqual((await tp.jobs.get(String(fine))).result, "xxx", "a refused result does not harm the others of its batch");
});

test("middleware is called around every handler, the first one outermost", async () => {
  const order: string[] = [];
  const layer = (name: string): Middleware => async (job, next) => {
    order.push(`${name} before ${job.kind}`);
    const result = await next();
    order.push(`${name} after`);
    return [name, result];
  };
  const task = tp.job("layered", any);
  const id = await task.enqueue({});
  await runUntilDrained(tp, [task.run(() => order.push("handler") && "done")], { middleware: [layer("a"), layer("b")] });
  assert.deepEqual(order, ["a before layered", "b before layered", "handler", "b after", "a after"]);
  assert.deepEqual((await tp.jobs.get(id)).result, ["a", ["b", "done"]]);
});

test("a job that is cancelled while its handler runs is dropped, whatever the handler does then", async () => {
  const task = tp.job("dropped", z.object({ then: z.string() }));
  const thrown: unknown[] = [];
  const run = task.run(async ({ then }, job) => {
    if (then !== "nothing") await tp.jobs.cancel(job.id);
    if (then === "throw") throw new Error("too late");
    if (then === "snooze") job.snooze(1);
    if (then === "progress") {
      await job.progress(1).catch((error: unknown) => {
        thrown.push(error);
        throw error;
      });
    }
  });
  const ids = await task.enqueueMany([[{ then: "return" }], [{ then: "throw" }], [{ then: "snooze" }], [{ then: "progress" }], [{ then: "nothing" }]]);
  const lines = await working([run], async () => {
    for (const id of ids) await tp.jobs.wait(id, { timeoutSeconds: 60 });
  });
  const states = await Promise.all(ids.map(async (id) => (await tp.jobs.get(id)).state));
  assert.deepEqual(states, ["cancelled", "cancelled", "cancelled", "cancelled", "succeeded"]);
  assert.ok(thrown[0] instanceof LeaseLost);
  for (const id of ids.slice(0, 4)) assert.ok(lines.some((line) => line.startsWith(`lease lost: ${id}`)), lines.join("\n"));
});

test("progress and what a handler appends are seen live, and again by who comes late", async () => {
  const task = tp.job("followed", any);
  const id = await task.enqueue({});
  let go: () => void = () => {};
  const seen = new Promise<void>((resolve) => (go = resolve));
  const run = task.run(async (_, job) => {
    await job.progress(50, "half way");
    await job.append({ token: 1 });
    await job.append("two");
    await seen;
    await job.progress(90);
    return "done";
  });
  const follow = (token: string, on: (state: JobState) => void, chunks: (chunks: readonly unknown[]) => void = () => {}) =>
    followJob(id, { jobs: new Towpath({ url: server.url, token }).jobs, token, signal: AbortSignal.timeout(60_000), onState: on, onChunks: chunks });
  await working([run], async () => {
    const { token } = await tp.jobs.token(id);
    const states: JobState[] = [];
    let appended: readonly unknown[] = [];
    await follow(
      token,
      (state) => states.push(state),
      (chunks) => {
        appended = chunks;
        if (chunks.length === 2) go();
      },
    );
    assert.deepEqual(appended, [{ token: 1 }, "two"]);
    assert.ok(states.some(({ percent, message }) => percent === 50 && message === "half way"));
    assert.deepEqual([states.at(-1)?.state, states.at(-1)?.result], ["succeeded", "done"]);
    let late: readonly unknown[] = [];
    await follow(token, () => {}, (chunks) => (late = chunks));
    assert.deepEqual(late, appended);
  });
});

test("a token of one job reads and cancels that job, and no other", async () => {
  const task = tp.job("bound", any);
  const [id, other] = (await task.enqueueMany([[{}], [{}]])) as [string, string];
  const { token, expiresAt, stream } = await tp.jobs.token(id, { seconds: 60 });
  assert.ok(expiresAt > new Date() && stream.startsWith(server.url));
  const browser = new Towpath({ url: server.url, token });
  assert.equal((await browser.jobs.get(id)).state, "queued");
  await assert.rejects(browser.jobs.get(other), (error) => error instanceof NotAuthorised || error instanceof NotFound);
  await assert.rejects(browser.jobs.cancel(other), (error) => error instanceof NotAuthorised || error instanceof NotFound);
  await assert.rejects(browser.job("bound", any).enqueue({}), NotAuthorised);
  assert.equal(await browser.jobs.cancel(id), "cancelled");
});

test("events are emitted over HTTP, once for an id", async () => {
  // A uuid v7: it begins with the time.
  const eventId = Date.now().toString(16).padStart(12, "0").replace(/^(.{8})(.{4})$/, "$1-$2-7000-8000-00000000000e");
  assert.equal(await tp.emit("shop", "paid", { order: 7 }, { eventId, orderingKey: "7", subjectTable: "orders", subjectRef: "7" }), eventId);
  assert.equal(await tp.emit("shop", "paid", { order: 7 }, { eventId }), eventId);
  const rows = await server.sql("select payload, ordering_key, subject_ref from towpath.event_outbox where event_id = $1", [eventId]);
  assert.deepEqual(rows, [{ payload: { order: 7 }, ordering_key: "7", subject_ref: "7" }]);
  await assert.rejects(tp.emit("shop", "paid", { password: "x" }), Invalid);
});

test("testing: what is enqueued is seen inside of its transaction, and runs with what it enqueues", async () => {
  const parent = tp.job("parent", z.object({ name: z.string() }));
  const child = tp.job("child", z.object({ of: z.string() }));
  const client = new pg.Client(server.databaseUrl);
  await client.connect();
  await client.query("begin");
  await parent.enqueue(client, { name: "ann" }, { key: "family", priority: 7, executor: "external_worker" });
  const [seen] = await expectEnqueued(client, "parent");
  assert.deepEqual([seen?.args, seen?.key, seen?.priority], [{ name: "ann" }, "family", 7]);
  await client.query("rollback");
  await assert.rejects(expectEnqueued(client, "parent"), /no job of kind parent is enqueued/);
  await client.end();
  await parent.enqueue({ name: "bob" });
  const ran = await runUntilDrained(tp, [
    parent.run(async ({ name }) => void (await child.enqueue({ of: name }))),
    child.run(({ of }) => `child of ${of}`),
  ]);
  assert.deepEqual(ran.map(({ kind, outcome, result }) => [kind, outcome, result]), [
    ["parent", "succeeded", undefined],
    ["child", "succeeded", "child of bob"],
  ]);
});

test("a token that is refused ends the worker with the reason", async () => {
  const bad = new Towpath({ url: server.url, token: "tpx_none" });
  await assert.rejects(bad.work([bad.job("x", any).run(() => {})], { log: () => {} }), NotAuthorised);
});

test("a token of another executor than the one that is named is refused", async () => {
  await assert.rejects(tp.work([tp.job("x", any).run(() => {})], { executor: "another", log: () => {} }), (error) => {
    return error instanceof NotAuthorised && /not to another/.test(error.message);
  });
});
