// A job definition: a kind, the schema of its arguments, and how jobs of this kind are enqueued. And events.
import { Client, defaultClient } from "./client.js";
import { enqueueManyOn, enqueueOn, newJobs } from "./enqueue.js";
import type { Definition, Entry } from "./enqueue.js";
import { Invalid } from "./errors.js";
import { firstRow, isHandle } from "./handle.js";
import type { Handle } from "./handle.js";
import { emitOptions, sqlCall } from "./options.js";
import type { EmitOptions, EnqueueOptions } from "./options.js";
import type { Context } from "./run.js";
import { validate } from "./schema.js";
import type { InputOf, OutputOf, StandardSchema } from "./schema.js";

/** What a handler does with the arguments of one job. What it returns is the job's result. */
export type Handler<Args> = (args: Args, ctx: Context<Args>) => unknown;

/** A job definition and the handler that runs its jobs, for `work`. */
export interface RunnableJob {
  readonly kind: string;
  /** @internal */
  readonly parse: (payload: unknown) => Promise<unknown>;
  /** @internal */
  readonly handler: Handler<never>;
}

/** Defines a job: its kind, the schema of its arguments (any Standard Schema) and defaults for its options. */
export function job<Schema extends StandardSchema<any, any>>(kind: string, schema: Schema, defaults: EnqueueOptions = {}): Job<Schema> {
  return new Job(kind, schema, defaults);
}

export class Job<Schema extends StandardSchema> implements Definition<InputOf<Schema>> {
  readonly kind: string;
  readonly defaults: EnqueueOptions;
  readonly #schema: Schema;

  /** @internal: use `job`. */
  constructor(kind: string, schema: Schema, defaults: EnqueueOptions) {
    this.kind = kind;
    this.defaults = defaults;
    this.#schema = schema;
  }

  /**
   * Enqueues one job and returns its id. With your own connection or transaction as the first argument the job
   * commits, or rolls back, with it; a refusal throws and so rolls it back. On a client, or without either, it goes
   * over HTTP.
   */
  enqueue(handle: Handle | Client, args: InputOf<Schema>, options?: EnqueueOptions): Promise<string>;
  enqueue(args: InputOf<Schema>, options?: EnqueueOptions): Promise<string>;
  async enqueue(...given: unknown[]): Promise<string> {
    const { on, rest } = split(given, `${this.kind}.enqueue`);
    const [args, options] = rest as [InputOf<Schema>, EnqueueOptions?];
    if (on instanceof Client) return on.enqueue(this, args, options);
    const [row] = await newJobs(this, [[args, options]]);
    return enqueueOn(on, row as NonNullable<typeof row>);
  }

  /**
   * Enqueues many jobs with few calls and returns their ids in order. On a handle it is all of them or none; over
   * HTTP, where they go in calls of a thousand, all of a call or none.
   */
  enqueueMany(handle: Handle | Client, jobs: readonly Entry<InputOf<Schema>>[]): Promise<string[]>;
  enqueueMany(jobs: readonly Entry<InputOf<Schema>>[]): Promise<string[]>;
  async enqueueMany(...given: unknown[]): Promise<string[]> {
    const { on, rest } = split(given, `${this.kind}.enqueueMany`);
    const entries = rest[0] as readonly Entry<InputOf<Schema>>[];
    if (on instanceof Client) return on.enqueueMany(this, entries);
    return enqueueManyOn(on, await newJobs(this, entries));
  }

  /** Says what runs jobs of this kind; hand it to `work`. */
  run(handler: Handler<OutputOf<Schema>>): RunnableJob {
    const parse = (payload: unknown) => validate(this.#schema, payload, `arguments of ${this.kind}`);
    return { kind: this.kind, parse, handler: handler as Handler<never> };
  }

  /** The JSON that a worker will read. It is what gets validated: a `Date`, for one, is a string by then. @internal */
  readonly payload = async (args: InputOf<Schema>): Promise<string> => {
    const payload = JSON.stringify(args ?? {});
    await validate(this.#schema, JSON.parse(payload), `arguments of ${this.kind}`);
    return payload;
  };
}

const emitParameters = {
  domain: "text",
  type: "text",
  payload: "jsonb",
  stream: "text",
  subject_table: "text",
  subject_ref: "text",
  ordering_key: "text",
  actor: "text",
  event_id: "uuid",
};

/**
 * Emits an event and returns its id: with your own connection or transaction as the first argument in that; on a
 * client, or without either, over HTTP.
 */
export function emit(handle: Handle | Client, domain: string, type: string, payload?: object, options?: EmitOptions): Promise<string>;
export function emit(domain: string, type: string, payload?: object, options?: EmitOptions): Promise<string>;
export async function emit(...given: unknown[]): Promise<string> {
  const { on, rest } = split(given, "emit");
  const [domain, type, payload = {}, options = {}] = rest as [string, string, object?, EmitOptions?];
  if (on instanceof Client) return on.emit(domain, type, payload, options);
  const { call, values } = sqlCall("emit", emitParameters, { domain, type, payload: JSON.stringify(payload), ...emitOptions(options) });
  return String((await firstRow(on, `select ${call}::text as id`, values)).id);
}

/** Tells `(handle, …)` from `(…)`. A missing handle must not turn a transaction into a call over HTTP. */
function split(given: unknown[], what: string): { on: Handle | Client; rest: unknown[] } {
  if (given[0] instanceof Client || isHandle(given[0])) return { on: given[0], rest: given.slice(1) };
  if (given.length > 1 && (given[0] === undefined || given[0] === null)) {
    throw new Invalid("invalid", `${what}: the database handle is ${String(given[0])}`, {
      hint: "pass your connection or transaction, or leave the argument out to use HTTP",
    });
  }
  return { on: defaultClient(), rest: given };
}
