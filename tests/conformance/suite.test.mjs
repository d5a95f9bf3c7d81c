// S01: the official suite, unmodified. Its own command finds no tests when it is installed as a
// dependency, so it is called from here.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({
  baseUrl: process.env.STREAMS_URL,
  longPollTimeoutMs: Number(process.env.STREAMS_LONG_POLL_MS),
  subscriptions: true,
})
