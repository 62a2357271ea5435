// A line over time, as SVG, with its last and largest value as text, which is what a reader of the
// page without eyes gets.

import { clock } from "../text/times.js";
import { svg, el } from "./elements.js";

const WIDTH = 480;
const HEIGHT = 96;
const ROOM = 4;

/** points: [[time_ms, value], …], oldest first; text(value); limit: a line across, if there is one. */
export function graph(name, points, text, limit = 0) {
  if (points.length < 2)
    return el(
      "figure",
      { class: "graph" },
      el("figcaption", {}, `${name}: ${points.length ? text(points[0][1]) : "nothing was measured yet"}`),
    );
  const largest = Math.max(...points.map((each) => each[1]));
  const top = Math.max(largest, limit && limit < 4 * largest ? limit : 0) || 1;
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const x = (time) => ROOM + ((time - from) / Math.max(1, to - from)) * (WIDTH - 2 * ROOM);
  const y = (value) => HEIGHT - ROOM - (value / top) * (HEIGHT - 2 * ROOM);
  const line = points.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const about = `${name} ${text(points.at(-1)[1])}, at most ${text(largest)} since ${clock(from)}${limit ? `, limit ${text(limit)}` : ""}`;
  return el(
    "figure",
    { class: "graph" },
    el("figcaption", {}, about),
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": about, preserveAspectRatio: "none" },
      svg("polygon", { class: "area", points: `${x(from)},${HEIGHT} ${line} ${x(to)},${HEIGHT}` }),
      limit && top >= limit && svg("line", { class: "limit", x1: 0, x2: WIDTH, y1: y(limit), y2: y(limit) }),
      svg("polyline", { class: "curve", points: line }),
    ),
  );
}

/** A bar of parts of a whole: used is drawn within requested. */
export function bar(used, requested, whole, about) {
  const share = (value) => `${Math.min(100, whole ? (100 * value) / whole : 0).toFixed(1)}`;
  return svg(
    "svg",
    { class: "share", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": about },
    svg("title", {}, about),
    svg("rect", { class: "whole", width: 100, height: 10 }),
    svg("rect", { class: requested > whole ? "requested over" : "requested", width: share(requested), height: 10 }),
    svg("rect", { class: "used", width: share(used), height: 4, y: 3 }),
  );
}
