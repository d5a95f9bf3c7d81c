// A worker: claims jobs in batches, runs their handlers at once, keeps their leases, and records in batches what
// came of them.
//
//     claims ──> running handlers ──> outbox ──> recorded
//                     └── keeper: extends leases, aborts handlers whose lease was lost
//
// Nothing here is the truth: the database is. A worker that dies loses its leases, and its jobs run elsewhere.
import { Backoff, sleep } from "./backoff.js";
import { Invalid, LeaseLost, NotAuthorised } from "./errors.js";
import { Client, defaultClient } from "./client.js";
import type { ClientOptions } from "./client.js";
import type { Http } from "./http.js";
import type { RunnableJob } from "./job.js";
import { record } from "./record.js";
import { WorkerStops, leaseOf, runOne } from "./run.js";
import type { ClaimedJob, Lease, Middleware, Outcome } from "./run.js";

export interface WorkOptions extends ClientOptions {
  /** How many handlers run at once; 32 unless told. */
  concurrency?: number;
  /** The executor that the token must belong to; any unless told. */
  executor?: string;
  /** A lease lasts so long after its last extension; 60 unless told. */
  leaseSeconds?: number;
  /** How long running handlers may take after a stop; 30 unless told. */
  drainSeconds?: number;
  /** Called around every handler, the first one outermost. */
  middleware?: readonly Middleware[];
  /** Stops the worker as SIGTERM does. */
  signal?: AbortSignal;
  /** Where it reports problems, a line each; the console by default. */
  log?: (line: string) => void;
}

/** A job that this worker has claimed and that is not recorded yet. */
interface Held {
  lease: Lease;
  abort: AbortController;
  /** When its lease began, by this machine's clock. */
  since: number;
}

// The most that the server takes in one call.
const CLAIM_JOBS_MAX = 100;
const EXTEND_JOBS_MAX = 1_000;
// A claim without a job answers after this; short enough for proxies.
const CLAIM_WAIT_SECONDS = 20;
const HEARTBEAT_MS = 5_000;
// A running job is extended at least this often, because that is also how its worker learns of a cancel.
const EXTEND_MS_MAX = 5_000;
// How long a claim waits for more free places, unless half of them are free.
const GATHER_MS = 5;
// A claim that is in flight at a stop may still answer with jobs, which are released; an idle one is aborted.
const LAST_CLAIM_MS = 250;
// After the drain: handlers that were told to abort, and results that are not recorded yet.
const ABORT_GRACE_MS = 1_000;
const LAST_RECORD_MS = 5_000;

/**
 * Runs jobs of these kinds until SIGTERM, SIGINT or `options.signal`, then finishes what is running and returns.
 * It registers its executor and kinds itself.
 */
export function work(jobs: readonly RunnableJob[], options: WorkOptions = {}): Promise<void> {
  const client = options.url || options.token ? new Client(options) : defaultClient();
  return new Worker(client.http, jobs, options).run();
}

class Worker {
  readonly #http: Http;
  readonly #jobs: ReadonlyMap<string, RunnableJob>;
  readonly #options: Required<Omit<WorkOptions, "signal" | "executor" | keyof ClientOptions>>;
  readonly #executor: string | undefined;
  readonly #held = new Map<string, Held>();
  readonly #stop = new AbortController();
  /** Everything in the background ends: heartbeats, extensions, retries. */
  readonly #end = new AbortController();
  readonly #callerSignal: AbortSignal | undefined;
  readonly #outbox = new Map<Lease, Outcome>();
  #recording: Promise<void> | undefined;
  #running = 0;
  #changed: (() => void)[] = [];
  /** What the log said last of the server, so that an outage is one line. */
  #trouble = "";

  constructor(http: Http, jobs: readonly RunnableJob[], options: WorkOptions) {
    if (jobs.length === 0) throw new Invalid("invalid", "work: there is no job to work on");
    const concurrency = options.concurrency ?? 32;
    if (!Number.isInteger(concurrency) || concurrency < 1) throw new Invalid("invalid", "work: concurrency must be 1 or more");
    this.#jobs = new Map(jobs.map((job) => [job.kind, job]));
    if (this.#jobs.size < jobs.length) throw new Invalid("invalid", "work: two handlers have the same kind");
    this.#http = http.with({ "towpath-worker": workerName() });
    this.#callerSignal = options.signal;
    this.#executor = options.executor;
    this.#options = {
      concurrency,
      leaseSeconds: options.leaseSeconds ?? 60,
      drainSeconds: options.drainSeconds ?? 30,
      middleware: options.middleware ?? [],
      log: options.log ?? ((line) => console.error(`towpath: ${line}`)),
    };
  }

  /** Works until it is told to stop, and then until what is running has ended. */
  async run(): Promise<void> {
    const release = this.#listen();
    const keeping: Promise<void>[] = [];
    try {
      await this.#register();
      this.#options.log(`working on ${this.#kinds.join(", ")}`);
      keeping.push(this.#repeat(HEARTBEAT_MS, () => this.#heartbeat()));
      keeping.push(this.#repeat(this.#extendEvery / 2, () => this.#extend()));
      await this.#claimUntilStopped();
    } finally {
      await this.#drain();
      this.#end.abort();
      await Promise.all(keeping);
      release();
    }
  }

  /** The first signal stops; the second ends the process at once, with the code of a process that a signal ended. */
  #listen(): () => void {
    const stop = () => {
      this.#stop.abort();
      this.#wake();
    };
    const onSignal = (name: NodeJS.Signals) => {
      if (this.#stop.signal.aborted) process.exit(signals[name]);
      stop();
    };
    const signals: Partial<Record<NodeJS.Signals, number>> = { SIGINT: 130, SIGTERM: 143 };
    const names = Object.keys(signals) as NodeJS.Signals[];
    const release = () => {
      for (const name of names) process.off(name, onSignal);
      this.#callerSignal?.removeEventListener("abort", stop);
    };
    for (const name of names) process.on(name, onSignal);
    this.#callerSignal?.addEventListener("abort", stop);
    if (this.#callerSignal?.aborted) stop();
    return release;
  }

  get #kinds(): string[] {
    return [...this.#jobs.keys()];
  }

  async #register(): Promise<void> {
    const backoff = new Backoff();
    while (!this.#stop.signal.aborted) {
      try {
        const registered = await this.#http.post("/api/v1/executors/register", { kinds: this.#kinds, concurrency: this.#options.concurrency });
        this.#checkExecutor(registered.executor);
        if (registered.disabled.length > 0) {
          this.#options.log(`an operator disabled ${registered.disabled.join(", ")}; see towpath executor list`);
        }
        return;
      } catch (error) {
        if (isMayNotRegister(error) && this.#executor === undefined) {
          // An operator subscribes this executor instead; claims work as far as that goes.
          this.#options.log(`not registered: ${error.message}`);
          return;
        }
        this.#retryOrThrow(error);
        await sleep(backoff.pause(), this.#stop.signal);
      }
    }
  }

  #checkExecutor(registered: string): void {
    if (this.#executor === undefined || this.#executor === registered) return;
    throw new NotAuthorised("not_authorised", `the token belongs to the executor ${registered}, not to ${this.#executor}`, {
      hint: `create one with: towpath executor token create ${this.#executor} --register`,
    });
  }

  async #claimUntilStopped(): Promise<void> {
    const backoff = new Backoff();
    while (!this.#stop.signal.aborted) {
      if (this.#room < 1) {
        await this.#change();
        continue;
      }
      // Where one handler has ended, others end soon: a claim for many costs as much as a claim for one.
      if (2 * this.#room < this.#options.concurrency) await sleep(GATHER_MS, this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      const room = this.#room;
      try {
        const jobs = await this.#claim(Math.min(room, CLAIM_JOBS_MAX));
        backoff.reset();
        this.#trouble = "";
        if (this.#stop.signal.aborted) await this.#release(jobs);
        else for (const job of jobs) this.#begin(job);
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        this.#retryOrThrow(error);
        await sleep(backoff.pause(), this.#stop.signal);
      }
    }
  }

  /** Free places. Results that cannot be recorded take places too, so that they do not pile up. */
  get #room(): number {
    return this.#options.concurrency - this.#running - Math.max(0, this.#outbox.size - this.#options.concurrency);
  }

  async #claim(limit: number): Promise<ClaimedJob[]> {
    const abort = new AbortController();
    const stopped = () => void sleep(LAST_CLAIM_MS, abort.signal).then(() => abort.abort());
    this.#stop.signal.addEventListener("abort", stopped, { once: true });
    try {
      const asked = { kinds: this.#kinds, limit, wait_seconds: CLAIM_WAIT_SECONDS, lease_seconds: this.#options.leaseSeconds };
      const signals = { signal: abort.signal, timeoutSeconds: CLAIM_WAIT_SECONDS + 30 };
      return (await this.#http.post("/api/v1/jobs/claim", asked, signals)).jobs;
    } finally {
      this.#stop.signal.removeEventListener("abort", stopped);
      abort.abort();
    }
  }

  async #release(jobs: ClaimedJob[]): Promise<void> {
    if (jobs.length === 0) return;
    const leases = jobs.map(({ job_id, attempt }) => ({ job_id, attempt }));
    await this.#http.post("/api/v1/jobs/release", { jobs: leases });
  }

  #begin(claimed: ClaimedJob): void {
    const held = { lease: leaseOf(claimed), abort: new AbortController(), since: Date.now() };
    const job = this.#jobs.get(claimed.job_kind) as RunnableJob;
    this.#held.set(claimed.job_id, held);
    this.#running += 1;
    const { middleware } = this.#options;
    const attempt = { lease: held.lease, job, middleware, signal: held.abort.signal, http: this.#http };
    void runOne(claimed, attempt).then((outcome) => {
      this.#running -= 1;
      if (outcome.kind === "fail") this.#options.log(`${claimed.job_kind} ${claimed.job_id}, attempt ${claimed.attempt}: ${outcome.error}`);
      // Not if the lease was lost meanwhile.
      if (this.#held.get(claimed.job_id) === held) this.#outbox.set(held.lease, outcome);
      this.#wake();
      this.#recording ??= this.#record();
    });
  }

  /** Records outcomes until there are none: what ends while a call is in flight goes together into the next one. */
  async #record(): Promise<void> {
    const backoff = new Backoff();
    // Handlers that end in the same turn of the event loop are recorded together.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#outbox.size > 0 && !this.#end.signal.aborted) {
      try {
        await record(this.#http, [...this.#outbox.values()], (lease, lost) => this.#recorded(lease, lost));
        backoff.reset();
      } catch (error) {
        this.#say(error);
        await sleep(backoff.pause(), this.#end.signal);
      }
    }
    this.#recording = undefined;
    this.#wake();
  }

  #recorded(lease: Lease, lost: boolean): void {
    if (lost) this.#options.log(`lease lost: ${lease.job_id}, attempt ${lease.attempt}`);
    this.#forget(lease);
  }

  #forget(lease: Lease): void {
    this.#outbox.delete(lease);
    if (this.#held.get(lease.job_id)?.lease === lease) this.#held.delete(lease.job_id);
  }

  get #extendEvery(): number {
    return Math.min((this.#options.leaseSeconds * 1000) / 3, EXTEND_MS_MAX);
  }

  /** Extends the leases that are not fresh, and aborts the handlers of those that were lost. */
  async #extend(): Promise<void> {
    const asked = Date.now();
    const due = [...this.#held.values()].filter(({ since }) => asked - since >= this.#extendEvery / 2);
    for (let at = 0; at < due.length; at += EXTEND_JOBS_MAX) {
      const part = due.slice(at, at + EXTEND_JOBS_MAX);
      const jobs = part.map(({ lease: { job_id, attempt } }) => ({ job_id, attempt }));
      const answer = await this.#http.post("/api/v1/jobs/extend_many", { jobs, seconds: this.#options.leaseSeconds });
      const lost = new Set<string>(answer.lost);
      for (const held of part) {
        if (lost.has(held.lease.job_id)) this.#lose(held);
        else held.since = asked;
      }
    }
  }

  #lose(held: Held): void {
    const { job_id, attempt } = held.lease;
    // It may have been recorded while the extension was in flight.
    if (this.#held.get(job_id) !== held) return;
    this.#forget(held.lease);
    this.#options.log(`lease lost: ${job_id}, attempt ${attempt}`);
    held.abort.abort(new LeaseLost("lease_lost", `attempt ${attempt} of job ${job_id} is no longer yours; it was cancelled, or another worker has it`));
  }

  async #heartbeat(): Promise<void> {
    const metadata = { client: "typescript", concurrency: this.#options.concurrency, running: this.#running };
    await this.#http.post("/api/v1/jobs/heartbeat", { status: "ok", kinds: this.#kinds, metadata });
  }

  /** Until the end, now and then. A call that failed is made again the next time. */
  async #repeat(milliseconds: number, call: () => Promise<void>): Promise<void> {
    while (!this.#end.signal.aborted) {
      await call().catch((error: unknown) => this.#say(error));
      await sleep(milliseconds, this.#end.signal);
    }
  }

  async #drain(): Promise<void> {
    this.#stop.abort();
    const deadline = Date.now() + this.#options.drainSeconds * 1000;
    await this.#until(() => this.#running === 0, deadline);
    if (this.#running > 0) {
      for (const { abort } of this.#held.values()) abort.abort(new WorkerStops());
      await this.#until(() => this.#running === 0, Date.now() + ABORT_GRACE_MS);
    }
    await this.#until(() => this.#outbox.size === 0, Math.max(deadline, Date.now() + LAST_RECORD_MS));
    const left = this.#held.size;
    if (left > 0) this.#options.log(`stopped with ${left} unfinished jobs; they run again when their leases expire`);
  }

  async #until(good: () => boolean, deadline: number): Promise<void> {
    while (!good() && Date.now() < deadline) {
      const timeout = new AbortController();
      await Promise.race([this.#change(), sleep(deadline - Date.now(), timeout.signal)]);
      timeout.abort();
    }
  }

  /** The next time that a handler ends, results are recorded, or the worker is told to stop. */
  #change(): Promise<void> {
    return new Promise((resolve) => this.#changed.push(resolve));
  }

  #wake(): void {
    const waiting = this.#changed;
    this.#changed = [];
    for (const resolve of waiting) resolve();
  }

  /** A token that is refused, or a call that is wrong, stays so. All else passes: the server restarts, a gate opens. */
  #retryOrThrow(error: unknown): void {
    if (error instanceof NotAuthorised || error instanceof Invalid) throw error;
    this.#say(error);
  }

  #say(error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    if (text === this.#trouble) return;
    this.#trouble = text;
    this.#options.log(`waiting: ${text}`);
  }
}

/** Whether a token is valid but may not register; an invalid one is `unauthenticated`. */
export const isMayNotRegister = (error: unknown): error is NotAuthorised => error instanceof NotAuthorised && error.word === "not_authorised";

function workerName(): string {
  const host = process.env.HOSTNAME?.replace(/[^A-Za-z0-9._:-]/g, "-").slice(0, 40) || "node";
  return `${host}-${process.pid}`;
}
