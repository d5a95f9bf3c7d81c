// Records what came of attempts, many with one call.
import { Invalid, LeaseLost } from "./errors.js";
import type { Http } from "./http.js";
import type { Lease, Outcome } from "./run.js";

type Ack = Extract<Outcome, { kind: "ack" }>;
type Fail = Extract<Outcome, { kind: "fail" }>;
type Snoozed = Extract<Outcome, { kind: "snooze" }>;

// What the server takes in one call: entries, and (with room for the rest) bytes.
const JOBS_MAX = 1_000;
const BYTES_MAX = 3 << 20;

/** Called for each attempt that needs no further call, with whether its lease was lost. */
type Recorded = (lease: Lease, lost: boolean) => void;

/**
 * Records outcomes, and tells `recorded` of each one. Throws when the server could not be asked: what `recorded`
 * was not called for is to be recorded again. That is safe: an attempt ends
 * once, and a repeated call finds its lease gone.
 */
export async function record(http: Http, outcomes: readonly Outcome[], recorded: Recorded): Promise<void> {
  const of = <Kind extends Outcome["kind"]>(kind: Kind) =>
    outcomes.filter((outcome): outcome is Extract<Outcome, { kind: Kind }> => outcome.kind === kind);
  for (const outcome of of("lost")) recorded(outcome.lease, true);
  const refusedAcks = await inBatches(of("ack"), ack, recorded);
  // An ack that is refused for its result would be refused again: the job fails, for good, with the reason.
  const fails = [...of("fail"), ...refusedAcks.map(({ outcome, error }): Fail => {
    return { lease: outcome.lease, kind: "fail", permanent: true, error: `the result was refused: ${error.message}` };
  })];
  for (const { outcome } of await inBatches(fails, fail, recorded)) recorded(outcome.lease, true);
  for (const outcome of of("snooze")) recorded(outcome.lease, await snooze(outcome));

  async function ack(batch: Ack[]): Promise<string[]> {
    const jobs = batch.map(({ lease, result }) => (result === undefined ? lease : { ...lease, result }));
    return (await http.post("/api/v1/jobs/ack_many", { jobs })).lost;
  }

  async function fail(batch: Fail[]): Promise<string[]> {
    const jobs = batch.map(({ lease: { job_id, attempt }, error, permanent, retryDelaySeconds }) => {
      return { job_id, attempt, error, permanent, ...(retryDelaySeconds === undefined ? {} : { retry_delay_seconds: retryDelaySeconds }) };
    });
    return (await http.post("/api/v1/jobs/fail_many", { jobs })).lost;
  }

  async function snooze({ lease: { job_id, attempt }, seconds, note }: Snoozed): Promise<boolean> {
    try {
      await http.post("/api/v1/jobs/snooze", { job_id, attempt, seconds: Math.ceil(seconds), note });
      return false;
    } catch (error) {
      // The lease is gone, or the time is not allowed: the job runs again when its lease expires.
      if (error instanceof LeaseLost || error instanceof Invalid) return true;
      throw error;
    }
  }
}

/** Sends batches. One bad entry has a whole batch refused, so those of a refused batch go one by one. */
async function inBatches<One extends Outcome>(
  outcomes: One[],
  send: (batch: One[]) => Promise<string[]>,
  recorded: Recorded,
): Promise<{ outcome: One; error: Invalid }[]> {
  const refused: { outcome: One; error: Invalid }[] = [];
  for (const batch of batches(outcomes)) {
    try {
      const lost = new Set(await send(batch));
      for (const outcome of batch) recorded(outcome.lease, lost.has(outcome.lease.job_id));
    } catch (error) {
      if (!(error instanceof Invalid)) throw error;
      const [outcome] = batch;
      if (batch.length === 1 && outcome) refused.push({ outcome, error });
      else for (const one of batch) refused.push(...(await inBatches([one], send, recorded)));
    }
  }
  return refused;
}

function* batches<One extends Outcome>(outcomes: One[]): Generator<One[]> {
  let batch: One[] = [];
  let bytes = 0;
  for (const outcome of outcomes) {
    const size = sizeOf(outcome);
    if (batch.length === JOBS_MAX || (batch.length > 0 && bytes + size > BYTES_MAX)) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(outcome);
    bytes += size;
  }
  if (batch.length > 0) yield batch;
}

/** At most so many bytes as JSON: a character is up to three of them. */
function sizeOf(outcome: Outcome): number {
  if (outcome.kind === "ack" && outcome.result !== undefined) return 200 + 3 * (JSON.stringify(outcome.result)?.length ?? 0);
  return outcome.kind === "fail" ? 200 + 6 * outcome.error.length : 200;
}
