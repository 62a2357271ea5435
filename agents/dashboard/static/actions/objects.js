// Deleting an object, after a question, and only the one that was seen.

import { pathOf } from "../server/kinds.js";
import { ask } from "../parts/dialogs.js";
import { toast } from "../parts/elements.js";

const WAYS = {
  "what it owns goes later": "Background",
  "what it owns goes first": "Foreground",
  "what it owns stays": "Orphan",
};

export async function remove(app, kind, object) {
  const { namespace, name, uid } = object.metadata;
  const answer = await ask(
    `Delete ${kind.kind} ${namespace ? `${namespace}/` : ""}${name}?`,
    [
      { name: "way", label: "And what it owns", options: Object.keys(WAYS) },
      { name: "isForced", label: "at once, without its grace period", type: "checkbox" },
    ],
    "Delete",
    { isBad: true },
  );
  if (!answer) return false;
  const options = {
    propagationPolicy: WAYS[answer.way],
    preconditions: { uid },
    ...(answer.isForced && { gracePeriodSeconds: 0 }),
  };
  await app.server.write("DELETE", pathOf(kind, namespace, name), {
    kind: "DeleteOptions",
    apiVersion: "v1",
    ...options,
  });
  toast(`${kind.kind} ${name} is deleted.`, "good");
  if (app.route.view === "object") location.hash = app.kindHref(kind);
  return false;
}
