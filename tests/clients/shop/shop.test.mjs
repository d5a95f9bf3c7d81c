// The example application in each language, in a real browser: an order is placed, its progress is seen live, survives a
// reload, and is stopped from a second tab; its webhook is verified. And the worker in Go.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { Server, freePort, until } from "./server.mjs";

const examples = new URL("../../../examples/", import.meta.url);
const python = fileURLToPath(new URL("python", examples));
const { EXAMPLE_TYPESCRIPT, EXAMPLE_PYTHON, EXAMPLE_RUST, EXAMPLE_GO } = process.env;

/** How the two programs of each example are started, and what they print when they are ready. */
const shops = {
  typescript: {
    pages: ["/", "/react"],
    shop: ["node", ["build/shop.js"], EXAMPLE_TYPESCRIPT],
    worker: ["node", ["build/worker.js"], EXAMPLE_TYPESCRIPT],
    ready: "working on",
  },
  python: {
    pages: ["/"],
    shop: [EXAMPLE_PYTHON, ["-m", "shop.web"], python],
    worker: [EXAMPLE_PYTHON, ["-m", "towpath", "work", "shop.jobs"], python],
    ready: "working on",
  },
  rust: {
    pages: ["/"],
    shop: [`${EXAMPLE_RUST}/shop`, []],
    worker: [`${EXAMPLE_RUST}/worker`, []],
    ready: "worker started",
  },
};

let browser;
before(async () => {
  browser = await chromium.launch({ executablePath: process.env.TOWPATH_TEST_BROWSER, args: ["--no-sandbox"] });
});
after(() => browser?.close());

// Two at a time: each has a server and a PostgreSQL.
describe("examples", { concurrency: 2 }, () => {
  for (const [language, example] of Object.entries(shops)) {
    describe(language, { concurrency: 1 }, () => {
      const problems = [];
      let server, url;

      before(async () => {
        server = await Server.start();
        await server.sql(await readFile(new URL("schema.sql", examples), "utf8"));
        const port = await freePort();
        url = `http://127.0.0.1:${port}`;
        const added = await server.cli("--json", "routes", "add", "shop", "--to-webhook", `${url}/webhook`, "--domain", "shop");
        const key = /whsec_[A-Za-z0-9+/=]+/.exec(added)?.[0];
        assert.ok(key, added);
        await server.cli("routes", "enable", "shop", "--why", "a test");
        const env = { TOWPATH_URL: server.url, TOWPATH_TOKEN: server.token, DATABASE_URL: server.databaseUrl, PORT: String(port), WEBHOOK_KEY: key };
        const start = ([program, words, cwd], ready) => server.run(program, words, ready, { cwd, env });
        await Promise.all([start(example.shop, "open http"), start(example.worker, example.ready)]);
      });
      after(() => server?.stop());

      /** A tab of its own context, as another person's browser would be; what must never happen in it is kept. */
      async function open(address) {
        const page = await (await browser.newContext()).newPage();
        page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(`${page.url()}: ${message.text()}`));
        page.on("pageerror", (error) => problems.push(`${page.url()}: ${error}`));
        page.on("request", (request) => [url, server.url].some((known) => request.url().startsWith(known)) || problems.push(`${page.url()} asks ${request.url()}`));
        await page.goto(address);
        return page;
      }

      async function order(page, parcels) {
        await page.fill("#parcels", String(parcels));
        await page.click("#place");
        await page.waitForURL(/#\d+$/);
        return (await fetch(`${url}/orders/${page.url().split("#")[1]}`)).json();
      }

      const packed = async (page) => Number((await page.locator("#message").textContent())?.match(/^packed (\d+) of/)?.[1] ?? 0);
      const state = (page, wanted) => page.locator("#state", { hasText: wanted }).waitFor({ timeout: 60_000 });

      for (const path of example.pages) {
        test(`${path}: an order is placed, its job runs, its result is shown, and its webhook is verified`, async () => {
          const page = await open(url + path);
          const placed = await order(page, 3);
          await state(page, "succeeded");
          assert.equal(await page.locator("#result").textContent(), "shipped 3 parcels");
          await until("the webhook has arrived", async () => (await (await fetch(`${url}/orders/${placed.order}`)).json()).announced);
          assert.deepEqual((await server.job(placed.job)).result, { order: placed.order, parcels: 3 });
        });

        test(`${path}: progress is seen live, survives a reload, and the job is stopped from a second tab`, async () => {
          const page = await open(url + path);
          const placed = await order(page, 10_000);
          await until("progress is seen live", async () => (await packed(page)) >= 3);
          const before = await packed(page);
          await page.reload();
          await until("it is there again, and goes on", async () => (await packed(page)) > before);
          const second = await open(page.url());
          await until("the second tab sees it too", async () => (await packed(second)) > before);
          await second.click("#stop");
          await Promise.all([state(page, "cancelled"), state(second, "cancelled")]);
          assert.equal((await server.job(placed.job)).state, "cancelled");
        });
      }

      test("a webhook with a forged signature, or none, is refused and changes nothing", async () => {
        const placed = await server.sql("insert into shop.orders (parcels) values (1) returning order_id").then((printed) => Number(printed.split("\n")[0]));
        const body = JSON.stringify({ type: "shop.order.placed", data: { payload: { order: placed } } });
        const time = { "webhook-id": "x", "webhook-timestamp": String(Math.floor(Date.now() / 1000)) };
        for (const headers of [{}, time, { ...time, "webhook-signature": "v1,AAAA" }]) {
          assert.equal((await fetch(`${url}/webhook`, { method: "POST", headers, body })).status, 401);
        }
        assert.equal(await server.sql(`select announced_at is null from shop.orders where order_id = ${placed}`), "t");
      });

      test("an order that cannot be enqueued is not placed", async () => {
        const count = () => server.sql("select count(*) from shop.orders");
        const before = await count();
        await server.cli("gate", "close", "queue.job_substrate.enabled", "--why", "a test");
        const answer = await fetch(`${url}/orders`, { method: "POST", body: '{"parcels": 1}' }).catch(() => ({ status: 500 }));
        await server.cli("gate", "open", "queue.job_substrate.enabled", "--why", "a test");
        assert.equal(answer.status, 500);
        assert.equal(await count(), before);
      });

      test("no page has logged an error or asked another host", () => assert.deepEqual(problems, []));
    });
  }

  describe("go", () => {
    let server;
    before(async () => {
      server = await Server.start();
      const env = { TOWPATH_URL: server.url, TOWPATH_TOKEN: server.token };
      await server.run(EXAMPLE_GO, [], "working on resize", { env });
    });
    after(() => server?.stop());

    test("a worker with the standard library only: claim, extend, progress, event, ack", async () => {
      const { job_id } = await server.post("jobs/enqueue", { job_kind: "resize", payload_json: { file: "a.png" } });
      const { stream, token } = await server.post(`jobs/${job_id}/token`, {});
      const job = await server.job(job_id);
      assert.deepEqual([job.state, job.result], ["succeeded", { file: "a.png" }]);
      const messages = await (await fetch(`${server.url}${stream}?offset=-1`, { headers: { authorization: `Bearer ${token}` } })).json();
      const reports = messages.map(({ value }) => `${value.percent} ${value.message}`);
      for (const percent of [25, 50, 75]) assert.ok(reports.includes(`${percent} resizing a.png`), reports.join("\n"));
      assert.equal(await server.sql("select payload ->> 'file' from towpath.event_outbox where event_domain = 'pictures'"), "a.png");
    });
  });
});
