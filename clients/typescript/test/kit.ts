// A real towpath with its own PostgreSQL for one test file: started, killed and restarted.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdtemp, readFile, rm, chmod } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { Client } from "../src/index.js";

const binary = process.env.TOWPATH_TEST_BIN ?? "towpath";
// The caller's own settings must not affect the tests.
const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TOWPATH_") && name !== "DATABASE_URL"));

export class Server {
  readonly url: string;
  readonly #directory: string;
  readonly #flags: string[];
  readonly #environment: NodeJS.ProcessEnv;
  #process: ChildProcess | undefined;
  databaseUrl = "";
  token = "";

  private constructor(directory: string, port: number, postgresPort: number, flags: string[]) {
    this.url = `http://127.0.0.1:${port}`;
    this.#directory = directory;
    this.#flags = ["up", "--dev", "--json", "--listen", `127.0.0.1:${port}`, "--postgres-port", String(postgresPort), ...flags];
    this.#environment = { ...clean, TOWPATH_DATA: join(directory, "data") };
  }

  static async start(...flags: string[]): Promise<Server> {
    const directory = await mkdtemp(join(tmpdir(), "towpath-ts-"));
    await chmod(directory, 0o755); // its PostgreSQL may run as another user
    const server = new Server(directory, await freePort(), await freePort(), flags);
    await server.up();
    server.databaseUrl = (await server.cli("db", "url")).trim();
    server.token = (await readFile(join(directory, "data", "dev-token"), "utf8")).trim();
    return server;
  }

  /** Starts the program and waits until it is ready. */
  async up(): Promise<void> {
    const child = spawn(binary, this.#flags, { env: this.#environment, stdio: ["ignore", "pipe", "pipe"] });
    this.#process = child;
    let log = "";
    child.stderr?.on("data", (text: Buffer) => (log = (log + String(text)).slice(-20_000)));
    const ended = new Promise<never>((_, reject) => child.once("exit", (code) => reject(new Error(`towpath ended with ${code}: ${log}`))));
    ended.catch(() => {});
    let out = "";
    const ready = new Promise<void>((resolve) => {
      child.stdout?.on("data", (text: Buffer) => {
        out += String(text);
        if (out.includes('"ready"')) resolve();
      });
    });
    await Promise.race([ready, ended]);
  }

  /** Ends the program with a signal and waits until it is gone. */
  async down(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await gone;
  }

  async stop(): Promise<void> {
    await this.down();
    await rm(this.#directory, { recursive: true, force: true });
  }

  async cli(...words: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(binary, words, { env: this.#environment });
    return stdout;
  }

  /** Where it is, and a token that may do everything. */
  get access(): { url: string; token: string } {
    return { url: this.url, token: this.token };
  }

  client(): Client {
    return new Client(this.access);
  }

  /** One statement on a connection of its own. */
  async sql<Row extends pg.QueryResultRow = Record<string, unknown>>(text: string, values: unknown[] = []): Promise<Row[]> {
    const client = new pg.Client(this.databaseUrl);
    await client.connect();
    try {
      return (await client.query<Row>(text, values)).rows;
    } finally {
      await client.end();
    }
  }

  /** How many jobs of a kind are in each state. */
  async states(kind: string): Promise<Record<string, number>> {
    const rows = await this.sql<{ state: string; count: number }>(
      "select state, count(*)::integer as count from towpath.job_queue where job_kind = $1 group by state",
      [kind],
    );
    return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
  }
}

/** A port that no connection gets by itself, so that a server that is started again finds it free. */
export async function freePort(): Promise<number> {
  const port = 10_000 + Math.floor(Math.random() * 20_000);
  const server = createServer();
  const free = await new Promise<boolean>((resolve) => {
    server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true));
  });
  if (!free) return freePort();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Asks until the answer is good; the time is for a slow, busy machine. */
export async function until(what: string, good: () => Promise<boolean> | boolean): Promise<void> {
  for (const deadline = Date.now() + 60_000; ; ) {
    if (await good()) return;
    assert.ok(Date.now() < deadline, `never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
