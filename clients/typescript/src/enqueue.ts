// How jobs are enqueued: on a database handle by SQL, without one over HTTP.
import { errorOf } from "./errors.js";
import { firstRow } from "./handle.js";
import type { Handle } from "./handle.js";
import type { Http } from "./http.js";
import { enqueueOptions, refuseActor, sqlCall } from "./options.js";
import type { EnqueueOptions, Named } from "./options.js";

/** One job of `enqueueMany`: its arguments, and its options if it has any. */
export type Entry<Args> = readonly [args: Args, options?: EnqueueOptions | undefined];

/** A job definition, or the name of a kind that is defined elsewhere. */
export type JobLike<Args> = string | Definition<Args>;

/** What enqueueing needs of a definition. */
export interface Definition<Args> {
  readonly kind: string;
  /** Defaults of the options. */
  readonly defaults: EnqueueOptions;
  /** The JSON of the arguments, checked. @internal */
  readonly payload: (args: Args) => Promise<string>;
}

export interface NewJob {
  kind: string;
  /** JSON. */
  payload: string;
  /** By their names in SQL. */
  options: Named;
}

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

/** Checks arguments and options. */
export function newJobs<Args>(job: JobLike<Args>, entries: readonly Entry<Args>[]): Promise<NewJob[]> {
  const { kind, defaults, payload } = typeof job === "string" ? plain(job) : job;
  return Promise.all(
    entries.map(async ([args, options]) => ({
      kind,
      payload: await payload(args),
      options: enqueueOptions({ ...defaults, ...options }),
    })),
  );
}

const plain = (kind: string): Definition<unknown> => ({ kind, defaults: {}, payload: async (args) => JSON.stringify(args ?? {}) });

export async function enqueueOn(handle: Handle, { kind, payload, options }: NewJob): Promise<string> {
  const { call, values } = sqlCall("enqueue", parameters, { kind, payload, ...options });
  return String((await firstRow(handle, `select ${call}::text as id`, values)).id);
}

export function enqueueManyOn(handle: Handle, jobs: NewJob[]): Promise<string[]> {
  return inParts(jobs, SQL_JOBS_MAX, async (part) => {
    const rows = part.map(({ kind, payload, options }) => `${JSON.stringify({ kind, ...options }).slice(0, -1)},"payload":${payload}}`);
    const { call, values } = sqlCall("enqueue_many", { jobs: "jsonb" }, { jobs: `[${rows.join(",")}]` });
    return JSON.parse(String((await firstRow(handle, `select array_to_json(${call})::text as ids`, values)).ids)) as string[];
  });
}

export async function enqueueOver(http: Http, job: NewJob): Promise<string> {
  return (await http.post("/api/v1/jobs/enqueue", wire(job))).job_id;
}

export function enqueueManyOver(http: Http, jobs: NewJob[]): Promise<string[]> {
  return inParts(jobs, HTTP_JOBS_MAX, async (part) => {
    const answer = await http.post("/api/v1/jobs/enqueue_many", { jobs: part.map(wire) });
    const rows: { job_id?: string; error?: string; detail?: string }[] = answer.jobs;
    return rows.map(({ job_id, error, detail }, index) => {
      if (job_id !== undefined) return job_id;
      throw errorOf(String(error), `job ${index} of ${part.length} was refused: ${String(detail)}`);
    });
  });
}

async function inParts(jobs: NewJob[], most: number, send: (part: NewJob[]) => Promise<string[]>): Promise<string[]> {
  const ids: string[] = [];
  for (let at = 0; at < jobs.length; at += most) ids.push(...(await send(jobs.slice(at, at + most))));
  return ids;
}

const wireNames: Record<string, string> = { key: "idempotency_key", run_at: "scheduled_at", domain: "event_domain" };

function wire({ kind, payload, options }: NewJob): { job_kind: string } {
  const named = Object.entries(refuseActor(options)).map(([name, value]) => [wireNames[name] ?? name, value]);
  return { job_kind: kind, payload_json: JSON.parse(payload), ...Object.fromEntries(named) };
}
