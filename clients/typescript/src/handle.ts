// The caller's own database handle: its connection or transaction, of whichever driver, recognised by its shape.
// No driver is imported, and every statement takes and returns nothing but text, which all drivers agree on:
// postgres.js, for one, would encode a string for a jsonb parameter once more.
import { Invalid, errorOfDriver } from "./errors.js";

/** A `Client`, `PoolClient` or `Pool` of pg, or anything with the same `query(text, values)`. */
export interface PgHandle {
  query(...args: never[]): unknown;
}
/** `sql` of postgres.js, or the one that `sql.begin` hands out. */
export interface PostgresJsHandle {
  unsafe(...args: never[]): unknown;
}
/** A Drizzle database or transaction, on any of its PostgreSQL drivers. */
export interface DrizzleHandle {
  execute(...args: never[]): unknown;
}
/** A Kysely instance or transaction. */
export interface KyselyHandle {
  executeQuery(...args: never[]): unknown;
}
/** A Knex instance or transaction. */
export interface KnexHandle {
  raw(...args: never[]): unknown;
}
/** A Prisma client, or the one that `$transaction` hands out. */
export interface PrismaHandle {
  $queryRawUnsafe(...args: never[]): unknown;
}

/** Your own connection or transaction: what is enqueued on it commits, or rolls back, with it. */
export type Handle = PgHandle | PostgresJsHandle | DrizzleHandle | KyselyHandle | KnexHandle | PrismaHandle;

type Value = string | null;
type Row = Record<string, unknown>;
/** One statement on a handle of a certain shape. */
type Run = (text: string, values: Value[]) => PromiseLike<unknown>;

/** Whether this is a handle rather than the arguments of a job, which are JSON and hold no function. */
export function isHandle(value: unknown): value is Handle {
  return runOn(value) !== undefined;
}

/** Runs a statement with `$1` parameters on the caller's handle and returns its first row. */
export async function firstRow(handle: Handle, text: string, values: Value[]): Promise<Row> {
  const run = runOn(handle);
  if (!run) {
    throw new Invalid("invalid", "the first argument is no database handle that is known", {
      hint: "pass a connection or transaction of pg, postgres.js, Drizzle, Kysely, Knex or Prisma, or none to use HTTP",
    });
  }
  try {
    const answer = (await run(text, values)) as { rows?: Row[] } | Row[];
    return (Array.isArray(answer) ? answer : (answer.rows ?? []))[0] ?? {};
  } catch (thrown) {
    throw errorOfDriver(thrown);
  }
}

// The order matters: Prisma's client answers to every name, and a Knex or Drizzle handle may have a `query` too.
function runOn(handle: unknown): Run | undefined {
  const isFunction = typeof handle === "function";
  if (handle === null || (typeof handle !== "object" && !isFunction)) return undefined;
  // eslint-disable-next-line -- shapes, not types: the drivers' own types are not ours to import
  const any = handle as any;
  if (typeof any.$queryRawUnsafe === "function") return (text, values) => any.$queryRawUnsafe(text, ...values);
  if (isFunction && typeof any.unsafe === "function") return (text, values) => any.unsafe(text, values);
  if (isFunction && typeof any.raw === "function") {
    return (text, values) => any.raw(text.replace(/\$\d+/g, "?"), values);
  }
  if (typeof any.executeQuery === "function" && typeof any.getExecutor === "function") {
    return (text, values) => any.executeQuery(kyselyQuery(text, values));
  }
  if (typeof any.execute === "function" && typeof any.dialect?.sqlToQuery === "function") {
    return (text, values) => any.execute(drizzleQuery(text, values));
  }
  if (typeof any.query === "function") return (text, values) => any.query(text, values);
  return undefined;
}

/** What `CompiledQuery.raw` of Kysely returns. */
function kyselyQuery(sql: string, parameters: Value[]): object {
  return { sql, parameters, query: { kind: "RawNode", sqlFragments: [sql], parameters: [] }, queryId: { queryId: crypto.randomUUID() } };
}

/** The part of a Drizzle `SQL` object that its dialect asks for. */
function drizzleQuery(sql: string, params: Value[]): object {
  const query = { getSQL: () => query, toQuery: () => ({ sql, params }) };
  return query;
}
