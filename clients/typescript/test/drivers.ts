// Every driver of the matrix behind one shape: a transaction with a row in each of two schemas of the user's own.
import { PrismaPg } from "@prisma/adapter-pg";
import { drizzle as drizzlePg } from "drizzle-orm/node-postgres";
import { pgSchema, text } from "drizzle-orm/pg-core";
import { drizzle as drizzlePostgresJs } from "drizzle-orm/postgres-js";
import knexOf from "knex";
import { Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import postgres from "postgres";
import type { Handle } from "../src/index.js";
import { PrismaClient } from "./generated/client.js";

/** What a test does inside of a transaction, on the driver's own handle for it. */
type Inside = (tx: Handle) => Promise<void>;

export interface Driver {
  name: string;
  /** Writes a row into both schemas by the driver's own means, then calls `inside`, in one transaction. */
  transaction(ref: string, inside: Inside): Promise<void>;
  /** The handle outside of a transaction. */
  plain: Handle;
  close(): Promise<unknown>;
}

export const drivers: ((url: string) => Driver)[] = [
  pgClient,
  postgresJs,
  (url) => drizzle("drizzle on pg", drizzlePg(new pg.Pool({ connectionString: url }))),
  (url) => drizzle("drizzle on postgres.js", drizzlePostgresJs(postgres(url, { onnotice: () => {} }))),
  kysely,
  knex,
  prisma,
];

function pgClient(connectionString: string): Driver {
  const pool = new pg.Pool({ connectionString });
  return {
    name: "pg",
    plain: pool,
    async transaction(ref, inside) {
      const client = await pool.connect();
      try {
        await client.query("begin");
        await client.query("insert into shop.orders values ($1)", [ref]);
        await client.query("insert into books.entries values ($1)", [ref]);
        await inside(client);
        await client.query("commit");
      } catch (error) {
        await client.query("rollback");
        throw error;
      } finally {
        client.release();
      }
    },
    close: () => pool.end(),
  };
}

function postgresJs(url: string): Driver {
  const sql = postgres(url, { onnotice: () => {} });
  return {
    name: "postgres.js",
    plain: sql,
    async transaction(ref, inside) {
      await sql.begin(async (tx) => {
        await tx`insert into shop.orders values (${ref})`;
        await tx`insert into books.entries values (${ref})`;
        await inside(tx);
      });
    },
    close: () => sql.end(),
  };
}

const orders = pgSchema("shop").table("orders", { ref: text() });
const entries = pgSchema("books").table("entries", { ref: text() });

function drizzle(name: string, db: ReturnType<typeof drizzlePg<{}, pg.Pool>> | ReturnType<typeof drizzlePostgresJs<{}, postgres.Sql>>): Driver {
  return {
    name,
    plain: db,
    async transaction(ref, inside) {
      await db.transaction(async (tx) => {
        await tx.insert(orders).values({ ref });
        await tx.insert(entries).values({ ref });
        await inside(tx);
      });
    },
    close: () => db.$client.end() as Promise<unknown>,
  };
}

interface Tables {
  "shop.orders": { ref: string };
  "books.entries": { ref: string };
}

function kysely(connectionString: string): Driver {
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString }) }) });
  return {
    name: "kysely",
    plain: db,
    async transaction(ref, inside) {
      await db.transaction().execute(async (trx) => {
        await trx.insertInto("shop.orders").values({ ref }).execute();
        await trx.insertInto("books.entries").values({ ref }).execute();
        await inside(trx);
      });
    },
    close: () => db.destroy(),
  };
}

function knex(connection: string): Driver {
  const db = knexOf.default({ client: "pg", connection });
  return {
    name: "knex",
    plain: db,
    async transaction(ref, inside) {
      await db.transaction(async (trx) => {
        await trx.withSchema("shop").insert({ ref }).into("orders");
        await trx.withSchema("books").insert({ ref }).into("entries");
        await inside(trx);
      });
    },
    close: () => db.destroy(),
  };
}

function prisma(connectionString: string): Driver {
  const client = new PrismaClient({ adapter: new PrismaPg({ connectionString }) });
  return {
    name: "prisma",
    plain: client,
    async transaction(ref, inside) {
      await client.$transaction(async (tx) => {
        await tx.order.create({ data: { ref } });
        await tx.entry.create({ data: { ref } });
        await inside(tx);
      });
    },
    close: () => client.$disconnect(),
  };
}
