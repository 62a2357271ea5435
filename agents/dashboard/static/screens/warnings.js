// The newest warnings.

import { ApiError } from "../server/connection.js";
import { EVENTS, kindOf, pathOf } from "../server/kinds.js";
import { list } from "../server/lists.js";
import { fill, quiet, section, table, toned } from "../parts/elements.js";
import { short } from "../text/plain.js";
import { age } from "../text/times.js";

const SHOWN_MAX = 15;
const READ_MAX = 2000;
const MESSAGE_MAX = 400;

/** Return when an event happened last. */
export function timeOf(event) {
  return event.series?.lastObservedTime || event.lastTimestamp || event.eventTime || event.metadata.creationTimestamp;
}

export async function warnings(app, place, signal) {
  const kept = [];
  try {
    await list(
      app.server,
      pathOf(EVENTS, app.route.namespace),
      { fieldSelector: "type=Warning" },
      {
        signal,
        onPage: (page) => {
          kept.push(...page.items);
          return kept.length < READ_MAX;
        },
      },
    );
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    fill(place, quiet(`events: ${error.message}`));
    return;
  }
  kept.sort((a, b) => Date.parse(timeOf(b)) - Date.parse(timeOf(a)));
  fill(
    place,
    section(
      "Warnings",
      kept.length > 0 &&
        table(
          ["age", "what", "reason", "message", "times"],
          kept.slice(0, SHOWN_MAX).map((each) => {
            const { apiVersion, kind: name, namespace = "", name: of } = each.involvedObject;
            const kind = kindOf(app.kinds, apiVersion || "v1", name);
            const text = `${name} ${of || ""}`;
            return [
              age(timeOf(each)),
              kind && of ? app.link(kind, namespace, of, text) : text,
              toned("bad", each.reason),
              short(each.message || "", MESSAGE_MAX),
              each.series?.count || each.count || 1,
            ];
          }),
        ),
    ),
  );
}
