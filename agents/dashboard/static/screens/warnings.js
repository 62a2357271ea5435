// The newest warnings.

import { ApiError } from "../server/connection.js";
import { latestEvents, timeOf } from "../server/events.js";
import { kindOf } from "../server/kinds.js";
import { fill, quiet, section, table, toned } from "../parts/elements.js";
import { short } from "../text/plain.js";
import { age } from "../text/times.js";

const SHOWN_MAX = 15;
const READ_MAX = 2000;
const MESSAGE_MAX = 400;

export async function warnings(app, place, signal) {
  let kept;
  try {
    kept = await latestEvents(app.server, app.route.namespace, "type=Warning", { max: READ_MAX, signal });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    fill(place, quiet(`events: ${error.message}`));
    return;
  }
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
