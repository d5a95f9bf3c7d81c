// The jobs of the shop, shared by the program that enqueues them and the one that runs them.
import { Towpath } from "@towpath/client";
import { z } from "zod";

export const tp = new Towpath(); // TOWPATH_URL, TOWPATH_TOKEN
export const ship = tp.job("shop.ship", z.object({ order: z.number(), parcels: z.number() }));
