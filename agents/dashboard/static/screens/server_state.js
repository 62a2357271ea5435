// What only the server knows: how the store grows, when certificates end, who watches and who does
// not keep up, and which requests were slow in which stage.

import { el, fill, quiet, section, table, toned } from "../parts/elements.js";
import { graph } from "../parts/graph.js";
import { short } from "../text/plain.js";
import { age, bytes, clock, span, took } from "../text/times.js";
import { quietly } from "./stuck.js";

const SLOW_SHOWN = 10;
const WATCHES_SHOWN = 10;
const SOON_S = 30 * 24 * 3600;
const PAGES = {
  store: "/etcd/ui/data",
  watches: "/debug/watches",
  slow: "/debug/slow_requests",
  certificates: "/debug/certificates",
};
const PATH_MAX = 160;

export function serverState(app, cards, place) {
  const known = {};
  const problems = new Map();

  async function read(signal) {
    await Promise.all(
      Object.entries(PAGES).map(([name, path]) =>
        quietly(problems, path, async () => {
          known[name] = await app.server.get(path, { signal, isPresent: true });
        }),
      ),
    );
    if (signal.aborted) return;
    fill(
      cards,
      storeCard(known.store),
      watchCard(known.watches),
      slowCard(known.slow),
      certificateCard(known.certificates),
    );
    fill(
      place,
      slowPart(known.slow),
      storePart(known.store),
      watchPart(known.watches),
      certificatePart(known.certificates),
      [...problems].map(([path, text]) => quiet(`${path}: ${text}`)),
    );
  }
  return { read };
}

function card(name, value, kind, about) {
  return el(
    "div",
    { class: "card" },
    el("span", { class: "quiet" }, name),
    el("strong", { class: kind }, value),
    el("span", { class: "quiet" }, about),
  );
}

function storeCard(store) {
  if (!store) return null;
  const { in_use: used, quota } = store.db;
  const forecast = store.growth?.forecast;
  const share = quota ? used / quota : 0;
  const isClose = share > 0.8 || (forecast?.full_in_s ?? Infinity) < 7 * 24 * 3600;
  const alarms = store.alarms.map((each) => each.alarm).join(", ");
  return card(
    "Store",
    alarms || `${bytes(used)}${quota ? ` of ${bytes(quota)}` : ""}`,
    alarms ? "bad" : isClose ? "busy" : "good",
    forecast
      ? `${forecast.bytes_per_day >= 0 ? "+" : ""}${bytes(forecast.bytes_per_day)} a day, ${forecast.full_in_s === null ? "not full" : `full in ${span(forecast.full_in_s)}`}`
      : "forecast after 10 minutes",
  );
}

function storePart(store) {
  if (!store) return null;
  const samples = (store.growth?.samples || []).map(([ago, size]) => [store.at_ms - ago * 1000, size]);
  const forecast = store.growth?.forecast;
  return section(
    "Store",
    graph("Pages in use", samples, bytes, store.db.quota),
    forecast &&
      el(
        "p",
        {},
        `As in the last ${span(forecast.span_s)} it grows by ${bytes(forecast.bytes_per_day)} a day${forecast.full_in_s === null ? "." : ` and is full in ${span(forecast.full_in_s)}.`}`,
      ),
    store.sizes?.length > 0 &&
      table(
        ["prefix", "keys, about", "size, about"],
        store.sizes.slice(0, 6).map((each) => [each.prefix, each.keys, bytes(each.bytes)]),
      ),
    el(
      "p",
      { class: "quiet" },
      `${store.role} ${store.name}, revision ${store.db.revision}, compacted up to ${store.db.compacted}, sync of the log 99 % within ${store.sync_ms?.p99 ?? "?"} ms`,
    ),
  );
}

function watchCard(watches) {
  if (!watches) return null;
  const isBehind = watches.unsentBytes > 1 << 20 || watches.delayMs === null || watches.isInterrupted;
  return card(
    "Watches",
    `${watches.streams} streams`,
    isBehind ? "busy" : "good",
    watches.delayMs === null
      ? "memory is behind the store"
      : `${bytes(watches.unsentBytes)} not taken, store to memory ${took(watches.delayMs)}`,
  );
}

function watchPart(watches) {
  if (!watches) return null;
  const active = watches.resources.filter((each) => each.streams || each.events);
  return section(
    "Watches",
    watches.behind.length > 0 && [
      el("h3", {}, "Who does not keep up"),
      table(
        ["user", "program", "resource", "not taken"],
        watches.behind
          .slice(0, WATCHES_SHOWN)
          .map((each) => [
            each.user,
            each.agent,
            each.resource,
            toned(each.unsent_bytes > 1 << 16 ? "busy" : "", bytes(each.unsent_bytes)),
          ]),
      ),
    ],
    el(
      "details",
      {},
      el("summary", {}, `${watches.streams} streams, ${watches.events} events sent since the start`),
      table(
        ["resource", "streams", "written for", "events sent"],
        active.map((each) => [
          each.group ? `${each.resource}.${each.group}` : each.resource,
          each.streams,
          `${each.groups} groups`,
          each.events,
        ]),
      ),
    ),
  );
}

function slowCard(slow) {
  if (!slow) return null;
  const newest = slow.requests[0];
  const isNew = newest && Date.now() - newest.time < 300_000;
  return card(
    "Slow requests",
    `${slow.count}`,
    isNew ? "busy" : "good",
    newest ? `over ${slow.thresholdMs} ms, the last ${age(newest.time)} ago` : `none over ${slow.thresholdMs} ms`,
  );
}

function slowPart(slow) {
  if (!slow?.requests.length) return null;
  return section(
    "Slow requests by stage",
    table(
      ["when", "request", "user", "took", "stages"],
      slow.requests.slice(0, SLOW_SHOWN).map((each) => [
        clock(each.time),
        `${each.method} ${short(each.path, PATH_MAX)} ${each.code}`,
        each.user,
        took(each.tookMs),
        Object.entries(each.stagesMs)
          .filter(([, spent]) => spent >= 0.01 * each.tookMs)
          .map(([stage, spent], index) => el("span", { class: index ? "quiet" : "busy" }, `${stage} ${took(spent)} `)),
      ]),
    ),
  );
}

function endOf(each) {
  return each.error ? -Infinity : (Date.parse(each.notAfter) - Date.now()) / 1000;
}

function toneOf(each) {
  const left = endOf(each);
  if (left < 0) return "bad";
  return left < SOON_S && !each.isRenewed ? "busy" : "good";
}

function certificateCard(found) {
  const first = found?.certificates[0];
  if (!first) return null;
  const worst =
    found.certificates.find((each) => toneOf(each) === "bad") ||
    found.certificates.find((each) => toneOf(each) === "busy") ||
    first;
  return card(
    "Certificates",
    worst.error ? "unreadable" : endOf(worst) < 0 ? "ended" : `end in ${span(endOf(worst))}`,
    toneOf(worst),
    worst.error ? worst.file : `${worst.name}${worst.isRenewed ? ", renewed by kvstack" : ""}`,
  );
}

function certificatePart(found) {
  if (!found?.certificates.length) return null;
  return section(
    "Certificates",
    el(
      "details",
      {},
      el(
        "summary",
        {},
        `${found.certificates.length} certificates, the first to end is ${found.certificates[0].name || found.certificates[0].file}`,
      ),
      table(
        ["name", "ends", "in", "signed by", "file", ""],
        found.certificates.map((each) => [
          each.name || "",
          each.notAfter || toned("bad", each.error),
          each.error ? "" : toned(toneOf(each), span(endOf(each))),
          each.issuer || "",
          each.file,
          each.isRenewed ? "renewed in time" : "",
        ]),
      ),
    ),
  );
}
