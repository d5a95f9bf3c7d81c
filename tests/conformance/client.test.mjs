// S02: the official TypeScript client works unchanged, also below a project's path.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { expect, test } from "vitest"

const base = process.env.STREAMS_URL
const fresh = (path) => `${base}${path}/client-${Date.now()}-${Math.random().toString(36).slice(2)}`

for (const path of ["/v1/stream", "/v1/shop/stream"]) {
  test(`${path}: creates, appends, reads and deletes`, async () => {
    const handle = await DurableStream.create({ url: fresh(path), contentType: "application/json", ttlSeconds: 60 })
    await handle.append(JSON.stringify({ n: 1 }))
    await handle.append(JSON.stringify({ n: 2 }))
    const read = await stream({ url: handle.url, live: false })
    expect(await read.json()).toEqual([{ n: 1 }, { n: 2 }])
    const head = await DurableStream.head({ url: handle.url })
    expect(head.contentType).toBe("application/json")
    await DurableStream.delete({ url: handle.url })
    expect((await DurableStream.head({ url: handle.url })).exists).toBe(false)
  })

  for (const live of ["long-poll", "sse"]) {
    test(`${path}: follows a stream by ${live} to its end`, async () => {
      const handle = await DurableStream.create({ url: fresh(path), contentType: "application/json" })
      const read = await stream({ url: handle.url, offset: "-1", live })
      const seen = []
      const done = new Promise((resolve, reject) => {
        read.subscribeJson(async (batch) => {
          seen.push(...batch.items)
          if (seen.length === 20) resolve()
        })
        read.closed.catch(reject)
      })
      for (let n = 0; n < 20; n += 1) await handle.append(JSON.stringify({ n }))
      await done
      expect(seen.map((item) => item.n)).toEqual([...Array(20).keys()])
      read.cancel()
    })
  }

  test(`${path}: text followed by sse is the text that was appended`, async () => {
    const handle = await DurableStream.create({ url: fresh(path), contentType: "text/plain" })
    const sent = ["plain\n", "  two spaces\n", " \n", ": a colon\n", "data: event: \n\n", "\u0000 NUL \u20ac\n", "end"]
    for (const text of sent) await handle.append(text)
    const read = await stream({ url: handle.url, offset: "-1", live: "sse" })
    let seen = ""
    await new Promise((resolve, reject) => {
      read.subscribeText(async (chunk) => {
        seen += chunk.text
        if (seen.endsWith("end")) resolve()
      })
      read.closed.catch(reject)
    })
    expect(seen).toBe(sent.join(""))
    read.cancel()
  })

  test(`${path}: takes an idempotent producer's pipelined batches once each`, async () => {
    const handle = await DurableStream.create({ url: fresh(path), contentType: "application/json" })
    const failures = []
    const producer = new IdempotentProducer(handle, "writer", { autoClaim: true, onError: (e) => failures.push(e) })
    for (let n = 0; n < 500; n += 1) producer.append(JSON.stringify({ n }))
    await producer.flush()
    await producer.close()
    expect(failures).toEqual([])
    const read = await stream({ url: handle.url, live: false })
    expect((await read.json()).map((item) => item.n)).toEqual([...Array(500).keys()])
  })
}
