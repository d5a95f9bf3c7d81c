// The example application in a real browser: progress live, a reload in the middle, a stop from a second tab; and its
// webhook, verified.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { Server, freePort, until } from "../../../clients/typescript/build/test/kit.js";

const example = new URL("../../../examples/typescript/", import.meta.url);
const problems = [];
const processes = [];
let server, browser, url;

before(async () => {
  server = await Server.start("--webhook-local");
  await server.sql(await readFile(new URL("schema.sql", example), "utf8"));
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  const added = await server.cli("--json", "routes", "add", "shop-webhook", "--to-webhook", `${url}/webhook`, "--domain", "shop");
  const secret = /whsec_[A-Za-z0-9+/=]+/.exec(added)?.[0];
  assert.ok(secret, added);
  await server.cli("routes", "add", "shop-feed", "--to-stream", "shop", "--domain", "shop");
  for (const route of ["shop-webhook", "shop-feed"]) await server.cli("routes", "enable", route, "--why", "a test");
  const env = { ...process.env, TOWPATH_URL: server.url, TOWPATH_TOKEN: server.token, DATABASE_URL: server.databaseUrl, PORT: String(port), WEBHOOK_SECRET: secret };
  await Promise.all([run("shop", "open http", env), run("worker", "working", env)]);
  // The browser would log that there is no feed before the first order.
  await fetch(`${url}/orders`, { method: "POST", body: '{"parcels": 1}' });
  await until("there is a feed", async () => (await fetch(`${server.url}/v1/stream/shop?offset=-1`)).ok);
  browser = await chromium.launch({ executablePath: process.env.TOWPATH_TEST_BROWSER, args: ["--no-sandbox"] });
});

after(async () => {
  await browser?.close();
  for (const child of processes) child.kill("SIGTERM");
  await server?.stop();
});

/** Starts a program of the example and waits until it has said that it is ready. */
function run(name, ready, env) {
  const child = spawn("node", [`build/${name}.js`], { cwd: example, env, stdio: ["ignore", "pipe", "inherit"] });
  processes.push(child);
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`${name} ended with ${code}`)));
    child.stdout.on("data", (text) => {
      process.stdout.write(`${name}: ${text}`);
      if (String(text).includes(ready)) resolve();
    });
  });
}

/** A tab of its own context, as another person's browser would be; what must never happen in it is kept. */
async function open(address) {
  const page = await (await browser.newContext()).newPage();
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(`${page.url()}: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`${page.url()}: ${error}`));
  page.on("request", (request) => request.url().startsWith(url) || problems.push(`${page.url()} asks ${request.url()}`));
  await page.goto(address);
  return page;
}

const number = async (page, id) => Number((await page.locator(id).textContent())?.match(/\d+/)?.[0] ?? 0);
const state = (page, wanted) => page.locator("#state", { hasText: wanted }).waitFor({ timeout: 60_000 });

async function order(page, parcels) {
  await page.fill("#parcels", String(parcels));
  await page.click("#place");
  await page.waitForURL(/#\d+$/);
  return page.url().split("#")[1];
}

test("an order is placed, its job runs, its result is shown, and its webhook is verified", async () => {
  const page = await open(url);
  const placed = await order(page, 3);
  await state(page, "succeeded");
  assert.equal(await page.locator("#result").textContent(), "shipped 3 parcels");
  assert.equal(await number(page, "#chunks"), 3);
  await page.locator("#feed li", { hasText: `order ${placed} placed` }).waitFor();
  await until("the webhook has arrived", async () => (await (await fetch(`${url}/orders/${placed}`)).json()).announced);
  const forged = await fetch(`${url}/webhook`, { method: "POST", headers: { "webhook-id": "x", "webhook-timestamp": String(Math.floor(Date.now() / 1000)), "webhook-signature": "v1,AAAA" }, body: "{}" });
  assert.equal(forged.status, 401);
});

test("progress is seen live, survives a reload, and the job is stopped from a second tab", async () => {
  const page = await open(url);
  await order(page, 10_000);
  await until("parcels are seen live", async () => (await number(page, "#chunks")) >= 3);
  const before = await number(page, "#chunks");
  await page.reload();
  await until("all of them are there again, and more come", async () => (await number(page, "#chunks")) > before);
  assert.match(String(await page.locator("#message").textContent()), /^packed \d+ of 10000$/);
  const second = await open(page.url());
  await until("the second tab sees them too", async () => (await number(second, "#chunks")) > before);
  await second.click("#stop");
  await Promise.all([state(page, "cancelled"), state(second, "cancelled")]);
  const job = await (await fetch(`${url}/orders/${page.url().split("#")[1]}`)).json();
  const [row] = await server.sql("select state from towpath.job_queue where job_id = $1", [job.job]);
  assert.equal(row.state, "cancelled");
});

test("no page has logged an error or asked another host", () => assert.deepEqual(problems, []));
