// The client: where the server is, and what it can be asked for.
import { Invalid } from "./errors.js";
import { firstRow } from "./handle.js";
import type { Handle } from "./handle.js";
import { Http } from "./http.js";
import { JobDefinition, split } from "./job.js";
import type { RunnableJob } from "./job.js";
import { Jobs } from "./jobs.js";
import { emitOptions, sqlCall } from "./options.js";
import type { EmitOptions, EnqueueOptions } from "./options.js";
import type { StandardSchema } from "./schema.js";
import { Worker } from "./worker.js";
import type { WorkOptions } from "./worker.js";

export interface TowpathOptions {
  /** The server; `TOWPATH_URL` unless told, else `http://127.0.0.1:4437`. */
  url?: string;
  /** A token of an executor, a producer or a job; `TOWPATH_TOKEN` unless told. Not needed for enqueueing on a handle. */
  token?: string;
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

export class Towpath {
  /** State, end and cancellation of jobs. */
  readonly jobs: Jobs;
  readonly #http: Http;

  constructor(options: TowpathOptions = {}) {
    const environment = globalThis.process?.env ?? {};
    this.#http = new Http(options.url ?? environment.TOWPATH_URL ?? "http://127.0.0.1:4437", options.token ?? environment.TOWPATH_TOKEN);
    this.jobs = new Jobs(this.#http);
  }

  /** Defines a job: its kind, the schema of its arguments (any Standard Schema) and defaults for its options. */
  job<Schema extends StandardSchema<any, any>>(kind: string, schema: Schema, defaults: EnqueueOptions = {}): JobDefinition<Schema> {
    return new JobDefinition(kind, schema, defaults, () => this.#http);
  }

  /**
   * Emits an event and returns its id: with your own connection or transaction as the first argument in that,
   * without one over HTTP.
   */
  emit(handle: Handle, domain: string, type: string, payload?: object, options?: EmitOptions): Promise<string>;
  emit(domain: string, type: string, payload?: object, options?: EmitOptions): Promise<string>;
  async emit(...given: unknown[]): Promise<string> {
    const { handle, rest } = split(given, "emit");
    const [domain, type, payload = {}, options = {}] = rest as [string, string, object?, EmitOptions?];
    const named = emitOptions(options);
    if (handle) {
      const { call, values } = sqlCall("emit", emitParameters, { domain, type, payload: JSON.stringify(payload), ...named });
      return String((await firstRow(handle, `select ${call}::text as id`, values)).id);
    }
    if (named.actor !== undefined) {
      throw new Invalid("invalid", "over HTTP the actor is the token", { hint: "leave actor out, or emit on a database handle" });
    }
    const event = { domain, type, payload: payload as Record<string, unknown>, ...named };
    return ((await this.#http.post("/api/v1/events", event)) as { event_id: string }).event_id;
  }

  /**
   * Runs jobs of these kinds until SIGTERM, SIGINT or `options.signal`, then finishes what is running and returns.
   * It registers its executor and kinds itself.
   */
  work(jobs: readonly RunnableJob[], options: WorkOptions = {}): Promise<void> {
    return new Worker(this.#http, jobs, options).run();
  }

  /** @internal: for `@towpath/client/testing`. */
  get http(): Http {
    return this.#http;
  }
}
