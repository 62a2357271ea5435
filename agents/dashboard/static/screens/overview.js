// The cluster at a glance: is it settled, what changes right now, what is stuck and why, and what the
// server knows of itself.

import { Live } from "../server/live.js";
import { DEPLOYMENTS, NODES, PODS, STATEFUL_SETS, DAEMON_SETS, pathOf } from "../server/kinds.js";
import { el, fill, quiet, section, table, toned } from "../parts/elements.js";
import { age, clock } from "../text/times.js";
import { tone } from "../text/tone.js";
import { summaryOf, isFailing, isWaiting, rolloutOf, nodeOf } from "./states.js";
import { Recent } from "./recent.js";
import { serverState } from "./server_state.js";
import { stuck } from "./stuck.js";
import { warnings } from "./warnings.js";

const ROLLING_MAX = 20;
const DRAW_MS = 500;

export function overview(app, view) {
  const { namespace, moment } = app.route;
  const state = el("div", { id: "settled" }, el("h1", { tabindex: "-1" }, "…"));
  const cards = el("div", { class: "cards", id: "cards" });
  const places = Object.fromEntries(
    ["server", "stuck", "rolling", "recent", "warnings", "details"].map((id) => [id, el("div", { id })]),
  );
  fill(view, state, cards, places.stuck, places.rolling, places.recent, places.warnings, places.details);
  const problems = new Map();
  const recent = new Recent(app);
  let settledAt = 0;

  const follow = (kind, keep, values) => {
    const live = new Live(app.server, pathOf(kind, namespace), {
      keep,
      values,
      drawMs: DRAW_MS,
      onChange: () => {
        recent.compare(kind, live.entries);
        draw();
      },
      onState: (text) => {
        problems.set(kind.kind, text);
        draw();
      },
    });
    live.kind = kind;
    live.run().catch((error) => app.fail(error));
    return live;
  };
  const pods = follow(PODS, summaryOf);
  const nodes = follow(NODES, nodeOf);
  const rollouts = [DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS].map((kind) =>
    follow(kind, (object) => rolloutOf(kind, object)),
  );
  const all = [pods, nodes, ...rollouts];
  const stuckPart = stuck(app, places.stuck, pods);
  const serverPart = serverState(app, cards, places.details);

  function draw() {
    const some = [...pods.entries.values()];
    const counts = {
      waiting: some.filter((pod) => isWaiting(pod) && !pod.deletedAt).length,
      failing: some.filter(isFailing).length,
      ending: some.filter((pod) => pod.deletedAt).length,
    };
    const lost = [...nodes.entries.values()].filter((node) => !node.isReady);
    const rolling = rollouts.flatMap((live) => [...live.entries.values()]).filter((each) => each.isRolling);
    const isWhole = all.every((live) => live.isWhole || problems.get(live.kind.kind));
    const isSettled = !counts.waiting && !counts.failing && !counts.ending && !lost.length && !rolling.length;
    if (isSettled && isWhole) settledAt ||= Date.now();
    else settledAt = 0;
    drawState(isWhole, isSettled, counts, lost, rolling);
    fill(
      places.rolling,
      section(
        "Rolling out",
        rolling.length > 0 &&
          table(
            ["what", "ready", "updated", "why"],
            rolling
              .slice(0, ROLLING_MAX)
              .map((each) => [
                app.link(each.kind, each.namespace, each.name, `${each.kind.kind} ${each.namespace}/${each.name}`),
                `${each.ready}/${each.desired}`,
                `${each.updated}/${each.desired}`,
                each.reason,
              ]),
          ),
      ),
    );
    recent.draw(places.recent);
    stuckPart.draw();
  }

  function drawState(isWhole, isSettled, counts, lost, rolling) {
    const what = [
      [counts.failing, "failing", "bad"],
      [counts.waiting, "waiting", "busy"],
      [counts.ending, "terminating", "busy"],
    ]
      .filter(([count]) => count)
      .map(([count, name, kind]) => toned(kind, `${count} ${count > 1 ? "pods" : "pod"} ${name}`));
    if (lost.length) what.unshift(toned("bad", `${lost.length} of ${nodes.entries.size} nodes not ready`));
    if (rolling.length) what.push(toned("busy", `${rolling.length} rolling out`));
    const word = !isWhole ? "…" : isSettled ? "settled" : "changing";
    fill(
      state,
      el(
        "h1",
        { tabindex: "-1" },
        namespace ? `${namespace} ` : "The cluster ",
        isWhole && "is ",
        toned(isSettled ? tone("settled") : "busy", word),
        moment ? ` at ${moment}` : "",
      ),
      el(
        "p",
        {},
        join(what),
        what.length ? ". " : "",
        `${pods.entries.size} pods${pods.isCut ? " and more" : ""} on ${nodes.entries.size} nodes, resourceVersion ${pods.version || "…"}`,
        settledAt && !moment ? `, settled since ${clock(settledAt)}` : "",
      ),
      lost.map((node) =>
        el(
          "p",
          {},
          app.link(NODES, "", node.name, `Node ${node.name}`),
          " ",
          toned("bad", node.reason),
          ` ${node.message}`,
          ` for ${age(node.since)}`,
        ),
      ),
      [...problems].filter(([, text]) => text).map(([kind, text]) => quiet(`${kind}: ${text}`)),
    );
  }

  const ends = [
    moment ? () => undefined : app.repeat((signal) => stuckPart.read(signal), 3000, 400),
    moment ? () => undefined : app.repeat((signal) => serverPart.read(signal), 5000, 50),
    app.repeat((signal) => warnings(app, places.warnings, signal), moment ? 3_600_000 : 10_000, 300),
  ];
  if (moment) fill(cards, quiet("What the server knows of itself is of the present alone."));
  draw();
  return () => {
    for (const each of [...all.map((live) => () => live.close()), ...ends]) each();
  };
}

function join(parts) {
  return parts.flatMap((each, index) => (index ? [", ", each] : [each]));
}
