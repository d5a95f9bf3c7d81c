// The shop: takes orders, receives its own webhook, and serves the pages.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Client, emit } from "@towpath/client";
import pg from "pg";
import { Webhook } from "standardwebhooks";
import { ship } from "./jobs.js";

const client = new Client(); // TOWPATH_URL, TOWPATH_TOKEN
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const webhook = new Webhook(process.env.WEBHOOK_KEY ?? "");

/** An order, its job and its event commit together, or not at all. */
async function placeOrder(parcels: number): Promise<number> {
  const tx = await pool.connect();
  try {
    await tx.query("begin");
    const { rows } = await tx.query("insert into shop.orders (parcels) values ($1) returning order_id::integer", [parcels]);
    const order: number = rows[0].order_id;
    const job = await ship.enqueue(tx, { order, parcels }, { key: `ship:${order}` });
    await tx.query("update shop.orders set job_id = $2 where order_id = $1", [order, job]);
    await emit(tx, "shop", "order.placed", { order }, { subjectRef: String(order) });
    await tx.query("commit");
    return order;
  } catch (error) {
    await tx.query("rollback");
    throw error;
  } finally {
    tx.release();
  }
}

/** What the page needs to follow an order: its job, and a token for that job only. */
async function showOrder(order: number): Promise<object | undefined> {
  const { rows } = await pool.query("select job_id, announced_at is not null as announced from shop.orders where order_id = $1", [order]);
  if (!rows[0]) return undefined;
  const { job_id: job, announced } = rows[0];
  const { token, stream } = await client.jobToken(job);
  return { order, job, token, announced, towpath: client.url, stream };
}

/** The webhook: its signature proves that it comes from Towpath. */
async function announce(body: string, headers: IncomingMessage["headers"]): Promise<boolean> {
  let event: { data: { payload: { order: number } } };
  try {
    event = webhook.verify(body, headers as Record<string, string>) as typeof event;
  } catch (error) {
    console.log(`refused: ${String(error)}`);
    return false;
  }
  await pool.query("update shop.orders set announced_at = now() where order_id = $1 and announced_at is null", [event.data.payload.order]);
  return true;
}

const pages: Record<string, [file: string, type: string]> = {
  "/": ["../../page.html", "text/html; charset=utf-8"],
  "/react": ["../react.html", "text/html; charset=utf-8"],
  "/react.js": ["react.js", "text/javascript"],
};

async function answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const send = (status: number, type: string, body: string | Buffer) => void response.writeHead(status, { "content-type": type }).end(body);
  const json = (status: number, body: object) => send(status, "application/json", JSON.stringify(body));
  const path = incoming.url ?? "/";
  if (incoming.method === "POST") {
    const body = await text(incoming);
    if (path === "/orders") return json(201, { order: await placeOrder((JSON.parse(body) as { parcels: number }).parcels) });
    if (path === "/webhook") {
      const verified = await announce(body, incoming.headers);
      return json(verified ? 200 : 401, { verified });
    }
  }
  const page = pages[path];
  if (page) return send(200, page[1], await readFile(new URL(page[0], import.meta.url)));
  const order = /^\/orders\/(\d+)$/.exec(path)?.[1];
  const found = order && (await showOrder(Number(order)));
  return found ? json(200, found) : json(404, { error: "not found" });
}

async function text(incoming: IncomingMessage): Promise<string> {
  let body = "";
  for await (const chunk of incoming.setEncoding("utf8")) body += chunk as string;
  return body;
}

const server = createServer((incoming, response) => {
  answer(incoming, response).catch((error: Error) => {
    console.error(error);
    response.writeHead(500, { "content-type": "application/json" }).end(JSON.stringify({ error: error.message }));
  });
});
const port = Number(process.env.PORT ?? 3000);
server.listen(port, "127.0.0.1", () => console.log(`open http://127.0.0.1:${port}`));
