// One row: `load.mjs PEER URL PID SUBSCRIBERS PUBLISHES`. A publish is over when every session
// has the message: one request to Towpath, an append to the source and N appends elsewhere.
import http from "node:http"
import { readFileSync } from "node:fs"

const [peer, base, pid, subscribersText, publishesText] = process.argv.slice(2)
const subscribers = Number(subscribersText)
// Large rounds of N appends take their time; a few say as much as many. One request takes a fraction of the
// hundredths in which CPU time is counted; only many say something.
const isTowpath = peer === "towpath"
const publishes = isTowpath ? Number(publishesText) * 100 : Math.max(1, Math.min(Number(publishesText), Math.ceil(50_000 / subscribers)))
const connections = 50
const agent = new http.Agent({ keepAlive: true, maxSockets: connections })
const payload = JSON.stringify({ text: "x".repeat(100) })

function ask(method, path, body) {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" }
    if (body !== undefined) headers["content-length"] = Buffer.byteLength(body)
    const request = http.request(base + path, { method, agent, headers }, (answer) => {
      answer.resume()
      answer.on("end", () => (answer.statusCode < 300 ? resolve(answer) : reject(new Error(`${method} ${path}: ${answer.statusCode}`))))
    })
    request.on("error", reject)
    request.end(body)
  })
}

async function each(count, work) {
  let next = 0
  const worker = async () => {
    while (next < count) await work(next++)
  }
  await Promise.all(Array.from({ length: Math.min(connections, count) }, worker))
}

// Clock ticks are hundredths of a second on Linux.
function cpuSeconds() {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ")
  return (Number(fields[11]) + Number(fields[12])) / 100
}

const session = (number) => `0190f5a4-5c2e-7bb0-9f33-${String(number).padStart(12, "0")}`
const source = isTowpath ? "/v1/default/publish/room" : "/v1/stream/room"
await ask("PUT", "/v1/stream/room")
const began = performance.now()
await each(subscribers, (number) =>
  isTowpath
    ? ask("POST", "/v1/default/subscribe", JSON.stringify({ sessionId: session(number), streamId: "room" }))
    : ask("PUT", `/v1/stream/session-${number}`),
)
const createMs = performance.now() - began

async function publish() {
  const answer = await ask("POST", source, payload)
  if (!isTowpath) return each(subscribers, (number) => ask("POST", `/v1/stream/session-${number}`, payload))
  const got = answer.headers["stream-fanout-successes"]
  if (Number(got) !== subscribers) throw new Error(`${got} of ${subscribers} sessions`)
}

await publish()
const times = []
const cpu = cpuSeconds()
for (let n = 0; n < publishes; n++) {
  const from = performance.now()
  await publish()
  times.push(performance.now() - from)
}
const cpuMs = ((cpuSeconds() - cpu) * 1000) / publishes
const at = (list, share) => {
  list.sort((one, other) => one - other)
  return Number(list[Math.min(list.length - 1, Math.floor(list.length * share))].toFixed(3))
}

// What a session reads is made when it is read, here; so that is measured too: one more message, read by up
// to a thousand sessions from where each was.
const readers = Math.min(subscribers, 1000)
const stream = (number) => (isTowpath ? `/v1/default/stream/session:${session(number)}` : `/v1/stream/session-${number}`)
const offsets = []
await each(readers, async (number) => {
  offsets[number] = (await ask("HEAD", stream(number))).headers["stream-next-offset"]
})
await publish()
const reads = []
const readCpu = cpuSeconds()
await each(readers, async (number) => {
  const from = performance.now()
  await ask("GET", `${stream(number)}?offset=${offsets[number]}`)
  reads.push(performance.now() - from)
})
const readCpuMs = ((cpuSeconds() - readCpu) * 1000) / readers
console.log(
  JSON.stringify({
    peer, subscribers, publishes, p50_ms: at(times, 0.5), p99_ms: at(times, 0.99), cpu_ms: Number(cpuMs.toFixed(3)),
    create_ms: Math.round(createMs), readers, read_p50_ms: at(reads, 0.5), read_cpu_ms: Number(readCpuMs.toFixed(3)),
  }),
)
agent.destroy()
