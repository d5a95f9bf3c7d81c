// @towpath/client/react: a job and a stream as state of a component.
import { useCallback, useEffect, useMemo, useState } from "react";
import { sleep } from "./backoff.js";
import { followJob, followStream } from "./follow.js";
import { Client } from "./client.js";
import type { JobState, JobStatus } from "./status.js";

export interface UseOptions {
  /** A token that may read it, as from `client.jobToken`. */
  token?: string | undefined;
  /** The server; where the page comes from unless told. */
  url?: string | undefined;
}

/** A job as a component sees it. */
export interface FollowedJob<Result = unknown> {
  /** Undefined until the first answer. */
  state: JobState | undefined;
  percent: number | undefined;
  message: string | undefined;
  result: Result | undefined;
  /** Why the last attempt failed. */
  error: string | undefined;
  attempt: number | undefined;
  /** What the handler has appended so far. */
  chunks: readonly unknown[];
  /** Why the job cannot be followed. */
  problem: Error | undefined;
  /** Cancels the job, from whichever tab. */
  stop: (reason?: string) => Promise<void>;
}

/** Follows a job live, once there is an id and a token, until it has ended. Loaded again in the middle, it shows the same again. */
export function useJob<Result = unknown>(id: string | undefined, options: UseOptions = {}): FollowedJob<Result> {
  const { token, url } = options;
  const client = useMemo(() => token && new Client({ url: url ?? globalThis.location?.origin, token }), [url, token]);
  const [job, setJob] = useState<JobStatus>();
  const [chunks, setChunks] = useState<readonly unknown[]>([]);
  const [problem, setProblem] = useState<Error>();
  useEffect(() => {
    setJob(undefined);
    setChunks([]);
    setProblem(undefined);
    if (id === undefined || !client || !token) return;
    const abort = new AbortController();
    const unless = <Value>(set: (value: Value) => void) => (value: Value) => {
      if (!abort.signal.aborted) set(value);
    };
    followJob(id, { client, token, signal: abort.signal, onStatus: unless(setJob), onChunks: unless(setChunks) }).catch(unless(setProblem));
    return () => abort.abort();
  }, [id, client, token]);
  const stop = useCallback(
    async (reason?: string) => {
      if (id !== undefined && client) await client.cancel(id, reason);
    },
    [id, client],
  );
  return {
    state: job?.state,
    percent: job?.percent,
    message: job?.message,
    result: job?.result as Result | undefined,
    error: job?.error,
    attempt: job?.attempt,
    chunks,
    problem,
    stop,
  };
}

/** A stream as a component sees it. */
export interface FollowedStream<Item> {
  items: readonly Item[];
  /** Nothing will be appended any more. */
  closed: boolean;
  /** Why the stream cannot be followed. */
  problem: Error | undefined;
}

/** Tries again for as long as there is no such stream: it may be created by its first append. */
async function onceThere(follow: () => Promise<void>, signal: AbortSignal): Promise<void> {
  for (;;) {
    try {
      return await follow();
    } catch (error) {
      if ((error as { status?: unknown }).status !== 404 || signal.aborted) throw error;
      await sleep(1_000, signal);
    }
  }
}

/** Follows a stream of JSON, by its path or its full address, from its start. */
export function useStream<Item = unknown>(stream: string | undefined, options: UseOptions = {}): FollowedStream<Item> {
  const { token, url } = options;
  const [items, setItems] = useState<readonly Item[]>([]);
  const [closed, setClosed] = useState(false);
  const [problem, setProblem] = useState<Error>();
  useEffect(() => {
    setItems([]);
    setClosed(false);
    setProblem(undefined);
    if (stream === undefined) return;
    const abort = new AbortController();
    const { signal } = abort;
    const address = new URL(stream, url ?? globalThis.location?.origin).href;
    const follow = () => followStream<Item>(address, { token, signal }, (more) => setItems((before) => [...before, ...more]));
    onceThere(follow, signal).then(
      () => signal.aborted || setClosed(true),
      (error: Error) => signal.aborted || setProblem(error),
    );
    return () => abort.abort();
  }, [stream, url, token]);
  return { items, closed, problem };
}
