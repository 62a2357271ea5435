// Requests to the API server, always as the user who sits before the page: with the token that was
// pasted, or with what the browser, kubectl proxy or another proxy adds.
//
//     const server = new Connection(location);
//     server.token = "…";                      in memory only; it ends with the page
//     await server.get("/api/v1/pods")          JSON; ApiError for what is refused
//     server.moment = "4711";                   reads are of that resourceVersion or time from now on
//
// A 401 is also told to onUnauthenticated, whoever asked: a token may end at any moment.

const LINE_CHARACTERS_MAX = 64 * 1024;
const ANSWER_MS = 60_000;
const REPEATED_MAX = 2;
const REPEATED_MS = 150;

/** What the server refused; `code` is HTTP's, 0 if the server was not reached. */
export class ApiError extends Error {
  constructor(code, status, text) {
    super(status?.message || text || `HTTP ${code}`);
    this.code = code;
    this.reason = status?.reason || "";
    this.details = status?.details || {};
    this.isLost = false; // whether the connection was lost, in the middle or before
  }
}

export class Connection {
  constructor(location) {
    this.root = location.pathname.replace(/\/ui\/.*$/, "/");
    this.origin = location.origin;
    this.token = "";
    this.moment = "";
    this.onUnauthenticated = () => undefined;
  }

  /** Return the address of a path; options.isPresent: whatever moment is looked at. */
  address(path, { isPresent = false } = {}) {
    const at = this.moment && !isPresent ? `at/${encodeURIComponent(this.moment)}/` : "";
    return this.root + at + path.replace(/^\//, "");
  }

  /** Return the answer to a request. One that changes nothing is repeated if the connection was lost. */
  async send(path, options = {}) {
    for (let turn = 0; ; turn += 1) {
      try {
        return await this.once(path, options);
      } catch (error) {
        const isRepeated = error instanceof ApiError && error.isLost && (!options.method || options.isHarmless);
        if (!isRepeated || turn >= REPEATED_MAX) throw error;
        await new Promise((resolve) => setTimeout(resolve, REPEATED_MS * 4 ** turn));
      }
    }
  }

  async once(path, options) {
    const headers = { Accept: options.accept || "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    if (options.type) headers["Content-Type"] = options.type;
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), options.timeoutMs || ANSWER_MS);
    const stop = () => late.abort();
    options.signal?.addEventListener("abort", stop);
    try {
      const answer = await reached(
        fetch(this.address(path, options), {
          method: options.method || "GET",
          headers,
          body: options.body,
          signal: late.signal,
          cache: "no-store",
          credentials: "same-origin",
          redirect: "error",
          referrerPolicy: "no-referrer",
        }),
        options.signal,
      );
      if (!answer.ok) throw await this.refusal(answer, options.signal);
      if (!options.isStream) return { answer, text: await reached(answer.text(), options.signal) };
      // The signal of the caller alone ends a stream, once it has begun.
      options.signal?.addEventListener("abort", () => late.abort());
      return { answer, text: "" };
    } finally {
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", stop);
    }
  }

  async refusal(answer, signal) {
    const text = await reached(answer.text(), signal);
    let status = null;
    try {
      status = JSON.parse(text);
    } catch {
      // An answer that is not JSON is shown as it is.
    }
    const error = new ApiError(answer.status, status, text.slice(0, 2000));
    if (answer.status === 401) this.onUnauthenticated(error);
    return error;
  }

  /** Return the JSON of a path. */
  async get(path, options) {
    return JSON.parse((await this.send(path, options)).text);
  }

  /** Send an object of the present; body: a text, or what becomes JSON. */
  async write(method, path, body, type = "application/json", options = {}) {
    const text = typeof body === "string" || body === undefined ? body : JSON.stringify(body);
    return this.get(path, {
      ...options,
      method,
      body: text,
      type: text === undefined ? undefined : type,
      isPresent: true,
    });
  }

  /** Yield the lines of an answer as they come; of a line that is too long its beginning, see `cut`. */
  async *lines(path, options = {}) {
    const { answer } = await this.send(path, { ...options, isStream: true });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const max = options.lineMax || LINE_CHARACTERS_MAX;
    let rest = "";
    let left = 0;
    try {
      for (;;) {
        const { done, value } = await reached(reader.read(), options.signal);
        if (done) break;
        const parts = value.split("\n");
        for (const [index, part] of parts.entries()) {
          const room = Math.max(0, max - rest.length);
          rest += part.length > room ? part.slice(0, room) : part;
          left += Math.max(0, part.length - room);
          if (index === parts.length - 1) break;
          yield cut(rest, left);
          rest = "";
          left = 0;
        }
      }
      if (rest) yield cut(rest, left);
    } finally {
      await reader.cancel().catch(() => undefined);
    }
  }
}

function cut(line, left) {
  return left ? `${line}… (${left} characters more)` : line;
}

/** Return what a step of an exchange gives; a connection that is lost in it is an ApiError. */
async function reached(step, signal) {
  try {
    return await step;
  } catch (error) {
    if (signal?.aborted) throw new DOMException("the view was left", "AbortError");
    if (error.name === "AbortError") throw new ApiError(0, null, "the API server does not answer in time");
    const lost = new ApiError(0, null, `the API server cannot be reached: ${error.message}`);
    lost.isLost = true;
    throw lost;
  }
}

/** Return a query string of the values that are not empty. */
export function query(values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== "" && each !== undefined) found.append(name, each);
  }
  const text = found.toString();
  return text && `?${text}`;
}
