// What a handler can say, and what the caller of a job sees: results, failures, snoozes, progress, the job's stream.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import pg from "pg";
import { z } from "zod";
import { Client, Conflict, Invalid, LeaseLost, NotAuthorised, NotFound, PermanentError, RetryAfter, Snooze, job as define, work } from "../src/index.js";
import type { JobMessage, JobStatus, Middleware, RunnableJob } from "../src/index.js";
import { followJob } from "../src/follow.js";
import { expectEnqueued, runUntilDrained } from "../src/testing.js";
import { Server, until } from "./kit.js";

let server: Server;
let tp: Client;
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
  const worker = work(jobs, { ...server.access, signal: stop.signal, log: (line) => lines.push(line), ...options });
  await meanwhile().finally(() => stop.abort());
  await worker;
  return lines;
}

test("a result is kept, and waited for", async () => {
  const double = define("double", z.object({ n: z.number() }));
  await working([double.run(({ n }) => ({ twice: 2 * n }))], async () => {
    const id = await double.enqueue(tp, { n: 21 });
    const job = await tp.wait<{ twice: number }>(id, { timeoutSeconds: 60 });
    assert.deepEqual([job.kind, job.state, job.attempt, job.result?.twice], ["double", "succeeded", 1, 42]);
    assert.ok(job.finishedAt && job.finishedAt >= job.createdAt);
    assert.deepEqual((await tp.job(id)).result, { twice: 42 });
    const none = define("double", z.object({ n: z.number() }));
    await assert.rejects(tp.cancel(await none.enqueue(tp, { n: 1 }, { key: "kept" }).then(() => id)), Conflict);
  });
});

test("a wait that is over answers with the state of the moment", async () => {
  const id = await define("never", any).enqueue(tp, {});
  const job = await tp.wait(id, { timeoutSeconds: 1 });
  assert.deepEqual([job.state, job.result, job.finishedAt], ["queued", undefined, undefined]);
  assert.equal(await tp.cancel(id, "not needed"), "cancelled");
  assert.equal((await tp.wait(id)).state, "cancelled");
  await assert.rejects(tp.job("00000000-0000-7000-8000-000000000000"), NotFound);
});

test("an error is retried, a permanent one is not, and a snooze does not count", async () => {
  const times = new Map<string, number>();
  const task = define("outcomes", z.object({ what: z.string() }));
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
      ["permanent", "retry", "snooze", "thrown snooze", "fail"].map(async (what) => [what, await task.enqueue(tp, { what }, { maxAttempts: 2 })] as const),
    ),
  );
  const lines = await working([run], async () => {
    for (const what of ["permanent", "retry", "snooze", "thrown snooze"]) await tp.wait(String(ids[what]), { timeoutSeconds: 60 });
    await until("the failed one waits", async () => (await tp.job(String(ids.fail))).state === "retry_waiting");
  });
  const told = async (what: string): Promise<Partial<JobStatus>> => tp.job(String(ids[what]));
  assert.deepEqual([(await told("permanent")).state, (await told("permanent")).error], ["dead_letter", "PermanentError: no such customer"]);
  assert.deepEqual([(await told("retry")).state, (await told("retry")).attempt, times.get("retry")], ["succeeded", 2, 2]);
  for (const what of ["snooze", "thrown snooze"]) {
    assert.deepEqual([(await told(what)).state, (await told(what)).attempt, times.get(what)], ["succeeded", 1, 2]);
  }
  const failed = await told("fail");
  assert.deepEqual([failed.state, failed.error], ["retry_waiting", "RangeError: too far"]);
  assert.ok(failed.scheduledAt && failed.createdAt && +failed.scheduledAt > +failed.createdAt + 2_000, "a retry waits");
  assert.ok(lines.some((line) => line.includes("RetryAfter: busy; caused by TypeError: deeper")), lines.join("\n"));
});

test("arguments that do not match, and results that cannot be kept, are dead letters that say why", async () => {
  const loose = define("strict", any);
  const strict = define("strict", z.object({ size: z.coerce.number() }));
  const sizes = ["big", 3 << 20, -1, -2, "3", 70_000];
  const [wrong, large, zero, deep, fine, referred] = await loose.enqueueMany(tp, sizes.map((size) => [{ size }] as const));
  const run = strict.run(({ size }) => {
    if (size === -1) return "\0";
    if (size === -2) return [...Array(100)].reduce<unknown[]>((inner) => [inner], []);
    return "x".repeat(size);
  });
  await working([run], async () => {
    for (const id of [wrong, large, zero, deep, fine, referred]) await tp.wait(String(id), { timeoutSeconds: 60 });
  });
  const error = async (id: string | undefined) => (await tp.job(String(id))).error;
  assert.match(String(await error(wrong)), /arguments of strict do not match their schema: size: /);
  assert.match(String(await error(large)), /the result is larger than 2 MiB; store it/);
  assert.match(String(await error(zero)), /the result contains a zero character/);
  assert.match(String(await error(deep)), /the result was refused: .*64 levels/);
  for (const id of [wrong, large, zero, deep]) assert.equal((await tp.job(String(id))).state, "dead_letter");
  assert.deepEqual((await tp.job(String(fine))).result, "xxx", "a refused result does not harm the others of its batch");
  assert.deepEqual(Object.keys((await tp.job(String(referred))).result as object), ["payload_ref"]);
  assert.equal(await tp.result(String(referred)), "x".repeat(70_000));
  assert.equal(await tp.result(String(fine)), "xxx");
  await assert.rejects(tp.result(String(wrong)), NotFound);
});

test("middleware is called around every handler, the first one outermost", async () => {
  const order: string[] = [];
  const layer = (name: string): Middleware => async (job, next) => {
    order.push(`${name} before ${job.kind}`);
    const result = await next();
    order.push(`${name} after`);
    return [name, result];
  };
  const task = define("layered", any);
  const id = await task.enqueue(tp, {});
  await runUntilDrained([task.run(() => order.push("handler") && "done")], { ...server.access, middleware: [layer("a"), layer("b")] });
  assert.deepEqual(order, ["a before layered", "b before layered", "handler", "b after", "a after"]);
  assert.deepEqual((await tp.job(id)).result, ["a", ["b", "done"]]);
});

test("a job that is cancelled while its handler runs is dropped, whatever the handler does then", async () => {
  const task = define("dropped", z.object({ then: z.string() }));
  const thrown: unknown[] = [];
  const run = task.run(async ({ then }, job) => {
    if (then !== "nothing") await tp.cancel(job.id);
    if (then === "throw") throw new Error("too late");
    if (then === "snooze") job.snooze(1);
    if (then === "progress") {
      await job.progress(1).catch((error: unknown) => {
        thrown.push(error);
        throw error;
      });
    }
  });
  const ids = await task.enqueueMany(tp, [[{ then: "return" }], [{ then: "throw" }], [{ then: "snooze" }], [{ then: "progress" }], [{ then: "nothing" }]]);
  const lines = await working([run], async () => {
    for (const id of ids) await tp.wait(id, { timeoutSeconds: 60 });
  });
  const states = await Promise.all(ids.map(async (id) => (await tp.job(id)).state));
  assert.deepEqual(states, ["cancelled", "cancelled", "cancelled", "cancelled", "succeeded"]);
  assert.ok(thrown[0] instanceof LeaseLost);
  for (const id of ids.slice(0, 4)) assert.ok(lines.some((line) => line.startsWith(`lease lost: ${id}`)), lines.join("\n"));
});

test("progress and what a handler appends are seen live, and again by who comes late", async () => {
  const task = define("followed", any);
  const id = await task.enqueue(tp, {});
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
  const follow = (token: string, on: (state: JobStatus) => void, chunks: (chunks: readonly unknown[]) => void = () => {}) =>
    followJob(id, { client: new Client({ url: server.url, token }), token, signal: AbortSignal.timeout(60_000), onStatus: on, onChunks: chunks });
  await working([run], async () => {
    const { token } = await tp.jobToken(id);
    const states: JobStatus[] = [];
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
    const messages: JobMessage[] = [];
    for await (const message of tp.follow(id)) messages.push(message);
    assert.deepEqual(messages.filter(({ type }) => type === "chunk").map(({ value }) => value), appended);
    assert.deepEqual(messages.at(-1)?.type === "job" && messages.at(-1)?.value, { ...(messages.at(-1)?.value as object), state: "succeeded", result: "done" });
    let late: readonly unknown[] = [];
    await follow(token, () => {}, (chunks) => (late = chunks));
    assert.deepEqual(late, appended);
  });
});

test("a token of one job reads and cancels that job, and no other", async () => {
  const task = define("bound", any);
  const [id, other] = (await task.enqueueMany(tp, [[{}], [{}]])) as [string, string];
  const { token, expiresAt, stream } = await tp.jobToken(id, { seconds: 60 });
  assert.ok(expiresAt > new Date() && stream === `/v1/jobs/stream/job/${id}`);
  const browser = new Client({ url: server.url, token });
  assert.equal((await browser.job(id)).state, "queued");
  await assert.rejects(browser.job(other), (error) => error instanceof NotAuthorised || error instanceof NotFound);
  await assert.rejects(browser.cancel(other), (error) => error instanceof NotAuthorised || error instanceof NotFound);
  await assert.rejects(define("bound", any).enqueue(browser, {}), NotAuthorised);
  assert.equal(await browser.cancel(id), "cancelled");
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
  const parent = define("parent", z.object({ name: z.string() }));
  const child = define("child", z.object({ of: z.string() }));
  const client = new pg.Client(server.databaseUrl);
  await client.connect();
  await client.query("begin");
  await parent.enqueue(client, { name: "ann" }, { key: "family", priority: 7, executor: "external_worker" });
  const [seen] = await expectEnqueued(client, "parent");
  assert.deepEqual([seen?.args, seen?.key, seen?.priority], [{ name: "ann" }, "family", 7]);
  assert.equal((await expectEnqueued(client, parent, { name: "ann" })).length, 1);
  await assert.rejects(expectEnqueued(client, parent, { name: "eve" }), /no job of kind parent is enqueued with {"name":"eve"}; there are \[{"name":"ann"}\]/);
  await client.query("rollback");
  await assert.rejects(expectEnqueued(client, "parent"), /no job of kind parent is enqueued/);
  await client.end();
  await parent.enqueue(tp, { name: "bob" });
  const ran = await runUntilDrained([
    parent.run(async ({ name }) => void (await child.enqueue(tp, { of: name }))),
    child.run(({ of }) => `child of ${of}`),
  ], server.access);
  assert.deepEqual(ran.map(({ kind, outcome, result }) => [kind, outcome, result]), [
    ["parent", "succeeded", undefined],
    ["child", "succeeded", "child of bob"],
  ]);
});

test("testing: every way to end has its word", async () => {
  const task = define("ways", z.object({ what: z.string() }));
  const run = task.run(({ what }, ctx) => {
    if (what === "permanent") throw new PermanentError("no");
    if (what === "failed") throw new Error("no");
    if (what === "snoozed") ctx.snooze(60);
  });
  const ways = ["succeeded", "failed", "permanent", "snoozed"];
  // For a kind that is defined elsewhere its name is enough.
  for (const what of ways) await tp.enqueue("ways", { what });
  const ran = await runUntilDrained([run], server.access);
  assert.deepEqual(new Set(ran.map(({ args, outcome }) => `${(args as { what: string }).what} ${outcome}`)), new Set(ways.map((what) => `${what} ${what}`)));
});

test("a token that is refused ends the worker with the reason", async () => {
  const bad = { url: server.url, token: "tpx_none" };
  await assert.rejects(work([define("x", any).run(() => {})], { ...bad, log: () => {} }), NotAuthorised);
});

test("a token of another executor than the one that is named is refused", async () => {
  await assert.rejects(work([define("x", any).run(() => {})], { ...server.access, executor: "another", log: () => {} }), (error) => {
    return error instanceof NotAuthorised && /not to another/.test(error.message);
  });
});
