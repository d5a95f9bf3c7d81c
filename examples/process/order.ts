// An order, in TypeScript: pay, wait for the signal `shipped` or three days, send an e-mail. Kill it at any moment.
//
//     psql -v ON_ERROR_STOP=1 -f order.sql "$(towpath db url)"    # the table, and the kind of the e-mail
//     towpath process kind shop.typescript_order
//     TOWPATH_URL=… TOWPATH_TOKEN=… DATABASE_URL=… node order.js
import { work } from "@towpath/client";
import { process as defineProcess } from "@towpath/client/process";
import pg from "pg";

interface Order {
  cents: number;
  email: string;
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });

/** Stands for a payment service that takes each key once. */
async function pay(ref: string, cents: number): Promise<{ paid: number }> {
  await pool.query("insert into shop.payment values ($1, $2) on conflict do nothing", [ref, cents]);
  return { paid: cents };
}

const order = defineProcess("shop.typescript_order", async (input: Order, steps) => {
  await steps.step("pay", () => pay(steps.ref, input.cents));
  const shipped = await steps.waitFor<{ parcel: string }>("shipped", { timeoutSeconds: 3 * 86_400 });
  const message = {
    to: input.email,
    from: "shop@example.com",
    subject: `Your order ${steps.ref}`,
    text: shipped ? `It is on its way: ${shipped.parcel}` : "It is late. We are looking for it.",
  };
  const mail = await steps.child("mail", "shop.order_mail", `typescript:${steps.ref}`, message);
  return { shipped: shipped !== undefined, mail: mail.state };
});

await work([order]);
await pool.end();
