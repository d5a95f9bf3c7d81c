"""Receives the shop's events as webhooks, and believes only those with a valid signature."""

import os
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["WEBHOOK_KEY"])


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = webhook.verify(body, {name.lower(): value for name, value in self.headers.items()})
        except WebhookVerificationError as error:
            print(f"refused: {error}", flush=True)
            self.send_response(401)
        else:
            print(f"verified {event['type']}: {event['data']['payload']}", flush=True)
            self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing of each request; do_POST does."""


server = HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "4600"))), Receiver)
print(f"receiving at http://127.0.0.1:{server.server_port}/events", flush=True)
server.serve_forever()
