// A real server with its own PostgreSQL, and programs beside it.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const binary = process.env.TOWPATH_TEST_BIN;
// The caller's own settings must not affect the tests.
const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TOWPATH_") && name !== "DATABASE_URL"));

export class Server {
  #children = [];

  static async start() {
    const server = new Server();
    server.directory = await mkdtemp(join(tmpdir(), "towpath-shop-"));
    await chmod(server.directory, 0o755); // its PostgreSQL may run as another user
    server.url = `http://127.0.0.1:${await freePort()}`;
    server.environment = { ...clean, TOWPATH_DATA: join(server.directory, "data"), TOWPATH_LISTEN: server.url.slice("http://".length) };
    await server.run(binary, ["up", "--dev", "--webhook-local"], "towpath is ready");
    server.token = (await readFile(join(server.directory, "data/dev-token"), "utf8")).trim();
    server.databaseUrl = (await server.cli("db", "url")).trim();
    return server;
  }

  /** Starts a program, and waits until it has printed this. */
  run(program, words, ready, { cwd, env = {} } = {}) {
    const child = spawn(program, words, { cwd, env: { ...this.environment, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    let printed = "";
    return new Promise((resolve, reject) => {
      const gone = new Promise((done) => child.once("exit", done));
      gone.then((code) => reject(new Error(`${program} ended with ${code}:\n${printed}`)));
      child.once("error", reject);
      this.#children.push({ child, gone });
      for (const stream of [child.stdout, child.stderr]) {
        stream.on("data", (text) => {
          printed = (printed + String(text)).slice(-20_000);
          if (printed.includes(ready)) resolve();
        });
      }
    });
  }

  async cli(...words) {
    return (await promisify(execFile)(binary, words, { env: this.environment })).stdout;
  }

  async sql(statement) {
    return (await this.cli("db", "psql", "--", "-XAtc", statement)).trim();
  }

  /** A call of the HTTP API. */
  async post(path, body) {
    const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json" };
    const answer = await fetch(`${this.url}/api/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    assert.ok(answer.ok, `${path}: ${await answer.clone().text()}`);
    return answer.json();
  }

  async job(id, wait = 60) {
    const headers = { authorization: `Bearer ${this.token}` };
    return (await fetch(`${this.url}/api/v1/jobs/${id}?wait=${wait}`, { headers })).json();
  }

  /** Ends what was started, the last one first. */
  async stop() {
    for (const { child, gone } of this.#children.reverse()) {
      child.kill("SIGTERM");
      await gone;
    }
    await rm(this.directory, { recursive: true, force: true });
  }
}

export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Asks until the answer is good; the time is for a slow, busy machine. */
export async function until(what, good) {
  for (const deadline = Date.now() + 60_000; ; ) {
    if (await good()) return;
    assert.ok(Date.now() < deadline, `never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
