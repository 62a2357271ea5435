// Lists in pages and their watches, as Tables or as objects.

import { ApiError, query } from "./connection.js";

export const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io, application/json";
const PAGE = 500;
const EVENT_CHARACTERS_MAX = 32 * 1024 * 1024;

/** Return a whole list in pages; onPage(page) is called with each, and ends the reading by `false`. */
export async function list(server, path, values = {}, { accept, signal, isPresent, onPage } = {}) {
  let next = "";
  let whole = null;
  do {
    const page = asTable(
      await server.get(path + query({ ...values, limit: PAGE, continue: next }), { accept, signal, isPresent }),
      accept,
    );
    const key = page.rows === undefined ? "items" : "rows";
    page[key] ||= [];
    const goesOn = onPage?.(page);
    if (whole === null) whole = page;
    else {
      if (!onPage) for (const each of page[key]) whole[key].push(each);
      whole.metadata = page.metadata;
    }
    if (goesOn === false) return whole;
    next = page.metadata?.continue || "";
  } while (next);
  return whole;
}

/** Return a list that came as objects, since its server knows no Tables, as a Table with names. */
function asTable(page, accept) {
  if (accept !== TABLE || page.kind === "Table") return page;
  return {
    metadata: page.metadata,
    columnDefinitions: [
      { name: "Name", priority: 0 },
      { name: "Age", priority: 0 },
    ],
    rows: (page.items || []).map(asRow),
  };
}

function asRow(object) {
  return { cells: [object.metadata.name, ""], object: { metadata: object.metadata } };
}

/** Yield the events of a watch from a resourceVersion on; ends when the server ends it. */
export async function* watch(server, path, values, version, { signal, accept = TABLE, ...more } = {}) {
  const asked = { ...values, watch: "1", resourceVersion: version, allowWatchBookmarks: "true" };
  if (accept === TABLE) asked.includeObject = "Metadata";
  const options = { accept, signal, lineMax: EVENT_CHARACTERS_MAX, ...more };
  for await (const line of server.lines(path + query(asked), options)) {
    if (!line) continue;
    let event;
    try {
      event = JSON.parse(line);
    } catch {
      throw new ApiError(0, null, "a watch was cut off in the middle of an event");
    }
    if (event.type === "ERROR") throw new ApiError(event.object.code || 500, event.object);
    if (accept === TABLE && event.object.kind !== "Table" && event.type !== "BOOKMARK") {
      event.object = { rows: [asRow(event.object)] };
    }
    yield event;
  }
}
