// Processes with steps: a handler that runs from the top at every attempt, and whose steps run once.
//
//     const order = process("shop.order", async (input: Order, steps) => {
//       const paid = await steps.step("pay", () => pay(input, steps.idempotencyKey));
//       const shipped = await steps.waitFor("shipped", { timeoutSeconds: 3 * 86_400 });
//       …
//     });
//     await work([order]);
//
// Register the kind once: towpath process kind shop.order
import { Conflict, LeaseLost, PermanentError, RetryAfter } from "./errors.js";
import type { Http } from "./http.js";
import type { RunnableJob } from "./job.js";
import type { Context } from "./run.js";

/** An attempt as the server begins it. */
interface Begun {
  process_id: string;
  attempt_no: number;
  ref: string;
  input: unknown;
  steps: Record<string, unknown>;
  idempotency_key: string;
}

/** How a child of a process ended. */
export interface ChildEnd {
  process_id: string;
  state: "succeeded" | "gave_up" | "cancelled" | "invalid";
  result: unknown;
}

/** Thrown through a handler: what it waits for has not come yet, and the attempt is over. Let it pass. */
export class Suspended extends Error {
  override readonly name = "Suspended";
}

// The lease of an attempt is extended this often; the shortest useful lease of a kind is three times as long.
const EXTEND_MS = 10_000;

/** What a handler knows of its process, and what it can do. */
export class Steps {
  readonly id: string;
  readonly ref: string;
  /** One that was suspended counts here. */
  readonly attemptNo: number;
  /** For other services: the same at every attempt. */
  readonly idempotencyKey: string;
  readonly job: Context;
  readonly #recorded: Map<string, unknown>;

  /** @internal */
  constructor(begun: Begun, job: Context) {
    this.id = begun.process_id;
    this.ref = begun.ref;
    this.attemptNo = begun.attempt_no;
    this.idempotencyKey = begun.idempotency_key;
    this.job = job;
    this.#recorded = new Map(Object.entries(begun.steps));
  }

  /** Runs `work` once: if its result is recorded, that is the answer. The first result of a name stays. */
  async step<Result>(name: string, work: () => Result | Promise<Result>): Promise<Result> {
    if (!this.#recorded.has(name)) {
      const { value } = await this.#ask<{ value: unknown }>("step", { name, value: (await work()) ?? null });
      this.#recorded.set(name, value);
    }
    return this.#recorded.get(name) as Result;
  }

  /** Sleeps, once under this name. No worker is held meanwhile. */
  async sleep(name: string, seconds: number): Promise<void> {
    await this.#wait({ name, seconds });
  }

  /** Sleeps until a moment. */
  async sleepUntil(name: string, moment: Date): Promise<void> {
    await this.#wait({ name, until_at: moment.toISOString() });
  }

  /** Waits for a signal and returns what it says; undefined if the time was over first. */
  async waitFor<Payload = unknown>(signal: string, { timeoutSeconds }: { timeoutSeconds?: number } = {}): Promise<Payload | undefined> {
    const timeout = timeoutSeconds === undefined ? {} : { seconds: timeoutSeconds };
    return (await this.#wait({ name: signal, signal, ...timeout })).signal as Payload | undefined;
  }

  /** Starts a process and waits for its end. */
  async child(name: string, kind: string, ref: string, input: unknown = null): Promise<ChildEnd> {
    return (await this.#wait({ name, child: { kind, ref, input } })) as unknown as ChildEnd;
  }

  async #wait(asked: { name: string } & Record<string, unknown>): Promise<Record<string, unknown>> {
    if (!this.#recorded.has(asked.name)) {
      const waited = await this.#ask<{ ready: boolean; value: unknown }>("wait", asked);
      if (!waited.ready) throw new Suspended(`waits for ${asked.name}`);
      this.#recorded.set(asked.name, waited.value);
    }
    return this.#recorded.get(asked.name) as Record<string, unknown>;
  }

  #ask<Answer>(verb: string, body: object): Promise<Answer> {
    return ask(this.job.http, verb, { process_id: this.id, attempt_no: this.attemptNo, ...body });
  }

  /** @internal Extends the attempt's lease; a call that fails is made again the next time. */
  extend(): void {
    void this.#ask("extend", { job_id: this.job.id, attempt: this.job.attempt }).catch(() => undefined);
  }
}

/** Makes a handler of processes of this kind, for `tp.work`. */
export function process<Input>(kind: string, handler: (input: Input, steps: Steps) => unknown): RunnableJob {
  const run = async (task: { process_id: string; attempt_no: number }, job: Context): Promise<void> => {
    const about = { process_id: task.process_id, attempt_no: task.attempt_no };
    let begun: Begun;
    try {
      begun = await ask<Begun>(job.http, "begin", { ...about, job_id: job.id, attempt: job.attempt });
    } catch (error) {
      // Begun before, or over: nothing to do.
      if (error instanceof LeaseLost || error instanceof Conflict) return;
      throw error;
    }
    const steps = new Steps(begun, job);
    const timer = setInterval(() => steps.extend(), EXTEND_MS);
    try {
      const end = await ended(async () => handler(begun.input as Input, steps));
      if (end) await ask(job.http, "end", { ...about, ...end });
    } catch (error) {
      if (!(error instanceof LeaseLost)) throw error;
    } finally {
      clearInterval(timer);
    }
  };
  return { kind, parse: async (payload) => payload, handler: run as never };
}

/** How an attempt ended; nothing if it was suspended, or another worker has it. */
async function ended(work: () => Promise<unknown>): Promise<object | undefined> {
  try {
    return { outcome: "accepted", result: (await work()) ?? null };
  } catch (error) {
    if (error instanceof Suspended || error instanceof LeaseLost) return undefined;
    const message = (error instanceof Error ? `${error.name}: ${error.message}` : String(error)).slice(0, 1_000);
    if (error instanceof PermanentError) return { outcome: "permanent", detail: { message } };
    const later = error instanceof RetryAfter ? { retry_after_seconds: error.seconds } : {};
    return { outcome: "transient", detail: { message, ...later } };
  }
}

/** A call below /api/v1/processes. */
function ask<Answer>(http: Http, verb: string, body: object): Promise<Answer> {
  return http.post(`/api/v1/processes/${verb}` as never, body as never) as Promise<Answer>;
}
