// S02: the libraries that people follow streams with, each at its real work against the program: a reload in the middle, a
// reconnect after the server was killed, two tabs. The versions are those of package.json; the last test prints them.
//
// The official client repeats long polls by itself. When a connection of server-sent events breaks, it ends with an error,
// and its user connects again, from the offset it has.
import { spawn } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { createServer } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createDurableChatTransport, toDurableStreamResponse } from "@durable-streams/aisdk-transport"
import { DurableStream } from "@durable-streams/client"
import { createStateSchema } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"
import {
  durableStreamConnection,
  materializeSnapshotFromDurableStream,
  toDurableChatSessionResponse,
} from "@durable-streams/tanstack-ai-transport"
import { YjsProvider } from "@durable-streams/y-durable-streams"
import { YjsServer } from "@durable-streams/y-durable-streams/server"
import * as aiPrevious from "ai"
import * as aiCurrent from "ai-current"
import { afterAll, beforeAll, expect, test } from "vitest"
import * as Y from "yjs"

const data = mkdtempSync(join(tmpdir(), "towpath-interop-"))
let server, listen = "127.0.0.1:0", base

async function start() {
  const isOurs = ([name]) => !name.startsWith("TOWPATH_") && name !== "DATABASE_URL"
  const env = Object.fromEntries(Object.entries(process.env).filter(isOurs))
  server = spawn(process.env.STREAMS_BIN, ["serve", "--json", "--listen", listen, "--data", data], { env })
  base = await new Promise((resolve, reject) => {
    let said = ""
    server.stdout.on("data", (piece) => {
      const ready = (said += piece).match(/"ready": *"([^"]+)"/)
      if (ready) resolve(ready[1])
    })
    server.on("exit", (status) => reject(new Error(`the server ended with ${status}`)))
  })
  listen = base.replace("http://", "")
}

async function kill() {
  if (server.exitCode !== null) return
  const ended = new Promise((resolve) => server.on("exit", resolve))
  server.kill("SIGKILL")
  await ended
}

async function restart() {
  await kill()
  await start()
}

async function until(what, good) {
  for (const deadline = Date.now() + 60_000; !(await good()); ) {
    if (Date.now() > deadline) throw new Error(`never: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

// A promise and its end: what a source waits for in the middle.
const gate = () => {
  let open
  const opened = new Promise((resolve) => (open = resolve))
  return { open, opened }
}

// A web application whose handler takes a Request and returns a Response.
async function application(handler) {
  const app = createServer(async (incoming, outgoing) => {
    const pieces = []
    for await (const piece of incoming) pieces.push(piece)
    const url = `http://${incoming.headers.host}${incoming.url}`
    const body = pieces.length ? Buffer.concat(pieces) : undefined
    const answer = await handler(new Request(url, { method: incoming.method, headers: incoming.headers, body }))
    outgoing.writeHead(answer.status, Object.fromEntries(answer.headers)).end(Buffer.from(await answer.arrayBuffer()))
  })
  await new Promise((resolve) => app.listen(0, "127.0.0.1", resolve))
  return { url: `http://127.0.0.1:${app.address().port}`, end: () => app.close() }
}

beforeAll(start, 60_000)
afterAll(async () => {
  await kill()
  rmSync(data, { recursive: true })
})

test("state with TanStack DB: two tabs, a killed server, a reload", { timeout: 120_000 }, async () => {
  const any = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } }
  const state = createStateSchema({ orders: { schema: any, type: "order", primaryKey: "id" } })
  const streamOptions = { url: `${base}/v1/stream/orders`, contentType: "application/json" }
  const writer = await DurableStream.create(streamOptions)
  const change = (event) => writer.append(JSON.stringify(event))
  const tab = async () => {
    const db = createStreamDB({ streamOptions, state, live: "long-poll" })
    await db.preload()
    return db
  }
  const rows = (db) => Object.fromEntries([...db.collections.orders.state].map(([id, row]) => [id, row.total]))
  const shows = (db, expected) => until(`it shows ${JSON.stringify(expected)}`, () => JSON.stringify(rows(db)) === JSON.stringify(expected))

  await change(state.orders.insert({ value: { id: "a", total: 1 } }))
  const tabs = [await tab(), await tab()]
  await change(state.orders.insert({ value: { id: "b", total: 2 } }))
  for (const db of tabs) await shows(db, { a: 1, b: 2 })
  await restart()
  await change(state.orders.update({ value: { id: "a", total: 3 } }))
  await change(state.orders.delete({ key: "b", oldValue: { id: "b", total: 2 } }))
  for (const db of tabs) await shows(db, { a: 3 })
  const reloaded = await tab()
  await shows(reloaded, { a: 3 })
  for (const db of [...tabs, reloaded]) db.close()
})

for (const [name, ai] of [["current", aiCurrent], ["previous", aiPrevious]]) {
  test(`aisdk-transport with the ${name} AI SDK: a reload and a killed server in one answer`, { timeout: 120_000 }, async () => {
    const middle = gate()
    const path = `/v1/stream/chat-${name}`
    const generate = () =>
      ai.createUIMessageStream({
        async execute({ writer }) {
          writer.write({ type: "start", messageId: "m1" })
          writer.write({ type: "text-start", id: "t" })
          for (const delta of ["It ", "goes "]) writer.write({ type: "text-delta", id: "t", delta })
          await middle.opened
          writer.write({ type: "text-delta", id: "t", delta: "on." })
          writer.write({ type: "text-end", id: "t" })
          writer.write({ type: "finish" })
        },
      })
    const app = await application(async (request) => {
      if (request.method === "GET") return Response.json({ streamUrl: base + path }, { headers: { location: base + path } })
      return toDurableStreamResponse({ source: generate(), stream: { writeUrl: base + path } })
    })
    const transport = createDurableChatTransport({ api: `${app.url}/api/chat` })
    const question = { id: "q", role: "user", parts: [{ type: "text", text: "Does it?" }] }
    // The text of the answer as it grows.
    const read = async (stream, enough) => {
      let text = ""
      for await (const message of ai.readUIMessageStream({ stream })) {
        text = message.parts.filter((part) => part.type === "text").map((part) => part.text).join("")
        if (enough(text)) break
      }
      return text
    }
    const leave = new AbortController()
    const first = await transport.sendMessages({
      trigger: "submit-message", chatId: "c", messages: [question], abortSignal: leave.signal,
    })
    expect(await read(first, (text) => text === "It goes ")).toBe("It goes ")
    leave.abort()

    const reload = async () => read(await transport.reconnectToStream({ chatId: "c" }), () => false)
    const tabs = [reload(), reload()].map((text) => text.catch(reload))
    await restart()
    middle.open()
    expect(await Promise.all(tabs)).toEqual(["It goes on.", "It goes on."])
    app.end()
  })
}

test("tanstack-ai-transport: two tabs, a killed server, a reload", { timeout: 120_000 }, async () => {
  const middle = gate()
  const stream = `${base}/v1/stream/session`
  async function* answer() {
    yield { type: "TEXT_MESSAGE_START", messageId: "a1", role: "assistant" }
    yield { type: "TEXT_MESSAGE_CONTENT", messageId: "a1", delta: "It goes " }
    await middle.opened
    yield { type: "TEXT_MESSAGE_CONTENT", messageId: "a1", delta: "on." }
    yield { type: "TEXT_MESSAGE_END", messageId: "a1" }
  }
  const app = await application(async (request) => {
    const { messages } = await request.json()
    return toDurableChatSessionResponse({ stream: { writeUrl: stream }, newMessages: messages, responseStream: answer() })
  })
  await DurableStream.create({ url: stream, contentType: "application/json" })
  const leave = new AbortController()
  const tab = () => {
    const connection = durableStreamConnection({ sendUrl: app.url, readUrl: stream, emitSnapshotOnSubscribe: false })
    const seen = { text: "", connection }
    const follow = async () => {
      for await (const chunk of connection.subscribe(leave.signal)) {
        if (chunk.type === "TEXT_MESSAGE_CONTENT" && chunk.messageId === "a1") seen.text += chunk.delta
      }
    }
    seen.done = follow().catch(() => leave.signal.aborted || follow()).catch((error) => leave.signal.aborted || Promise.reject(error))
    return seen
  }
  const tabs = [tab(), tab()]
  const sent = tabs[0].connection.send([{ id: "q1", role: "user", parts: [{ type: "text", content: "Does it?" }] }])
  await until("both tabs have half of the answer", () => tabs.every((seen) => seen.text === "It goes "))
  await restart()
  middle.open()
  await sent
  await until("both tabs have the answer once", () => tabs.every((seen) => seen.text === "It goes on."))
  leave.abort()
  await Promise.all(tabs.map((seen) => seen.done))
  const { messages } = await materializeSnapshotFromDurableStream({ readUrl: stream })
  expect(messages.map(({ id, role }) => ({ id, role }))).toEqual([{ id: "q1", role: "user" }, { id: "a1", role: "assistant" }])
  app.end()
})

// Its own server stands between. That leaves server-sent events open when the streams behind it break, hence long polls.
test("y-durable-streams: two editors, a killed server, a reload", { timeout: 120_000 }, async () => {
  const documents = new YjsServer({ port: 0, host: "127.0.0.1", dsServerUrl: base })
  await documents.start()
  const editor = async () => {
    const doc = new Y.Doc()
    const provider = new YjsProvider({ doc, baseUrl: `${documents.url}/v1/yjs/notes`, docId: "page", liveMode: "long-poll" })
    await until("it is synced", () => provider.synced)
    return { doc, provider, text: doc.getText("body") }
  }
  const [one, other] = [await editor(), await editor()]
  one.text.insert(0, "Hello ")
  await until("the other editor sees it", () => other.text.toString() === "Hello ")
  await one.provider.flush()
  await restart()
  other.text.insert(6, "world")
  await until("it comes back", () => one.text.toString() === "Hello world")
  const reloaded = await editor()
  expect(reloaded.text.toString()).toBe("Hello world")
  for (const { provider } of [one, other, reloaded]) provider.destroy()
  await documents.stop()
})

test("the versions", () => {
  const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)))
  console.log(Object.entries(dependencies).map(([name, version]) => `${name} ${version}`).join("\n"))
})
