// The official Node server: `server.mjs PORT [DIRECTORY]`; without a directory it keeps
// streams in memory.
import { DurableStreamTestServer } from "@durable-streams/server"

const [port, dataDir] = process.argv.slice(2)
const server = new DurableStreamTestServer({ port: Number(port), host: "127.0.0.1", dataDir })
await server.start()
