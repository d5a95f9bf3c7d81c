// The job of the shop, shared by the program that enqueues it and the one that runs it.
import { job } from "@towpath/client";
import { z } from "zod";

export const ship = job("shop.ship", z.object({ order: z.number(), parcels: z.number() }), { maxAttempts: 5 });
