// Following a job: its state over HTTP until it has a stream, then its stream until that is closed.
//
// The stream is read from its start, so a page that is loaded again in the middle sees everything again.
import { sleep } from "./backoff.js";
import { NotAuthorised, NotFound } from "./errors.js";
import type { Jobs, JobState } from "./jobs.js";
import { hasEnded } from "./jobs.js";

/** One message of a job's stream, in the State Protocol of Durable Streams. */
type Message =
  | { type: "job"; key: string; value: Partial<Pick<JobState, "state" | "percent" | "message" | "result" | "attempt" | "error">> }
  | { type: "chunk"; key: string; value: unknown };

export interface Following {
  jobs: Jobs;
  token: string | undefined;
  signal: AbortSignal;
  /** The newest state of the job. */
  onState: (state: JobState) => void;
  /** Everything that the handler has appended so far. */
  onChunks: (chunks: readonly unknown[]) => void;
}

// Between two looks at a job that has no stream yet, or after a connection that failed.
const LOOK_MS = 500;

/** Follows one job until it has ended; throws if it is not there or must not be read. */
export async function followJob(id: string, { jobs, token, signal, onState, onChunks }: Following): Promise<void> {
  while (!signal.aborted) {
    try {
      const job = await jobs.get(id, { signal });
      onState(job);
      if (job.stream) await read(job, job.stream);
      else if (hasEnded(job.state)) return;
      if (job.stream) {
        const last = await jobs.get(id, { signal });
        onState(last);
        if (hasEnded(last.state)) return;
      }
    } catch (error) {
      if (error instanceof NotFound || error instanceof NotAuthorised) throw error;
    }
    await sleep(LOOK_MS, signal);
  }

  /** Reads a job's stream from its start until it is closed. */
  async function read(job: JobState, url: string): Promise<void> {
    let state = job;
    const chunks = new Map<string, unknown>();
    await followStream<Message>(url, { token, signal }, (messages) => {
      let appended = false;
      for (const message of messages) {
        if (message.type === "chunk") chunks.set(message.key, message.value);
        else state = { ...state, ...given(message.value) };
        appended ||= message.type === "chunk";
      }
      onState(state);
      if (appended) onChunks([...chunks.values()]);
    });
  }
}

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
  const headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
  const response = await stream<Item>({ url, offset: "-1", live: true, json: true, headers, signal, warnOnHttp: false });
  response.subscribeJson((batch) => {
    if (!signal.aborted) onItems(batch.items);
  });
  await response.closed;
}
