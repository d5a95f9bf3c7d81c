// Calls of the HTTP API, typed by its OpenAPI document.
import { TowpathError, Unavailable, errorOf } from "./errors.js";
import type { paths } from "./openapi.js";

type Method = "get" | "post";
type Json<Content> = Content extends { content: { "application/json": infer Body } } ? Body : never;
/** The paths that take this method. */
type PathOf<Verb extends Method> = { [Path in keyof paths]: paths[Path][Verb] extends object ? Path : never }[keyof paths];

/** The body that a call takes. */
type Sent<Path extends PathOf<"post">> = paths[Path]["post"] extends { requestBody?: infer Body } ? Json<NonNullable<Body>> : never;
/** The answer of a call that succeeded. */
export type Answer<Verb extends Method, Path extends PathOf<Verb>> = paths[Path][Verb] extends { responses: infer Responses }
  ? { [Status in keyof Responses & (200 | 201)]: Json<Responses[Status]> }[keyof Responses & (200 | 201)]
  : never;

export interface CallOptions {
  /** Values for the `{names}` in the path. */
  path?: Record<string, string>;
  query?: Record<string, string | number | undefined>;
  signal?: AbortSignal | undefined;
  /** Gives up after this time; 30 seconds unless told. */
  timeoutSeconds?: number;
}

export class Http {
  readonly url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, token: string | undefined, headers: Record<string, string> = {}) {
    this.url = url.replace(/\/+$/, "");
    this.#headers = { ...headers, ...(token === undefined ? {} : { authorization: `Bearer ${token}` }) };
  }

  /** The same server and token, with more headers. */
  with(headers: Record<string, string>): Http {
    return new Http(this.url, undefined, { ...this.#headers, ...headers });
  }

  post<Path extends PathOf<"post">>(path: Path, body: Sent<Path>, options: CallOptions = {}): Promise<Answer<"post", Path>> {
    return this.#call("POST", path, body, options) as Promise<Answer<"post", Path>>;
  }

  get<Path extends PathOf<"get">>(path: Path, options: CallOptions = {}): Promise<Answer<"get", Path>> {
    return this.#call("GET", path, undefined, options) as Promise<Answer<"get", Path>>;
  }

  async #call(method: string, path: string, body: unknown, options: CallOptions): Promise<unknown> {
    const target = new URL(this.url + path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(options.path?.[name] ?? "")));
    for (const [name, value] of Object.entries(options.query ?? {})) {
      if (value !== undefined) target.searchParams.set(name, String(value));
    }
    const timeout = AbortSignal.timeout((options.timeoutSeconds ?? 30) * 1000);
    const request: RequestInit = {
      method,
      headers: body === undefined ? this.#headers : { ...this.#headers, "content-type": "application/json" },
      signal: options.signal ? AbortSignal.any([options.signal, timeout]) : timeout,
    };
    if (body !== undefined) request.body = JSON.stringify(body);
    let response: Response;
    let text: string;
    try {
      response = await fetch(target, request);
      text = await response.text();
    } catch (cause) {
      options.signal?.throwIfAborted();
      throw new Unavailable("unavailable", `${this.url} does not answer: ${reason(cause)}`, {
        hint: "start the server, or set TOWPATH_URL to where it listens",
        cause,
      });
    }
    return read(response, text);
  }
}

/** The answer of a call that succeeded; throws the refusal of another. */
function read(response: Response, text: string): unknown {
  let answer: { error?: unknown; detail?: unknown; hint?: unknown } = {};
  try {
    answer = JSON.parse(text) as typeof answer;
  } catch {
    if (response.ok) throw new TowpathError("malformed", `${response.url} did not answer JSON; is it Towpath's address?`);
  }
  if (response.ok) return answer;
  if (typeof answer.error !== "string") {
    const passing = response.status >= 500 || response.status === 429;
    throw errorOf(passing ? "unavailable" : "invalid", `${response.url} answered ${response.status}: ${text.slice(0, 200)}`);
  }
  const hint = typeof answer.hint === "string" ? answer.hint : undefined;
  throw errorOf(answer.error, typeof answer.detail === "string" ? answer.detail : answer.error, { hint });
}

/** Why a fetch failed. Node says only "fetch failed" and keeps the reason in the cause. */
function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? error.cause.message || String((error.cause as { code?: unknown }).code) : error.message;
}
