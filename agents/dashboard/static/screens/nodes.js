// Nodes: what is requested of each against what it has, and what is used.

import { ApiError } from "../server/connection.js";
import { Live } from "../server/live.js";
import { NODES, pathOf, PODS } from "../server/kinds.js";
import { el, fill, quiet, table, toned } from "../parts/elements.js";
import { bar } from "../parts/graph.js";
import { amount, podRequests } from "../text/amounts.js";
import { bytes, cores } from "../text/times.js";

const SHOWN_MAX = 500;
const AGAIN_MS = 15_000;
const RESOURCES = { cpu: cores, memory: bytes };

export function nodes(app, view) {
  const state = el("p", { class: "quiet", role: "status" });
  const place = el("div", { id: "nodes" });
  fill(view, el("h1", {}, "Nodes: requested and used of what they have"), state, place);
  const used = new Map();
  const problems = new Map();
  const follow = (kind, keep, values) => {
    const live = new Live(app.server, pathOf(kind), {
      keep,
      values,
      drawMs: 1000,
      onChange: () => draw(),
      onState: (text) => {
        problems.set(kind.kind, text);
        draw();
      },
    });
    live.run().catch((error) => app.fail(error));
    return live;
  };
  const all = follow(NODES, (node) => ({
    name: node.metadata.name,
    allocatable: node.status?.allocatable || {},
    isCordoned: Boolean(node.spec?.unschedulable),
    ready: (node.status?.conditions || []).find((each) => each.type === "Ready")?.status === "True",
    troubles: (node.status?.conditions || [])
      .filter((each) => each.type !== "Ready" && each.status === "True")
      .map((each) => each.type),
  }));
  const pods = follow(
    PODS,
    (pod) => ({
      node: pod.spec.nodeName || "",
      requests: podRequests(pod.spec),
      isOver: ["Succeeded", "Failed"].includes(pod.status?.phase),
    }),
    { fieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed" },
  );

  function draw() {
    const sums = new Map();
    for (const pod of pods.entries.values()) {
      if (pod.isOver || !pod.node) continue;
      const sum = sums.get(pod.node) || { pods: 0 };
      sum.pods += 1;
      for (const [name, value] of Object.entries(pod.requests)) sum[name] = (sum[name] || 0) + value;
      sums.set(pod.node, sum);
    }
    const found = [...all.entries.values()].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
    state.textContent = [...problems]
      .filter(([, text]) => text)
      .map(([kind, text]) => `${kind}: ${text}`)
      .join(". ");
    fill(
      place,
      table(
        ["node", "state", "pods", "CPU", "memory"],
        found.slice(0, SHOWN_MAX).map((node) => {
          const sum = sums.get(node.name) || { pods: 0 };
          return [
            app.link(NODES, "", node.name),
            [
              toned(node.ready ? "good" : "bad", node.ready ? "Ready" : "NotReady"),
              node.isCordoned && toned("busy", ", cordoned"),
              node.troubles.map((each) => toned("bad", `, ${each}`)),
            ],
            `${sum.pods} of ${amount(node.allocatable.pods)}`,
            ...Object.keys(RESOURCES).map((name) => share(name, node, sum)),
          ];
        }),
      ),
      found.length > SHOWN_MAX && quiet(`and ${found.length - SHOWN_MAX} more`),
    );
  }

  function share(name, node, sum) {
    const text = RESOURCES[name];
    const whole = amount(node.allocatable[name]);
    const requested = sum[name] || 0;
    const now = used.get(node.name)?.[name];
    const about = `${text(requested)} requested${now === undefined ? "" : `, ${text(now)} used`} of ${text(whole)}`;
    return [bar(now || 0, requested, whole, about), el("div", { class: "quiet" }, about)];
  }

  const ends = app.route.moment
    ? () => undefined
    : app.repeat(async (signal) => {
        try {
          const { items } = await app.server.get("/apis/metrics.k8s.io/v1beta1/nodes", { signal, isPresent: true });
          used.clear();
          for (const { metadata, usage } of items)
            used.set(metadata.name, { cpu: amount(usage.cpu), memory: amount(usage.memory) });
          problems.delete("used");
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          problems.set("used", error.message);
        }
        draw();
      }, AGAIN_MS);
  return () => {
    all.close();
    pods.close();
    ends();
  };
}
