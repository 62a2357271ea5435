// The cluster at a glance: is it settled, and if not, what stands in the way and why.

import { ApiError, get, getMoment, list } from "./api.js";
import { age, el, fill, tone } from "./dom.js";
import { LiveTable } from "./live.js";
import { kindHash, objectHash } from "./routes.js";

const PODS = { group: "", version: "v1", resource: "pods", kind: "Pod", namespaced: true };
const NODES = { group: "", version: "v1", resource: "nodes", kind: "Node", namespaced: false };
const DEPLOYMENTS = { group: "apps", version: "v1", resource: "deployments", kind: "Deployment", namespaced: true };
const WAITING = /^(Pending|ContainerCreating|PodInitializing|Init:)/;
const FAILING = /(BackOff|Error|Failed|OOMKilled|Evicted|Invalid)/;
const SHOWN_MAX = 50;
const WARNINGS_MAX = 20;
const SLOW_MS = 5000;

export function overview(view, app, namespace) {
  const cards = el("div", { class: "cards" });
  const stuck = el("section", { id: "stuck" });
  const rollouts = el("section", { id: "rollouts" });
  const warnings = el("section", { id: "warnings" });
  fill(view, cards, stuck, rollouts, warnings);
  const below = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  const problems = new Map();

  const follow = (name, path, onChange) => new LiveTable(path, {}, {
    onChange, onState: (text) => { problems.set(name, text); draw(); },
  });
  const pods = follow("pods", `/api/v1${below}/pods`, draw);
  const nodes = follow("nodes", "/api/v1/nodes", draw);
  const deployments = follow("deployments", `/apis/apps/v1${below}/deployments`, draw);
  const all = [pods, nodes, deployments];
  for (const each of all) each.run().catch((error) => app.fail(error));

  function draw() {
    const rows = [...pods.rows.values()].map((row) => ({ row, status: cell(pods, row, "Status") }));
    const ending = rows.filter(({ row }) => row.object.metadata.deletionTimestamp);
    const waiting = rows.filter(({ row, status }) => WAITING.test(status) && !row.object.metadata.deletionTimestamp);
    const failing = rows.filter(({ status }) => FAILING.test(status));
    const lost = [...nodes.rows.values()].filter((row) => !/^Ready/.test(cell(nodes, row, "Status")));
    const rolling = [...deployments.rows.values()].filter((row) => isRolling(row));
    const isWhole = all.every((each) => each.isWhole);
    const isSettled = !ending.length && !waiting.length && !failing.length && !lost.length && !rolling.length;
    fill(cards,
      card("Cluster", isWhole ? (isSettled ? "settled" : "changing") : "…", isWhole ? (isSettled ? "good" : "busy") : "", "#/"),
      card("Nodes", `${nodes.rows.size - lost.length} of ${nodes.rows.size} ready`, lost.length ? "bad" : "good", kindHash(NODES)),
      card("Pods", `${rows.length}`, "", kindHash(PODS)),
      card("Waiting", waiting.length, waiting.length ? "busy" : "good", "#/"),
      card("Failing", failing.length, failing.length ? "bad" : "good", "#/"),
      card("Terminating", ending.length, ending.length ? "busy" : "good", "#/"),
      el("div", { class: "card" }, el("span", { class: "quiet" }, "resourceVersion"), el("strong", {}, pods.version || "…")),
      [...problems.values()].filter(Boolean).map((text) => el("p", { class: "bad" }, text)));
    drawStuck(failing, waiting, ending);
    fill(rollouts, rolling.length ? [el("h2", {}, "Rolling out"), el("table", {}, rolling.slice(0, SHOWN_MAX).map((row) => el("tr", {},
      el("td", {}, link(DEPLOYMENTS, row)), deployments.columns.filter((each) => each.priority === 0 && !["Name", "Age"].includes(each.name))
        .map((each) => el("td", {}, `${each.name} ${cell(deployments, row, each.name)}`)))))] : []);
  }

  function isRolling(row) {
    const [ready, wanted] = String(cell(deployments, row, "Ready")).split("/").map(Number);
    return ready !== wanted || Number(cell(deployments, row, "Up-to-date")) < wanted;
  }

  const reasons = new Map();

  function drawStuck(failing, waiting, ending) {
    const line = ({ row, status }, why) => el("tr", {}, el("td", {}, link(PODS, row)),
      el("td", { class: tone(status) }, status), el("td", {}, why), el("td", { class: "quiet" }, age(row.object.metadata.creationTimestamp)));
    const finalizers = (row) => row.object.metadata.finalizers?.join(", ");
    const parts = [
      ...failing.slice(0, SHOWN_MAX).map((each) => line(each, reasons.get(each.row.object.metadata.uid) || "")),
      ...waiting.slice(0, SHOWN_MAX).map((each) => line(each, reasons.get(each.row.object.metadata.uid) || "")),
      ...ending.slice(0, SHOWN_MAX).map((each) => line({ ...each, status: "Terminating" },
        finalizers(each.row) ? `waits for ${finalizers(each.row)}` : "")),
    ];
    fill(stuck, parts.length ? [el("h2", {}, "What is stuck, and why"), el("table", {}, parts)] : []);
  }

  async function slow() {
    if (!getMoment()) await explain();
    await drawWarnings();
  }

  /** Read the pods that do not run, for what they say of themselves. */
  async function explain() {
    for (const uid of reasons.keys()) if (!pods.rows.has(uid)) reasons.delete(uid);
    const stuckRows = [...pods.rows.values()].filter((row) => {
      const status = cell(pods, row, "Status");
      return WAITING.test(status) || FAILING.test(status);
    });
    for (const row of stuckRows.slice(0, SHOWN_MAX)) {
      const { namespace: of, name, uid } = row.object.metadata;
      try {
        reasons.set(uid, why(await get(`/api/v1/namespaces/${encodeURIComponent(of)}/pods/${encodeURIComponent(name)}`)));
      } catch (error) {
        if (!(error instanceof ApiError)) throw error; // it has gone meanwhile, or may not be read
      }
    }
    draw();
  }

  async function drawWarnings() {
    let found;
    try {
      found = (await list(`/api/v1${below}/events`, { fieldSelector: "type=Warning" })).items;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      fill(warnings, el("p", { class: "quiet" }, error.message));
      return;
    }
    const time = (each) => each.lastTimestamp || each.series?.lastObservedTime || each.eventTime || each.metadata.creationTimestamp;
    found.sort((a, b) => Date.parse(time(b)) - Date.parse(time(a)));
    fill(warnings, found.length ? [el("h2", {}, "Warnings"), el("table", {}, found.slice(0, WARNINGS_MAX).map((each) => el("tr", {},
      el("td", { class: "quiet" }, age(time(each))), el("td", {}, `${each.involvedObject.kind} ${each.involvedObject.name || ""}`),
      el("td", { class: "bad" }, each.reason), el("td", {}, each.message))))] : []);
  }

  let timer = 0;
  let isOver = false;
  async function again() {
    try {
      await slow();
    } catch (error) {
      app.fail(error);
    }
    if (!isOver) timer = setTimeout(again, SLOW_MS);
  }
  timer = setTimeout(again, 500);
  draw();
  return () => {
    isOver = true;
    clearTimeout(timer);
    for (const each of all) each.close();
  };
}

function cell(live, row, name) {
  const index = live.columns.findIndex((each) => each.name.toLowerCase() === name.toLowerCase());
  return index < 0 ? "" : row.cells[index];
}

function link(kind, row) {
  const { namespace = "", name } = row.object.metadata;
  return el("a", { href: objectHash(kind, namespace, name) }, namespace ? `${namespace}/${name}` : name);
}

function card(name, value, kind, href) {
  return el("a", { class: "card", href }, el("span", { class: "quiet" }, name), el("strong", { class: kind }, value));
}

/** Return why a pod does not run, in the words of the cluster. */
export function why(pod) {
  const condition = (pod.status.conditions || []).find((each) => each.status === "False" && each.message);
  const statuses = [...(pod.status.initContainerStatuses || []), ...(pod.status.containerStatuses || [])];
  const waiting = statuses.find((each) => each.state?.waiting?.message || each.lastState?.terminated);
  if (waiting?.lastState?.terminated) {
    const last = waiting.lastState.terminated;
    return `${waiting.name} ended with ${last.exitCode} (${last.reason})${last.message ? `: ${last.message}` : ""}`;
  }
  return waiting?.state.waiting.message || condition?.message || pod.status.message || "";
}
