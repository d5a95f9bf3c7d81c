// O07, Q21: a row, its job and its event commit together or not at all, on every driver.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { z } from "zod";
import { GateClosed, Invalid, emit, job as define } from "../src/index.js";
import { drivers } from "./drivers.js";
import type { Driver } from "./drivers.js";
import { Server } from "./kit.js";

let server: Server;
before(async () => {
  server = await Server.start();
  await server.sql("create schema shop create table orders (ref text primary key)");
  await server.sql("create schema books create table entries (ref text primary key)");
});
after(() => server?.stop());

// Without a client: enqueueing on a handle must need no server.
const ship = define("shop.ship", z.looseObject({ order: z.string() }));

/** How many rows, jobs and events there are of an order. */
async function found(ref: string): Promise<string> {
  const [row] = await server.sql(
    `select (select count(*) from shop.orders where ref = $1) || ' ' || (select count(*) from books.entries where ref = $1) || ' ' ||
            (select count(*) from towpath.job_queue where payload_json ->> 'order' = $1) || ' ' ||
            (select count(*) from towpath.event_outbox where payload ->> 'order' = $1) as found`,
    [ref],
  );
  return String(row?.found);
}

for (const make of drivers) {
  let driver: Driver;
  const { name } = make("postgresql://127.0.0.1:9/none");
  describe(name, () => {
    before(() => (driver = make(server.databaseUrl)));
    after(() => driver.close());
    const ref = (what: string) => `${name}: ${what}`;

    test("commit: the rows, the job and the event are there", async () => {
      const order = ref("commit");
      await driver.transaction(order, async (tx) => {
        assert.match(await ship.enqueue(tx, { order }), /^[0-9a-f-]{36}$/);
        assert.match(await emit(tx, "shop", "placed", { order }), /^[0-9a-f-]{36}$/);
        assert.equal(await found(order), "0 0 0 0", "nothing before the commit");
      });
      assert.equal(await found(order), "1 1 1 1");
    });

    test("rollback: nothing is there", async () => {
      const order = ref("rollback");
      const transaction = driver.transaction(order, async (tx) => {
        await ship.enqueue(tx, { order });
        await emit(tx, "shop", "placed", { order });
        throw new Error("the card was declined");
      });
      await assert.rejects(transaction, /the card was declined/);
      assert.equal(await found(order), "0 0 0 0");
    });

    test("a refusal throws by its word, with the driver's error as cause, and rolls everything back", async () => {
      const order = ref("refusal");
      const transaction = driver.transaction(order, async (tx) => {
        await ship.enqueue(tx, { order });
        await ship.enqueue(tx, { order, password: "1234" });
      });
      await assert.rejects(transaction, (error) => {
        assert.ok(error instanceof Invalid, String(error));
        assert.equal(error.word, "invalid");
        assert.match(error.detail, /^enqueue shop.ship was refused: .*"password" is not allowed/);
        assert.match(String(error.hint), /payload_ref/);
        assert.ok(error.cause instanceof Error);
        return true;
      });
      assert.equal(await found(order), "0 0 0 0");
    });

    test("a closed gate refuses, and rolls everything back", async () => {
      const order = ref("gate");
      await server.cli("gate", "close", "queue.job_substrate.enabled", "--why", "a test");
      try {
        await assert.rejects(driver.transaction(order, async (tx) => void (await ship.enqueue(tx, { order }))), GateClosed);
      } finally {
        await server.cli("gate", "open", "queue.job_substrate.enabled", "--why", "a test");
      }
      assert.equal(await found(order), "0 0 0 0");
    });

    test("a key that is taken returns the job that has it", async () => {
      const [order, key] = [ref("key"), ref("the key")];
      let first = "";
      await driver.transaction(order, async (tx) => {
        first = await ship.enqueue(tx, { order }, { key });
        assert.equal(await ship.enqueue(tx, { order }, { key }), first);
      });
      assert.equal(await ship.enqueue(driver.plain, { order }, { key }), first);
      assert.equal(await found(order), "1 1 1 0");
    });

    test("arguments and options arrive as they were given", async () => {
      const args = { order: ref("options"), text: `'"\\ ? $1 :name {} é 🚢`, deep: [{ none: null, yes: true }], number: 1.5 };
      const runAt = new Date("2030-01-02T03:04:05.678Z");
      const options = { runAt, priority: 7, maxAttempts: 3, executor: "external_worker", domain: "shop", sourceRef: "s", targetRef: "t" };
      const id = await ship.enqueue(driver.plain, args, { ...options, actor: "ann", runId: "0190aaaa-0000-7000-8000-000000000001" });
      const [job] = await server.sql("select * from towpath.job_queue where job_id = $1", [id]);
      assert.deepEqual(job?.payload_json, args);
      assert.deepEqual([job?.scheduled_at, job?.priority, job?.max_attempts, job?.executor, job?.event_domain], [runAt, 7, 3, "external_worker", "shop"]);
      assert.deepEqual([job?.source_ref, job?.target_ref, job?.actor, job?.run_id], ["s", "t", "ann", "0190aaaa-0000-7000-8000-000000000001"]);
    });

    test("many jobs are enqueued in order, all or none", async () => {
      const order = ref("many");
      const jobs = [...Array(50).keys()].map((no) => [{ order, no }, { priority: 100 + no }] as const);
      await driver.transaction(order, async (tx) => {
        const ids = await ship.enqueueMany(tx, jobs);
        assert.equal(new Set(ids).size, 50);
        const rows = await ship.enqueueMany(tx, []);
        assert.deepEqual(rows, []);
      });
      const rows = await server.sql("select payload_json ->> 'no' as no, priority from towpath.job_queue where payload_json ->> 'order' = $1", [order]);
      assert.deepEqual(new Set(rows.map(({ no, priority }) => `${String(no)} ${String(priority)}`)), new Set(jobs.map(([{ no }, { priority }]) => `${no} ${priority}`)));
      const refused = ref("many refused");
      const transaction = driver.transaction(refused, async (tx) => {
        await ship.enqueueMany(tx, [[{ order: refused }], [{ order: refused, token: "x" }]]);
      });
      await assert.rejects(transaction, (error) => error instanceof Invalid && /jobs\[1\]/.test(error.message));
      assert.equal(await found(refused), "0 0 0 0");
    });

    test("a value that PostgreSQL cannot read is invalid", async () => {
      const order = ref("bad value");
      await assert.rejects(ship.enqueue(driver.plain, { order }, { runId: "seven" }), Invalid);
    });
  });
}
