// The shop: takes orders, receives its own webhook, and serves the page.
import { readFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import pg from "pg";
import { Webhook } from "standardwebhooks";
import { ship, tp } from "./jobs.js";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const towpath = process.env.TOWPATH_URL ?? "http://127.0.0.1:4437";

/** An order, its job and its event commit together, or not at all. */
async function placeOrder(parcels: number): Promise<number> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const { rows } = await client.query("insert into shop.orders (parcels) values ($1) returning order_id::integer", [parcels]);
    const order: number = rows[0].order_id;
    const job = await ship.enqueue(client, { order, parcels }, { key: `ship:${order}` });
    await client.query("update shop.orders set job_id = $2 where order_id = $1", [order, job]);
    await tp.emit(client, "shop", "order.placed", { order });
    await client.query("commit");
    return order;
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}

/** What the page needs to follow an order: its job, and a token for that job only. */
async function showOrder(order: number): Promise<object | undefined> {
  const { rows } = await pool.query("select job_id, announced_at from shop.orders where order_id = $1", [order]);
  if (!rows[0]) return undefined;
  const { token } = await tp.jobs.token(rows[0].job_id);
  return { order, job: rows[0].job_id, token, announced: rows[0].announced_at !== null };
}

/** The webhook: its signature proves that it comes from Towpath. */
async function announce(body: string, headers: IncomingMessage["headers"]): Promise<void> {
  const webhook = new Webhook(process.env.WEBHOOK_SECRET ?? "");
  const event = webhook.verify(body, headers as Record<string, string>) as { data: { payload: { order: number } } };
  await pool.query("update shop.orders set announced_at = now() where order_id = $1 and announced_at is null", [event.data.payload.order]);
}

async function answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = new URL(incoming.url ?? "/", "http://shop").pathname;
  // The page reads jobs and streams from where it comes from, so the shop passes those calls on.
  if (path.startsWith("/api/") || path.startsWith("/v1/")) return passOn(incoming, response);
  const send = (status: number, type: string, body: string | Buffer) => void response.writeHead(status, { "content-type": type }).end(body);
  const json = (status: number, body: object) => send(status, "application/json", JSON.stringify(body));
  if (path === "/") return send(200, "text/html; charset=utf-8", await readFile(new URL("../page.html", import.meta.url)));
  if (path === "/page.js") return send(200, "text/javascript", await readFile(new URL("page.js", import.meta.url)));
  if (path === "/orders" && incoming.method === "POST") {
    const { parcels } = JSON.parse(await text(incoming)) as { parcels: number };
    return json(201, { order: await placeOrder(parcels) });
  }
  const order = /^\/orders\/(\d+)$/.exec(path)?.[1];
  const found = order && (await showOrder(Number(order)));
  if (found) return json(200, found);
  if (path === "/webhook" && incoming.method === "POST") {
    const body = await text(incoming);
    const verified = await announce(body, incoming.headers).then(() => true, (error: Error) => console.log(`refused: ${error.message}`));
    return verified ? json(200, {}) : json(401, { error: "not verified" });
  }
  json(404, { error: "not found" });
}

function passOn(incoming: IncomingMessage, response: ServerResponse): void {
  const { host: _, ...headers } = incoming.headers;
  const onward = request(towpath + incoming.url, { method: incoming.method, headers }, (answered) => {
    response.writeHead(answered.statusCode ?? 502, answered.headers);
    answered.pipe(response);
  });
  onward.on("error", () => response.destroy());
  response.on("close", () => onward.destroy());
  incoming.pipe(onward);
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
server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => console.log(`open http://127.0.0.1:${process.env.PORT ?? 3000}`));
