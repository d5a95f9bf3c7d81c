// S02, F09: the guide's page with a browser's own EventSource. Its connections end again and again and the server is
// killed, while somebody appends: the page has every value once, in order, and stops when the stream is closed.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { browser, until } from "./browser.mjs";

const RECONNECTS = 10;
const binary = process.env.TOWPATH_TEST_BIN;
const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TOWPATH_") && name !== "DATABASE_URL"));

// A server of streams alone that ends every live connection after a second, and tells all it can in its log.
class Streams {
  data = mkdtempSync(join(tmpdir(), "towpath-follow-"));
  log = "";
  listen = "127.0.0.1:0";

  async start() {
    const words = ["serve", "--json", "--data", this.data, "--listen", this.listen, "--stream-sse-seconds", "1"];
    this.process = spawn(binary, words, { env: { ...clean, TOWPATH_LOG_LEVEL: "trace" }, stdio: ["ignore", "pipe", "pipe"] });
    this.ended = new Promise(resolve => this.process.on("exit", resolve));
    this.process.stderr.on("data", piece => this.log += piece);
    let said = "";
    this.process.stdout.on("data", piece => said += piece);
    await until("the server is ready", () => this.url = said.match(/"ready": *"([^"]+)"/)?.[1]);
    this.listen = this.url.replace("http://", "");
  }

  async end(signal) {
    this.process.kill(signal);
    await this.ended;
  }
}

// The code that the guide shows to a reader.
const guide = readFileSync(process.env.TOWPATH_TEST_GUIDE, "utf8");
const code = guide.match(/```js\n(function follow\([^]*?\n}\n)/)[1];

export async function eventSource() {
  const streams = new Streams();
  const pages = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<title>follow</title>"));
  await new Promise(resolve => pages.listen(0, "127.0.0.1", resolve));
  try {
    await streams.start();
    const origin = `http://127.0.0.1:${pages.address().port}`;
    const page = await (await browser.newContext()).newPage();
    await page.goto(origin);
    await reconnects(streams, page);
    await tokens(streams, page, origin);
  } finally {
    await streams.end("SIGKILL");
    pages.close();
    rmSync(streams.data, { recursive: true });
  }
}

async function reconnects(streams, page) {
  const stream = `${streams.url}/v1/stream/numbers`;
  await fetch(stream, { method: "PUT", headers: { "content-type": "application/json" } });
  await page.addScriptTag({ content: code });
  await page.evaluate(`window.seen = []; window.opened = 0;
    window.source = follow(${JSON.stringify(stream)}, value => seen.push(value));
    source.addEventListener("open", () => opened += 1);`);
  const opened = () => page.evaluate("opened");
  let [appended, kills] = [0, 0];
  for (let seq = 0; await opened() <= RECONNECTS; seq++) {
    if (kills < 2 && await opened() > 3 * (kills + 1)) {
      kills += 1;
      await streams.end("SIGKILL");
      await streams.start();
    }
    const body = JSON.stringify([appended, appended + 1, appended + 2]);
    const headers = { "content-type": "application/json", "producer-id": "test", "producer-epoch": "0", "producer-seq": `${seq}` };
    const answer = await fetch(stream, { method: "POST", headers, body });
    assert.ok(answer.ok, await answer.text());
    appended += 3;
  }
  await fetch(stream, { method: "POST", headers: { "stream-closed": "true" } });
  await until("the page knows that the stream is closed", () => page.evaluate("source.readyState === EventSource.CLOSED"));
  const seen = await page.evaluate("seen");
  assert.deepEqual(seen, Array.from({ length: appended }, (_, n) => n));
  assert.equal(kills, 2);
  console.log(`EventSource: ${appended} values once and in order over ${await opened() - 1} reconnects, 2 of them after SIGKILL`);
}

async function tokens(streams, page, origin) {
  const towpath = (...words) => new Promise((resolve, reject) => {
    const child = spawn(binary, [...words, "--data", streams.data, "--listen", streams.listen], { env: clean });
    let said = "";
    child.stdout.on("data", piece => said += piece);
    child.stderr.on("data", piece => said += piece);
    child.on("exit", status => status ? reject(new Error(said)) : resolve(said.trim()));
  });
  await towpath("project", "add", "shop", "--origin", origin);
  const write = await towpath("project", "token", "shop", "--scope", "write");
  const stream = `${streams.url}/v1/shop/stream/orders`;
  const headers = { "content-type": "application/json", authorization: `Bearer ${write}` };
  await fetch(stream, { method: "PUT", headers, body: '[{"order": 1}]' });
  const token = await towpath("project", "token", "shop", "--scope", "read", "--stream", "orders", "--seconds", "600");
  await page.evaluate(`window.orders = []; window.private = follow(${JSON.stringify(stream)}, value => orders.push(value), ${JSON.stringify(token)});`);
  await until("the page has the order", () => page.evaluate("orders.length === 1"));
  await page.evaluate("window.private.close()");
  assert.ok(streams.log.length > 0, "the server logs");
  assert.ok(!streams.log.includes(token.split(".")[2]), "the token is in the log");
}
