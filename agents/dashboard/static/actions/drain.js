// Draining a node: it is cordoned, then its pods are evicted, as far as their budgets allow.
//
// Pods of DaemonSets and static pods stay. Pods that nobody would make again, and pods with emptyDir,
// are evicted only if that is asked for. What a budget refuses (429) is tried again.

import { ApiError } from "../server/connection.js";
import { pathOf, PODS } from "../server/kinds.js";
import { list } from "../server/lists.js";
import { openDialog } from "../parts/dialogs.js";
import { el, fill, table, toned } from "../parts/elements.js";
import { cordon } from "./changes.js";

const AT_ONCE = 5;
const AGAIN_MS = 3000;
const SHOWN_MAX = 200;
const MIRROR = "kubernetes.io/config.mirror";

/** Return what keeps a pod where it is: "" nothing, otherwise why. */
export function obstacle(pod, { isAlone, isLocal }) {
  const owner = (pod.metadata.ownerReferences || []).find((each) => each.controller);
  const isOver = ["Succeeded", "Failed"].includes(pod.status?.phase);
  if (pod.metadata.annotations?.[MIRROR]) return "a static pod";
  if (owner?.kind === "DaemonSet" && !isOver) return "of a DaemonSet";
  if (!owner && !isAlone && !isOver) return "nobody would make it again";
  if (!isLocal && !isOver && (pod.spec.volumes || []).some((each) => each.emptyDir)) return "has an emptyDir";
  return "";
}

export async function drain(app, kind, node) {
  const { name } = node.metadata;
  const { items } = await list(app.server, pathOf(PODS), { fieldSelector: `spec.nodeName=${name}` });
  const pods = items.map((pod) => ({ pod, state: "" }));
  const ending = new AbortController();
  return new Promise((resolve) => {
    openDialog(
      `Drain ${name}`,
      (close) => {
        const isAlone = el("input", { type: "checkbox", id: "alone", onchange: () => draw() });
        const isLocal = el("input", { type: "checkbox", id: "local", onchange: () => draw() });
        const place = el("div", { id: "evicted", role: "status" });
        const start = el(
          "button",
          { type: "button", id: "confirm", class: "bad", onclick: () => run().catch((error) => app.fail(error)) },
          "Drain",
        );
        const leave = el("button", { type: "button", onclick: close }, "Cancel");
        const chosen = () =>
          pods.filter(({ pod }) => !obstacle(pod, { isAlone: isAlone.checked, isLocal: isLocal.checked }));
        function draw() {
          const going = new Set(chosen());
          fill(
            place,
            table(
              ["pod", "what becomes of it"],
              pods
                .slice(0, SHOWN_MAX)
                .map((each) => [
                  `${each.pod.metadata.namespace}/${each.pod.metadata.name}`,
                  each.state ||
                    (going.has(each)
                      ? toned("busy", "is evicted")
                      : `stays: ${obstacle(each.pod, { isAlone: isAlone.checked, isLocal: isLocal.checked })}`),
                ]),
            ),
            el("p", {}, `${going.size} of ${pods.length} pods go.`),
          );
        }
        async function run() {
          for (const each of [start, isAlone, isLocal]) each.disabled = true;
          leave.textContent = "Close";
          await cordon(true)(app, kind, node);
          const queue = chosen();
          await Promise.all(
            Array.from({ length: AT_ONCE }, async () => {
              for (let each = queue.shift(); each && !ending.signal.aborted; each = queue.shift())
                await evict(app, each, draw, ending.signal);
            }),
          );
          if (!ending.signal.aborted) place.append(el("p", { class: "good" }, "Done."));
        }
        draw();
        return [
          el("p", {}, "The node takes no new pods, and those that may move are evicted."),
          el("label", {}, isAlone, " also pods that nobody would make again"),
          el("label", {}, isLocal, " also pods with data in an emptyDir"),
          place,
          el("div", { class: "bar" }, start, leave),
        ];
      },
      () => {
        ending.abort();
        resolve(true);
      },
    );
  });
}

/** Evict a pod and wait until it is gone. */
async function evict(app, each, draw, signal) {
  const { name, namespace, uid } = each.pod.metadata;
  const tell = (kind, text) => {
    each.state = toned(kind, text);
    draw();
  };
  const path = pathOf(PODS, namespace, name);
  tell("busy", "is being evicted");
  while (!signal.aborted) {
    try {
      await app.server.write(
        "POST",
        `${path}/eviction`,
        {
          apiVersion: "policy/v1",
          kind: "Eviction",
          metadata: { name, namespace },
          deleteOptions: { preconditions: { uid } },
        },
        "application/json",
        { signal },
      );
      break;
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      if ([404, 409].includes(error.code)) break; // it is gone already
      tell("bad", error.message);
      if (error.code !== 429) return;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
  while (!signal.aborted) {
    try {
      if ((await app.server.get(path, { signal, isPresent: true })).metadata.uid !== uid) break;
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      if (error.code === 404) break;
      tell("busy", error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  if (!signal.aborted) tell("good", "gone");
}
