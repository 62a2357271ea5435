// What a pod or node used in the last quarter of an hour.

import { ApiError } from "../server/connection.js";
import { fill, quiet, section } from "../parts/elements.js";
import { graph } from "../parts/graph.js";
import { amount } from "../text/amounts.js";
import { bytes, cores } from "../text/times.js";

const GROUP = { group: "metrics.kvstack.io", version: "v1" };
const AGAIN_MS = 15_000;

export function usage(app, place, kind, object) {
  const { namespace, name } = object.metadata;
  const of =
    kind.resource === "nodes"
      ? `nodes/${encodeURIComponent(name)}`
      : `namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}`;
  const limit = (resource) =>
    kind.resource === "nodes"
      ? amount(object.status?.allocatable?.[resource])
      : (object.spec.containers || []).every((each) => each.resources?.limits?.[resource])
        ? object.spec.containers.reduce((sum, each) => sum + amount(each.resources.limits[resource]), 0)
        : 0;
  return app.repeat(async (signal) => {
    try {
      const { points } = await app.server.get(`/apis/${GROUP.group}/${GROUP.version}/${of}`, {
        signal,
        isPresent: true,
      });
      const series = (resource) => points.map((each) => [Date.parse(each.timestamp), amount(each.usage[resource])]);
      fill(
        place,
        section(
          "Used",
          graph("CPU", series("cpu"), cores, limit("cpu")),
          graph("Memory", series("memory"), bytes, limit("memory")),
        ),
      );
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.code === 404)
        fill(place); // nothing measures here
      else fill(place, quiet(`usage: ${error.message}`));
    }
  }, AGAIN_MS);
}
