// Waiting longer after every failure in a row, with jitter, so that many workers do not come back at once.

const FIRST_MS = 200;
const MOST_MS = 10_000;

export class Backoff {
  #next = FIRST_MS;

  /** The calls work again. */
  reset(): void {
    this.#next = FIRST_MS;
  }

  /** Between half of the present pause and all of it, in milliseconds; the next pause is twice as long. */
  pause(): number {
    const pause = this.#next * (0.5 + Math.random() / 2);
    this.#next = Math.min(this.#next * 2, MOST_MS);
    return pause;
  }
}

/** Waits, or less if the signal says so. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done, { once: true });
  });
}
