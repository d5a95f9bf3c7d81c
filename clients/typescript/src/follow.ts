// Following a job: its state over HTTP until it has a stream, then its stream until that is closed.
//
// The stream is read from its start, so a page that is loaded again in the middle sees everything again.
import { sleep } from "./backoff.js";
import type { Client } from "./client.js";
import { NotAuthorised, NotFound } from "./errors.js";
import { hasEnded } from "./status.js";
import type { JobStatus } from "./status.js";

/** One message of a job's stream, in the State Protocol of Durable Streams. */
export type JobMessage =
  /** The job as it is now. */
  | { type: "job"; key: string; value: Pick<JobStatus, "state"> & Partial<Pick<JobStatus, "percent" | "message" | "result" | "attempt" | "error">> }
  /** What its handler appended. */
  | { type: "chunk"; key: string; value: unknown };

// Between two looks at a job that has no stream yet, or after a connection that failed.
const LOOK_MS = 500;

/** The messages of a job's stream until the job has ended. */
export async function* follow(client: Client, id: string, options: { offset?: string; signal?: AbortSignal }): AsyncGenerator<JobMessage> {
  // The stream exists from here on.
  const { token, stream } = await client.jobToken(id);
  const { stream: open } = await import("@durable-streams/client");
  const response = await open<JobMessage>({ ...source(client.url + stream, token, options.signal), offset: options.offset ?? "-1" });
  yield* response.jsonStream();
}

export interface Following {
  client: Client;
  token: string;
  signal: AbortSignal;
  /** The newest state of the job. */
  onStatus: (status: JobStatus) => void;
  /** Everything that the handler has appended so far. */
  onChunks: (chunks: readonly unknown[]) => void;
}

/** Follows one job with a token of its own until it has ended; throws if it is not there or must not be read. */
export async function followJob(id: string, { client, token, signal, onStatus, onChunks }: Following): Promise<void> {
  while (!signal.aborted) {
    try {
      const job = await client.job(id, { signal });
      onStatus(job);
      if (job.stream) await read(job, client.url + job.stream);
      else if (job.ended) return;
      if (job.stream) {
        const last = await client.job(id, { signal });
        onStatus(last);
        if (last.ended) return;
      }
    } catch (error) {
      if (error instanceof NotFound || error instanceof NotAuthorised) throw error;
    }
    await sleep(LOOK_MS, signal);
  }

  /** Reads a job's stream from its start until it is closed. */
  async function read(job: JobStatus, url: string): Promise<void> {
    let status = job;
    const chunks = new Map<string, unknown>();
    await followStream<JobMessage>(url, { token, signal }, (messages) => {
      let appended = false;
      for (const message of messages) {
        if (message.type === "chunk") chunks.set(message.key, message.value);
        else status = withEnd({ ...status, ...given(message.value) });
        appended ||= message.type === "chunk";
      }
      onStatus(status);
      if (appended) onChunks([...chunks.values()]);
    });
  }
}

const withEnd = (status: JobStatus): JobStatus => ({ ...status, ended: hasEnded(status.state) });

/** Without the fields that say nothing. */
function given<Value extends object>(value: Value): Value {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== null && field !== undefined)) as Value;
}

/** Reads a stream of JSON from its start, and on until it is closed or the signal is aborted. */
export async function followStream<Item>(
  url: string,
  { token, signal }: { token: string | undefined; signal: AbortSignal },
  onItems: (items: readonly Item[]) => void,
): Promise<void> {
  const { stream } = await import("@durable-streams/client");
  const response = await stream<Item>({ ...source(url, token, signal), offset: "-1" });
  response.subscribeJson((batch) => {
    if (!signal.aborted) onItems(batch.items);
  });
  await response.closed;
}

function source(url: string, token: string | undefined, signal: AbortSignal | undefined) {
  const headers: Record<string, string> = token === undefined ? {} : { Authorization: `Bearer ${token}` };
  return { url, headers, live: true as const, json: true, warnOnHttp: false, ...(signal ? { signal } : {}) };
}
