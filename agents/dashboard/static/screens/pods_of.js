// The pods of a workload or Service, live.

import { Live } from "../server/live.js";
import { PODS, pathOf } from "../server/kinds.js";
import { fill, quiet, section, table, toned } from "../parts/elements.js";
import { age } from "../text/times.js";
import { tone } from "../text/tone.js";
import { summaryOf, wordOf } from "./states.js";

const SHOWN_MAX = 50;

/** Return the label selector of an object's pods; "" if it has none. */
export function selectorOf(object) {
  const selector = object.spec?.selector;
  if (!selector || object.kind === "NetworkPolicy") return "";
  const labels = selector.matchLabels || (selector.matchExpressions ? {} : selector);
  const parts = Object.entries(labels)
    .filter(([, value]) => typeof value === "string")
    .map(([name, value]) => `${name}=${value}`);
  for (const { key, operator, values = [] } of selector.matchExpressions || []) {
    if (operator === "Exists") parts.push(key);
    else if (operator === "DoesNotExist") parts.push(`!${key}`);
    else parts.push(`${key} ${operator === "In" ? "in" : "notin"} (${values.join(",")})`);
  }
  return parts.join(",");
}

/** Whether a pod is one of an object's. */
export function isOf(pod, object) {
  const owner = (pod.metadata.ownerReferences || []).find((each) => each.controller);
  if (object.kind === "Deployment") return owner?.kind === "ReplicaSet";
  return object.kind === "Service" || owner?.uid === object.metadata.uid;
}

export function podsOf(app, place, kind, object) {
  const selector = ["apps", "batch", ""].includes(kind.group) && kind.namespaced ? selectorOf(object) : "";
  if (!selector || object.kind === "PersistentVolumeClaim") return () => undefined;
  const live = new Live(app.server, pathOf(PODS, object.metadata.namespace), {
    values: { labelSelector: selector },
    keep: (pod) => (isOf(pod, object) ? summaryOf(pod) : null),
    onState: (text) => text && fill(place, quiet(`pods: ${text}`)),
    onChange: () => {
      const found = [...live.entries.values()].filter(Boolean);
      fill(
        place,
        section(
          `Pods (${found.length})`,
          found.length > 0 &&
            table(
              ["pod", "status", "node", "restarts", "age"],
              found
                .slice(0, SHOWN_MAX)
                .map((pod) => [
                  app.link(PODS, pod.namespace, pod.name, pod.name),
                  toned(tone(wordOf(pod)), wordOf(pod)),
                  pod.node,
                  pod.restarts,
                  age(pod.createdAt),
                ]),
            ),
          found.length > SHOWN_MAX && quiet(`and ${found.length - SHOWN_MAX} more`),
        ),
      );
    },
  });
  live.run().catch((error) => app.fail(error));
  return () => live.close();
}
