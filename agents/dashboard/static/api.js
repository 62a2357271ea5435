// Requests to the API server, always as the user who sits before the page: with the token that was
// pasted, or with what the browser, kubectl proxy or another proxy adds. The token is kept in memory
// only and ends with the page.

const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io";
const DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PAGE = 500;

let token = "";
let moment = "";

/** Take a bearer token; "" forgets it. */
export function setToken(text) {
  token = text;
}

/** Look at a resourceVersion or a time instead of the present; "" is the present. */
export function setMoment(text) {
  moment = text;
}

export function getMoment() {
  return moment;
}

/** What the server refused; `code` is HTTP's, 0 if the server was not reached. */
export class ApiError extends Error {
  constructor(code, status, text) {
    super(status?.message || text || `HTTP ${code}`);
    this.code = code;
    this.reason = status?.reason || "";
  }
}

function address(path) {
  const root = location.pathname.replace(/\/ui\/.*$/, "/");
  return root + (moment ? `at/${encodeURIComponent(moment)}/` : "") + path.replace(/^\//, "");
}

async function send(path, options = {}) {
  const headers = { Accept: options.accept || "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (options.type) headers["Content-Type"] = options.type;
  const answer = await reached(fetch(address(path), {
    method: options.method || "GET", headers, body: options.body, signal: options.signal,
    cache: "no-store", credentials: "same-origin", redirect: "error",
  }));
  if (answer.ok) return answer;
  const text = await reached(answer.text());
  let status = null;
  try {
    status = JSON.parse(text);
  } catch {
    // An answer that is not JSON is shown as it is.
  }
  throw new ApiError(answer.status, status, text);
}

/** Return what a step of an exchange gives; a connection that is lost in it, be it late in an answer, is an ApiError. */
async function reached(step) {
  try {
    return await step;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, null, `the API server cannot be reached: ${error.message}`);
  }
}

/** Return the JSON of a path. */
export async function get(path, options) {
  return JSON.parse(await reached((await send(path, options)).text()));
}

/** Send an object; body: a text, or what becomes JSON. */
export async function write(method, path, body, type = "application/json", options = {}) {
  const text = typeof body === "string" ? body : body === undefined ? undefined : JSON.stringify(body);
  return get(path, { ...options, method, body: text, type: text === undefined ? undefined : type });
}

/** Yield the lines of an answer as they come. */
export async function* lines(path, options) {
  const reader = (await send(path, options)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reached(reader.read());
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
    if (rest) yield rest;
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function query(values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value) found.set(name, value);
  const text = found.toString();
  return text && `?${text}`;
}

/** Return a whole list in pages; onPage(page) is called with each of them. */
export async function list(path, values = {}, { accept, signal, onPage } = {}) {
  let next = "";
  let whole = null;
  do {
    const page = await get(path + query({ ...values, limit: PAGE, continue: next }), { accept, signal });
    const key = page.rows === undefined ? "items" : "rows";
    if (whole === null) whole = page;
    else {
      for (const each of page[key] || []) whole[key].push(each);
      whole.metadata = page.metadata;
    }
    whole[key] ||= [];
    onPage?.(page);
    next = page.metadata?.continue || "";
  } while (next);
  return whole;
}

/** Return a list as a Table whose rows have the objects' metadata. */
export function table(path, values, options) {
  return list(path, { ...values, includeObject: "Metadata" }, { ...options, accept: TABLE });
}

/** Yield the events of a watch from a resourceVersion on; ends when the server ends it. */
export async function* watch(path, values, version, signal, accept = TABLE) {
  const asked = { ...values, watch: "1", resourceVersion: version, allowWatchBookmarks: "true" };
  if (accept === TABLE) asked.includeObject = "Metadata";
  for await (const line of lines(path + query(asked), { accept, signal })) {
    if (!line) continue;
    const event = JSON.parse(line);
    if (event.type === "ERROR") throw new ApiError(event.object.code || 500, event.object);
    yield event;
  }
}

/** Return who the server takes the user for. */
export async function whoAmI() {
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  const now = moment;
  moment = "";
  try {
    return (await write("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)).status.userInfo;
  } finally {
    moment = now;
  }
}

/** Return whether the user may do something: {verb, group, resource, namespace, name, subresource}. */
export async function may(attributes) {
  const review = {
    apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview",
    spec: { resourceAttributes: attributes },
  };
  return (await write("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)).status.allowed;
}

/** Return every kind that can be listed, of the preferred version of its group. */
export async function kinds() {
  const found = [];
  for (const path of ["/api", "/apis"]) {
    const answer = await get(path, { accept: DISCOVERY });
    for (const group of answer.items || []) {
      const seen = new Set();
      for (const version of group.versions || []) {
        for (const each of version.resources || []) {
          if (seen.has(each.resource) || !each.verbs.includes("list")) continue;
          seen.add(each.resource);
          found.push({
            group: group.metadata?.name || "", version: version.version, resource: each.resource,
            kind: each.responseKind?.kind || each.resource, namespaced: each.scope === "Namespaced",
            verbs: each.verbs, short: each.shortNames || [],
            sub: (each.subresources || []).map((one) => one.subresource),
          });
        }
      }
    }
  }
  return found;
}

/** Return the path of a kind, of its objects in a namespace, or of one object. */
export function pathOf(kind, namespace = "", name = "", sub = "") {
  const parts = kind.group ? ["apis", kind.group, kind.version] : ["api", kind.version];
  if (namespace && kind.namespaced) parts.push("namespaces", namespace);
  parts.push(kind.resource);
  if (name) parts.push(name);
  if (sub) parts.push(sub);
  return `/${parts.map(encodeURIComponent).join("/")}`;
}
