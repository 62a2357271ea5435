// What is stuck, and why: pods that no node takes, by reason and node; pods that wait on their node;
// what is terminating, by finalizer; crash loops with their last lines.

import { ApiError, query } from "../server/connection.js";
import { PODS, pathOf } from "../server/kinds.js";
import { el, fill, quiet, section, table, toned } from "../parts/elements.js";
import { short, plain } from "../text/plain.js";
import { age } from "../text/times.js";
import { isFailing, isWaiting, wordOf } from "./states.js";

const SHOWN_MAX = 30;
const NODES_MAX = 10; // and pods of each
const LOGS_MAX = 5;
const LINES = 5;
const LINE_MAX = 300;
const PATIENCE_MS = 3000;

export function stuck(app, place, pods) {
  const known = { scheduling: new Map(), terminating: null, logs: new Map(), problems: new Map() };

  /** Read what the server knows, and the last lines of what crashes. */
  async function read(signal) {
    const asked = (path) => app.server.get(path, { signal, isPresent: true });
    await quietly(known.problems, "pods without a node", async () => {
      const found = (await asked("/debug/scheduling")).pods;
      known.scheduling = new Map(found.map((each) => [each.uid, each]));
    });
    await quietly(known.problems, "what is terminating", async () => {
      known.terminating = await asked("/debug/terminating");
    });
    const crashing = failing().slice(0, LOGS_MAX);
    for (const uid of known.logs.keys()) if (!crashing.some((pod) => pod.uid === uid)) known.logs.delete(uid);
    for (const pod of crashing) {
      if (!pod.container || known.logs.get(pod.uid)?.restarts === pod.restarts) continue;
      known.logs.set(pod.uid, { restarts: pod.restarts, lines: await lastLines(pod, signal) });
    }
    draw();
  }

  async function lastLines(pod, signal) {
    for (const previous of ["true", ""]) {
      const asked = query({ container: pod.container, tailLines: LINES, limitBytes: 64 * 1024, previous });
      try {
        const { text } = await app.server.send(pathOf(PODS, pod.namespace, pod.name, "log") + asked, {
          signal,
          accept: "*/*",
          isPresent: true,
        });
        if (text.trim())
          return text
            .trimEnd()
            .split("\n")
            .slice(-LINES)
            .map((line) => short(plain(line), LINE_MAX));
      } catch (error) {
        if (!(error instanceof ApiError)) throw error; // there is none, or the user may not read it
      }
    }
    return [];
  }

  const some = () => [...pods.entries.values()];
  const failing = () =>
    some()
      .filter((pod) => isFailing(pod) && !pod.deletedAt)
      .sort((a, b) => b.restarts - a.restarts);
  // The past is judged by its own time, which is not known here: all of it is shown.
  const isOld = (pod) => Boolean(app.route.moment) || Date.now() - Date.parse(pod.createdAt) > PATIENCE_MS;

  function draw() {
    const waiting = some().filter((pod) => isWaiting(pod) && !pod.deletedAt && isOld(pod));
    fill(
      place,
      unscheduled(waiting.filter((pod) => !pod.node)),
      onNodes(waiting.filter((pod) => pod.node)),
      crashed(failing()),
      terminating(),
      [...known.problems].map(([what, text]) => quiet(`${what}: ${text}`)),
    );
  }

  function unscheduled(found) {
    return section(
      `Pending without a node (${found.length})`,
      found.length > 0 &&
        table(
          ["pod", "why", "nodes", "for"],
          found.slice(0, SHOWN_MAX).map((pod) => {
            const told = known.scheduling.get(pod.uid);
            const reasons = told?.reasons || [];
            return [
              app.link(PODS, pod.namespace, pod.name),
              reasons.length
                ? el(
                    "ul",
                    { class: "plain" },
                    reasons.map((each) => el("li", {}, toned("busy", each.text), ` (${each.plugin})`)),
                  )
                : toned("busy", pod.message || pod.reason || "not looked at yet"),
              reasons.length
                ? el(
                    "ul",
                    { class: "plain" },
                    reasons.map((each) => el("li", {}, nodesOf(each))),
                  )
                : "",
              age(pod.createdAt),
            ];
          }),
        ),
      rest(found),
    );
  }

  function nodesOf({ nodes, count }) {
    return `${nodes.slice(0, 6).join(", ") || "all"}${count > 6 && nodes.length ? ` and ${count - 6} more` : ""}`;
  }

  function onNodes(found) {
    const byNode = Map.groupBy ? Map.groupBy(found, (pod) => pod.node) : grouped(found);
    return section(
      `Waiting on their node (${found.length})`,
      [...byNode]
        .sort((a, b) => b[1].length - a[1].length)
        .slice(0, NODES_MAX)
        .map(([node, some_]) => [
          el("h3", {}, `${node} (${some_.length})`),
          table(
            ["pod", "state", "why", "for"],
            some_
              .slice(0, NODES_MAX)
              .map((pod) => [
                app.link(PODS, pod.namespace, pod.name),
                toned("busy", wordOf(pod)),
                short(pod.message, LINE_MAX),
                age(pod.createdAt),
              ]),
          ),
          rest(some_, NODES_MAX),
        ]),
      rest([...byNode], NODES_MAX),
    );
  }

  function crashed(found) {
    return section(
      `Failing (${found.length})`,
      found
        .slice(0, SHOWN_MAX)
        .map((pod) =>
          el(
            "article",
            {},
            el(
              "p",
              {},
              app.link(PODS, pod.namespace, pod.name),
              " ",
              toned("bad", wordOf(pod)),
              ` ${pod.container} `,
              `${pod.restarts} restarts. `,
              short(pod.last || pod.message, LINE_MAX),
            ),
            known.logs.get(pod.uid)?.lines.length > 0 &&
              el("pre", { class: "lines" }, known.logs.get(pod.uid).lines.join("\n")),
          ),
        ),
      rest(found),
    );
  }

  function terminating() {
    if (app.route.moment || !known.terminating) return endingPods();
    const inside = known.terminating.objects.filter(
      (each) => !app.route.namespace || each.namespace === app.route.namespace,
    );
    const late = inside.filter(
      (each) => each.finalizers.length || Date.now() - Date.parse(each.deletionTimestamp) > PATIENCE_MS,
    );
    const counts = Object.entries(known.terminating.finalizers)
      .map(([name, count]) => `${name} (${count})`)
      .join(", ");
    return section(
      `Terminating (${known.terminating.count})`,
      counts && !app.route.namespace && el("p", {}, `Finalizers: ${counts}`),
      late.length > 0 &&
        table(
          ["what", "waits for", "since"],
          late.slice(0, SHOWN_MAX).map((each) => {
            const kind = app.kinds.find((one) => one.group === each.group && one.resource === each.resource);
            const text = `${each.resource} ${each.namespace && `${each.namespace}/`}${each.name}`;
            return [
              kind ? app.link(kind, each.namespace, each.name, text) : text,
              [
                each.finalizers.join(", ") || "its grace period or its controller",
                each.conditions.map((one) => el("div", { class: "quiet" }, one.message)),
              ],
              age(each.deletionTimestamp),
            ];
          }),
        ),
      rest(late),
    );
  }

  /** Of what the user sees alone: pods. */
  function endingPods() {
    const found = some().filter((pod) => pod.deletedAt);
    return section(
      `Terminating pods (${found.length})`,
      found.length > 0 &&
        table(
          ["pod", "waits for", "since"],
          found
            .slice(0, SHOWN_MAX)
            .map((pod) => [
              app.link(PODS, pod.namespace, pod.name),
              pod.finalizers.join(", ") || "its grace period",
              age(pod.deletedAt),
            ]),
        ),
      rest(found),
    );
  }

  return { read, draw };
}

/** Do something that the user may not be allowed to, and keep why not. */
export async function quietly(problems, what, run) {
  try {
    await run();
    problems.delete(what);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.code !== 404) problems.set(what, error.message); // 404: another server, which has no such page
  }
}

function rest(found, max = SHOWN_MAX) {
  return found.length > max && quiet(`and ${found.length - max} more`);
}

function grouped(found) {
  const byNode = new Map();
  for (const pod of found) byNode.set(pod.node, [...(byNode.get(pod.node) || []), pod]);
  return byNode;
}
