// A job definition: a kind, the schema of its arguments, and how jobs of this kind are enqueued.
import { Invalid, errorOf } from "./errors.js";
import { firstRow, isHandle } from "./handle.js";
import type { Handle } from "./handle.js";
import type { Http } from "./http.js";
import { enqueueOptions, sqlCall } from "./options.js";
import type { EnqueueOptions } from "./options.js";
import type { JobContext } from "./run.js";
import { validate } from "./schema.js";
import type { InputOf, OutputOf, StandardSchema } from "./schema.js";

/** What a handler does with the arguments of one job. What it returns is the job's result. */
export type Handler<Args> = (args: Args, job: JobContext<Args>) => unknown;

/** A job definition and the handler that runs its jobs, for `tp.work`. */
export interface RunnableJob {
  readonly kind: string;
  /** @internal */
  readonly parse: (payload: unknown) => Promise<unknown>;
  /** @internal */
  readonly handler: Handler<never>;
}

/** One job of `enqueueMany`: its arguments, and its options if it has any. */
export type Entry<Schema extends StandardSchema> = readonly [args: InputOf<Schema>, options?: EnqueueOptions];

// The parameters of towpath.enqueue, in its own order.
const parameters = {
  kind: "text",
  payload: "jsonb",
  priority: "integer",
  run_at: "timestamptz",
  key: "text",
  executor: "text",
  max_attempts: "integer",
  domain: "text",
  source_ref: "text",
  target_ref: "text",
  payload_ref: "text",
  actor: "text",
  run_id: "uuid",
};
// As many as the server takes in one call, and the database in one statement.
const HTTP_JOBS_MAX = 1_000;
const SQL_JOBS_MAX = 10_000;

export class JobDefinition<Schema extends StandardSchema> {
  readonly kind: string;
  readonly #schema: Schema;
  readonly #defaults: EnqueueOptions;
  readonly #http: () => Http;

  /** @internal: use `tp.job`. */
  constructor(kind: string, schema: Schema, defaults: EnqueueOptions, http: () => Http) {
    this.kind = kind;
    this.#schema = schema;
    this.#defaults = defaults;
    this.#http = http;
  }

  /**
   * Enqueues one job and returns its id. With your own connection or transaction as the first argument the job
   * commits, or rolls back, with it; a refusal throws and so rolls it back. Without one it goes over HTTP.
   */
  enqueue(handle: Handle, args: InputOf<Schema>, options?: EnqueueOptions): Promise<string>;
  enqueue(args: InputOf<Schema>, options?: EnqueueOptions): Promise<string>;
  async enqueue(...given: unknown[]): Promise<string> {
    const { handle, rest } = split(given, `${this.kind}.enqueue`);
    const [job] = await this.#entries([rest as unknown as Entry<Schema>]);
    return handle ? enqueueOn(handle, job as NewJob) : enqueueOver(this.#http(), job as NewJob);
  }

  /**
   * Enqueues many jobs with few calls and returns their ids in order. On a handle it is all of them or none. Over
   * HTTP a refusal throws too, but up to a thousand jobs beside the refused one may have been enqueued.
   */
  enqueueMany(handle: Handle, jobs: readonly Entry<Schema>[]): Promise<string[]>;
  enqueueMany(jobs: readonly Entry<Schema>[]): Promise<string[]>;
  async enqueueMany(...given: unknown[]): Promise<string[]> {
    const { handle, rest } = split(given, `${this.kind}.enqueueMany`);
    const jobs = await this.#entries(rest[0] as readonly Entry<Schema>[]);
    const most = handle ? SQL_JOBS_MAX : HTTP_JOBS_MAX;
    const ids: string[] = [];
    for (let at = 0; at < jobs.length; at += most) {
      const part = jobs.slice(at, at + most);
      ids.push(...(await (handle ? enqueueManyOn(handle, part) : enqueueManyOver(this.#http(), part))));
    }
    return ids;
  }

  /** Says what runs jobs of this kind; hand it to `tp.work`. */
  run(handler: Handler<OutputOf<Schema>>): RunnableJob {
    const parse = (payload: unknown) => validate(this.#schema, payload, `arguments of ${this.kind}`);
    return { kind: this.kind, parse, handler: handler as Handler<never> };
  }

  #entries(jobs: readonly Entry<Schema>[]): Promise<NewJob[]> {
    return Promise.all(
      jobs.map(async ([args, options]) => ({
        kind: this.kind,
        payload: await this.#payload(args),
        options: enqueueOptions({ ...this.#defaults, ...options }),
      })),
    );
  }

  /** The JSON that a worker will read. It is what gets validated: a `Date`, for one, is a string by then. */
  async #payload(args: unknown): Promise<string> {
    const payload = JSON.stringify(args ?? {});
    await validate(this.#schema, JSON.parse(payload), `arguments of ${this.kind}`);
    return payload;
  }
}

interface NewJob {
  kind: string;
  /** JSON. */
  payload: string;
  /** By their names in SQL. */
  options: Record<string, string | number>;
}

/** Tells `(handle, …)` from `(…)`. A missing handle must not turn a transaction into a call over HTTP. */
export function split(given: unknown[], what: string): { handle: Handle | undefined; rest: unknown[] } {
  if (isHandle(given[0])) return { handle: given[0], rest: given.slice(1) };
  if (given.length > 1 && (given[0] === undefined || given[0] === null)) {
    throw new Invalid("invalid", `${what}: the database handle is ${String(given[0])}`, {
      hint: "pass your connection or transaction, or leave the argument out to use HTTP",
    });
  }
  return { handle: undefined, rest: given };
}

async function enqueueOn(handle: Handle, { kind, payload, options }: NewJob): Promise<string> {
  const { call, values } = sqlCall("enqueue", parameters, { kind, payload, ...options });
  return String((await firstRow(handle, `select ${call}::text as id`, values)).id);
}

async function enqueueManyOn(handle: Handle, jobs: NewJob[]): Promise<string[]> {
  const rows = jobs.map(({ kind, payload, options }) => `${JSON.stringify({ kind, ...options }).slice(0, -1)},"payload":${payload}}`);
  const { call, values } = sqlCall("enqueue_many", { jobs: "jsonb" }, { jobs: `[${rows.join(",")}]` });
  return JSON.parse(String((await firstRow(handle, `select array_to_json(${call})::text as ids`, values)).ids)) as string[];
}

async function enqueueOver(http: Http, job: NewJob): Promise<string> {
  return (await http.post("/api/v1/jobs/enqueue", wire(job))).job_id;
}

async function enqueueManyOver(http: Http, jobs: NewJob[]): Promise<string[]> {
  const answer = await http.post("/api/v1/jobs/enqueue_many", { jobs: jobs.map(wire) });
  return answer.jobs.map((job, index) => {
    if ("job_id" in job) return job.job_id;
    throw errorOf(job.error, `job ${index} of ${jobs.length} was refused: ${job.detail}`);
  });
}

const wireNames: Record<string, string> = { key: "idempotency_key", run_at: "scheduled_at", domain: "event_domain" };

function wire({ kind, payload, options }: NewJob): { job_kind: string } {
  if (options.actor !== undefined) {
    throw new Invalid("invalid", "over HTTP the actor is the token", { hint: "leave actor out, or enqueue on a database handle" });
  }
  const named = Object.entries(options).map(([name, value]) => [wireNames[name] ?? name, value]);
  return { job_kind: kind, payload_json: JSON.parse(payload), ...Object.fromEntries(named) };
}
