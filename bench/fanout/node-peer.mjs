// The official Node server, in memory: `node-peer.mjs PORT`.
import { DurableStreamTestServer } from "@durable-streams/server"

const server = new DurableStreamTestServer({ port: Number(process.argv[2]), host: "127.0.0.1" })
await server.start()
