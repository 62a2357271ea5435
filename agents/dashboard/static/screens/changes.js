// What changed, newest first, up to the moment that is looked at: each line is a revision, and leads
// to the cluster as it was with it.
//
// The changes come from watches that begin at an old resourceVersion, one for each kind, with the
// user's rights; times are those of the server's notes (/at). Kinds that the user may not watch are
// left out, and those that change all the time (Events, Leases) unless they are asked for.

import { ApiError, query } from "../server/connection.js";
import { watch } from "../server/lists.js";
import { pathOf } from "../server/kinds.js";
import { el, fill } from "../parts/elements.js";
import { Grid } from "../parts/grid.js";
import { clock, rfc3339 } from "../text/times.js";

const SPANS = { "10 minutes": 600, "an hour": 3600, "a minute": 60, "a day": 86_400 };
const KEPT_MAX = 5000;
const KIND_MAX = 2000;
const EVENTS_MAX = 50_000; // that are read of one kind
const AT_ONCE = 16;
const BUSY = ["events", "leases", "endpoints", "endpointslices"];
const WORDS = { ADDED: "created", MODIFIED: "changed", DELETED: "deleted" };
const TONES = { created: "good", changed: "", deleted: "bad" };

export function changes(app, view) {
  const { moment, namespace } = app.route;
  const span = el(
    "select",
    { id: "span", "aria-label": "How long", onchange: () => read() },
    Object.keys(SPANS).map((name) => el("option", {}, name)),
  );
  const all = el("input", { type: "checkbox", id: "all", onchange: () => read() });
  const filter = el("input", {
    type: "search",
    id: "filter",
    placeholder: "filter ( / )",
    "aria-label": "Filter",
    autocomplete: "off",
    oninput: () => draw(),
  });
  const state = el("span", { class: "quiet", id: "count", role: "status" });
  const open = (row) => {
    location.hash = app.href({
      moment: String(row.revision),
      ...row.kind,
      view: "object",
      of: row.namespace,
      name: row.name,
    });
  };
  const grid = new Grid(
    [
      {
        name: "Time",
        width: "20ch",
        value: (row) => row.at || 0,
        shown: (row) => (row.at ? clock(row.at) : ""),
        isToned: false,
      },
      { name: "Revision", width: "10ch", value: (row) => row.revision, isToned: false },
      { name: "What", width: "10ch", value: (row) => row.what, tone: (row) => TONES[row.what] },
      { name: "Kind", width: "minmax(14ch, 1fr)", value: (row) => row.kind.kind, isToned: false },
      {
        name: "Object",
        width: "minmax(24ch, 3fr)",
        isToned: false,
        value: (row) => `${row.namespace && `${row.namespace}/`}${row.name}`,
        shown: (row) =>
          el(
            "a",
            {
              href: app.href({
                moment: String(row.what === "deleted" ? row.revision - 1 : row.revision),
                ...row.kind,
                view: "object",
                of: row.namespace,
                name: row.name,
              }),
            },
            `${row.namespace && `${row.namespace}/`}${row.name}`,
          ),
      },
      { name: "By", width: "minmax(16ch, 2fr)", value: (row) => row.by, isToned: false },
      {
        name: "The cluster",
        width: "18ch",
        value: () => "",
        isToned: false,
        shown: (row) =>
          el(
            "span",
            {},
            el("a", { href: app.href({ view: "", moment: String(row.revision - 1) }) }, "before"),
            " ",
            el("a", { href: app.href({ view: "", moment: String(row.revision) }) }, "with it"),
          ),
      },
    ],
    { label: "Changes", onOpen: open, sortBy: 1, isDescending: true },
  );
  fill(
    view,
    el(
      "div",
      { class: "bar" },
      el("h1", {}, moment ? `Changes up to ${moment}` : "Changes"),
      el("label", {}, "of ", span),
      el("label", {}, all, " Events and Leases, too"),
      filter,
      el("button", { type: "button", onclick: () => begin() }, "Again"),
      state,
    ),
    el("div", { class: "grid-place" }, grid.element),
  );
  app.current = {
    row: () =>
      grid.current() && { object: { metadata: { namespace: grid.current().namespace, name: grid.current().name } } },
    get kind() {
      return grid.current()?.kind;
    },
  };
  let rows = [];
  let ending = new AbortController();
  let isOver = false;

  async function read() {
    ending.abort();
    ending = new AbortController();
    const { signal } = ending;
    rows = [];
    const to = await bounds(signal);
    const known = await app.server.get(
      `/at${query({ from: rfc3339(to.from), to: to.at ? rfc3339(to.at) : undefined })}`,
      { signal, isPresent: true },
    );
    const notes = known.notes.filter(([, first]) => first);
    // The newest revisions are in no note for a second.
    if (notes.length && !to.at && known.revision > notes.at(-1)[2])
      notes.push([Date.parse(known.now), notes.at(-1)[2] + 1, Infinity]);
    if (!notes.length) {
      draw("nothing changed");
      return;
    }
    const first = notes[0][1] - 1;
    const last = to.revision || notes.at(-1)[2];
    const kinds = app.kinds.filter(
      (kind) =>
        kind.verbs.includes("watch") &&
        (all.checked || !BUSY.includes(kind.resource)) &&
        (!namespace || kind.namespaced),
    );
    const told = { done: 0, refused: 0, all: kinds.length, gone: "" };
    const queue = [...kinds];
    const worker = async () => {
      for (let kind = queue.shift(); kind && !signal.aborted; kind = queue.shift()) {
        await readKind(kind, first, last, notes, signal, told);
        told.done += 1;
        draw(progress(told));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    if (!signal.aborted) draw(progress(told));
  }

  /** Return the span that is asked for: {from, at, revision}. */
  async function bounds(signal) {
    const seconds = SPANS[span.value];
    if (!moment) {
      const { now, oldest } = await app.server.get("/at", { signal, isPresent: true });
      return { from: Math.max(Date.parse(now) - seconds * 1000, Date.parse(oldest) || 0), at: 0, revision: 0 };
    }
    const { now, oldest } = await app.server.get("/at", { signal, isPresent: true });
    const isRevision = /^\d+$/.test(moment);
    const at = isRevision ? Date.parse(now) : Math.min(Date.parse(moment) || Date.parse(now), Date.parse(now));
    return {
      from: Math.max(at - seconds * 1000, Date.parse(oldest) || 0),
      at: isRevision ? 0 : at,
      revision: isRevision ? Number(moment) : 0,
    };
  }

  async function readKind(kind, first, last, notes, signal, told) {
    let found = [];
    let left = EVENTS_MAX;
    try {
      const asked = { timeoutSeconds: 1 };
      for await (const event of watch(app.server, pathOf(kind, namespace), asked, String(first || 1), {
        signal,
        isPresent: true,
      })) {
        if (!(event.type in WORDS)) continue;
        for (const row of event.object.rows || []) {
          const { metadata } = row.object;
          const revision = Number(metadata.resourceVersion);
          if (revision > last) break;
          found.push({
            revision,
            at: timeOf(notes, revision),
            what: WORDS[event.type],
            kind,
            namespace: metadata.namespace || "",
            name: metadata.name,
            by: byOf(metadata, event.type),
          });
          left -= 1;
        }
        // They come oldest first, and the newest are to stay.
        if (found.length > 2 * KIND_MAX) found = found.slice(-KIND_MAX);
        if (left <= 0 || Number(event.object.rows?.at(-1)?.object.metadata.resourceVersion) > last) break;
      }
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.code === 410) told.gone = error.message;
      else told.refused += 1;
    }
    if (!signal.aborted) rows.push(...found.slice(-KIND_MAX));
  }

  function progress({ done, refused, all: count, gone }) {
    return [done < count ? `${done} of ${count} kinds` : "", refused ? `${refused} kinds may not be watched` : "", gone]
      .filter(Boolean)
      .join(", ");
  }

  function draw(text) {
    if (isOver) return;
    if (text !== undefined) state.dataset.text = text;
    const wanted = filter.value.trim().toLowerCase();
    rows.sort((a, b) => b.revision - a.revision);
    rows.length = Math.min(rows.length, KEPT_MAX);
    const shown = wanted
      ? rows.filter((row) =>
          `${row.what} ${row.kind.kind} ${row.namespace}/${row.name} ${row.by}`.toLowerCase().includes(wanted),
        )
      : rows;
    grid.show(shown);
    state.textContent = `${shown.length} changes${state.dataset.text ? `, ${state.dataset.text}` : ""}`;
  }

  const begin = () =>
    read().catch((error) => {
      if (!(error instanceof ApiError)) app.fail(error);
      else if (!isOver) fill(state, error.message);
    });
  span.onchange = begin;
  all.onchange = begin;
  begin();
  return () => {
    isOver = true;
    ending.abort();
    grid.close();
  };
}

/** Return when a revision came, by notes of [time, first, last]. */
export function timeOf(notes, revision) {
  let low = 0;
  let high = notes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (notes[middle][2] < revision) low = middle + 1;
    else high = middle;
  }
  return notes[low]?.[0] || 0;
}

/** Return who wrote last, as the managed fields tell it, to the second; nobody knows of a deletion. */
function byOf({ managedFields = [] }, type) {
  if (type === "DELETED") return "";
  const last = managedFields.reduce((time, each) => ((each.time || "") > time ? each.time : time), "");
  const names = managedFields
    .filter((each) => (each.time || "") === last)
    .map((each) => `${each.manager}${each.subresource ? `/${each.subresource}` : ""}`);
  return [...new Set(names)].join(", ");
}
