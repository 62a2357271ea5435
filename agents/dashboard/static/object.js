// One object: what it is, who owns it, what happened to it, its YAML with the managers of each line.

import { ApiError, get, getMoment, list, may, pathOf, write } from "./api.js";
import { age, el, fill, toast, tone } from "./dom.js";
import { logs } from "./logs.js";
import { kindHash, objectHash } from "./routes.js";
import { yamlLines } from "./yaml.js";

const MERGE = "application/merge-patch+json";
const RESTARTED = "kubectl.kubernetes.io/restartedAt";
const OWNERS_MAX = 8;

export function objectView(view, app, kind, namespace, name, tab) {
  const path = pathOf(kind, namespace, name);
  let closing = () => undefined;
  const tabs = ["summary", "yaml", ...(kind.resource === "pods" && !kind.group ? ["logs"] : [])];
  const head = el("div", { class: "bar" });
  const body = el("section", { class: "body" });
  fill(view, head, body);
  const shown = tabs.includes(tab) ? tab : "summary";
  app.current = { object: { kind, namespace, name } };

  async function load() {
    closing();
    closing = () => undefined;
    let object;
    try {
      object = await get(path);
    } catch (error) {
      fill(body, el("p", { class: "bad" }, error.message));
      return;
    }
    fill(head, el("h1", {}, el("a", { href: kindHash(kind) }, kind.kind), " ", namespace && `${namespace}/`, name),
      tabs.map((each) => el("a", {
        class: `tab${each === shown ? " chosen" : ""}`, href: objectHash(kind, namespace, name, each),
      }, each)), el("span", { class: "actions", id: "actions" }));
    if (!getMoment()) actions(document.getElementById("actions"), kind, object, load);
    if (shown === "yaml") yaml(body, path, object, load);
    else if (shown === "logs") closing = logs(body, app, kind, object);
    else await summary(body, app, kind, object);
  }

  load().catch((error) => app.fail(error));
  return () => closing();
}

async function summary(body, app, kind, object) {
  const { metadata, status = {} } = object;
  const facts = el("dl", { class: "facts" });
  const fact = (name, ...value) => facts.append(el("dt", {}, name), el("dd", {}, ...value));
  const owners = el("span", {}, "…");
  fact("Age", `${age(metadata.creationTimestamp)} (${metadata.creationTimestamp})`);
  if (metadata.deletionTimestamp) {
    fact("Terminating", el("span", { class: "busy" }, `since ${metadata.deletionTimestamp}`));
  }
  if (metadata.finalizers?.length) fact("Finalizers", metadata.finalizers.join(", "));
  if (metadata.ownerReferences?.length) fact("Owners", owners);
  if (metadata.labels) fact("Labels", chips(metadata.labels));
  if (metadata.annotations) fact("Annotations", chips(metadata.annotations));
  if (status.phase) fact("Phase", el("span", { class: tone(status.phase) }, status.phase));
  if (kind.resource === "pods") podFacts(fact, object);
  const events = el("div", {}, el("p", { class: "quiet" }, "…"));
  fill(body, facts, conditions(status.conditions), containers(object), el("h2", {}, "Events"), events);
  await Promise.all([
    chain(app, metadata).then((found) => fill(owners, found)),
    showEvents(events, object),
  ]);
}

function chips(pairs) {
  return Object.entries(pairs).map(([name, value]) => el("span", { class: "chip", title: `${name}=${value}` }, `${name}=${value}`));
}

function podFacts(fact, pod) {
  fact("Node", pod.spec.nodeName || "not scheduled");
  fact("Address", pod.status.podIP || "none");
}

function conditions(found) {
  if (!found?.length) return null;
  return [el("h2", {}, "Conditions"), el("table", {}, found.map((each) => el("tr", {},
    el("td", {}, each.type), el("td", { class: tone(each.status) }, each.status), el("td", {}, each.reason || ""),
    el("td", {}, each.message || ""), el("td", { class: "quiet" }, age(each.lastTransitionTime)))))];
}

function containers(object) {
  const found = [...(object.status?.initContainerStatuses || []), ...(object.status?.containerStatuses || [])];
  if (!found.length) return null;
  return [el("h2", {}, "Containers"), el("table", {}, found.map((each) => {
    const [state, detail] = Object.entries(each.state || {})[0] || ["waiting", {}];
    const last = each.lastState?.terminated;
    return el("tr", {}, el("td", {}, each.name), el("td", {}, each.image),
      el("td", { class: tone(detail.reason || (state === "running" ? "Running" : "Pending")) }, detail.reason || state),
      el("td", {}, `${each.restartCount} restarts`),
      el("td", {}, detail.message || (last ? `last: ${last.reason} (${last.exitCode}) ${last.message || ""}` : "")));
  }))];
}

async function chain(app, metadata) {
  const found = [];
  let of = metadata;
  for (let depth = 0; depth < OWNERS_MAX; depth += 1) {
    const owner = (of.ownerReferences || []).find((each) => each.controller) || of.ownerReferences?.[0];
    if (!owner) break;
    const group = owner.apiVersion.includes("/") ? owner.apiVersion.split("/")[0] : "";
    const kind = app.kinds.find((each) => each.group === group && each.kind === owner.kind);
    if (found.length) found.push(" ← ");
    if (!kind) {
      found.push(`${owner.kind} ${owner.name}`);
      break;
    }
    found.push(el("a", { href: objectHash(kind, kind.namespaced ? metadata.namespace : "", owner.name) }, `${owner.kind} ${owner.name}`));
    try {
      of = (await get(pathOf(kind, metadata.namespace, owner.name))).metadata;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      found.push(` (${error.message})`);
      break;
    }
  }
  return found;
}

async function showEvents(place, object) {
  const { namespace, uid } = object.metadata;
  const path = namespace ? `/api/v1/namespaces/${encodeURIComponent(namespace)}/events` : "/api/v1/events";
  let found;
  try {
    found = (await list(path, { fieldSelector: `involvedObject.uid=${uid}` })).items;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    fill(place, el("p", { class: "quiet" }, error.message));
    return;
  }
  const time = (each) => each.lastTimestamp || each.series?.lastObservedTime || each.eventTime || each.metadata.creationTimestamp;
  found.sort((a, b) => Date.parse(time(b)) - Date.parse(time(a)));
  fill(place, found.length ? el("table", { id: "events" }, found.map((each) => el("tr", {},
    el("td", { class: "quiet" }, age(time(each))), el("td", { class: tone(each.type) }, each.type), el("td", {}, each.reason),
    el("td", {}, each.message), el("td", { class: "quiet" }, each.count > 1 ? `×${each.count}` : ""))))
    : el("p", { class: "quiet" }, "none"));
}

function yaml(body, path, object, reload) {
  const isSecret = object.kind === "Secret";
  const hidden = isSecret ? { ...object, data: object.data && Object.fromEntries(Object.keys(object.data).map((key) => [key, "hidden"])) } : object;
  const found = yamlLines(hidden);
  const blame = el("div", { class: "blame", id: "yaml" }, found.map(({ text, managers }) => el("div", { class: "line" },
    el("span", { class: "manager", title: managers.join(", ") }, managers.join(", ")), el("code", {}, text || "\u200b"))));
  const editor = el("textarea", { class: "editor", spellcheck: "false", "aria-label": "YAML" });
  const problem = el("p", { class: "bad" });
  const put = async (isTrial) => {
    problem.textContent = "";
    try {
      await write("PUT", path + (isTrial ? "?dryRun=All&fieldValidation=Strict" : "?fieldValidation=Strict"), editor.value, "application/yaml");
      toast(isTrial ? "The server would take it." : "Saved.", "good");
      if (!isTrial) await reload();
    } catch (error) {
      problem.textContent = error.code === 409 ? `${error.message} Your text is kept here; reload shows theirs.` : error.message;
    }
  };
  const edit = el("button", { id: "edit", onclick: () => {
    editor.value = `${yamlLines(object).map((each) => each.text).join("\n")}\n`;
    fill(body, el("div", { class: "bar" },
      el("button", { id: "try", onclick: () => put(true) }, "Dry run"),
      el("button", { id: "save", class: "good", onclick: () => put(false) }, "Save"),
      el("button", { onclick: () => reload() }, "Cancel")), problem, editor);
    editor.focus();
  } }, isSecret ? "Show and edit" : "Edit");
  fill(body, getMoment() ? null : el("div", { class: "bar" }, edit), blame);
}

const ACTIONS = [
  { name: "Scale…", verb: "patch", sub: "scale", when: (kind) => kind.sub.includes("scale"), run: scale },
  { name: "Restart", verb: "patch", when: (kind) => kind.group === "apps" && ["deployments", "daemonsets", "statefulsets"].includes(kind.resource), run: restart },
  { name: "Cordon", verb: "patch", when: (kind, object) => kind.resource === "nodes" && !kind.group && !object.spec.unschedulable, run: cordon(true) },
  { name: "Uncordon", verb: "patch", when: (kind, object) => kind.resource === "nodes" && !kind.group && object.spec.unschedulable, run: cordon(null) },
  { name: "Delete…", verb: "delete", when: (kind) => kind.verbs.includes("delete"), run: remove, isBad: true },
];

async function actions(place, kind, object, reload) {
  const { namespace = "", name } = object.metadata;
  const usable = ACTIONS.filter((each) => each.when(kind, object));
  const allowed = await Promise.all(usable.map((each) => may({
    verb: each.verb, group: kind.group, version: kind.version, resource: kind.resource, subresource: each.sub, namespace, name,
  }).catch(() => false)));
  fill(place, usable.filter((_, index) => allowed[index]).map((each) => el("button", {
    class: each.isBad ? "bad" : "",
    onclick: async () => {
      try {
        if (await each.run(kind, object)) await reload();
      } catch (error) {
        toast(error.message, "bad");
      }
    },
  }, each.name)));
}

async function scale(kind, object) {
  const text = prompt(`Replicas of ${object.metadata.name}`, object.spec.replicas ?? 1);
  if (text === null) return false;
  if (!/^\d{1,9}$/.test(text.trim())) throw new Error(`"${text}" is not a number of replicas`);
  const { namespace, name } = object.metadata;
  await write("PATCH", pathOf(kind, namespace, name, "scale"), { spec: { replicas: Number(text) } }, MERGE);
  toast(`Scaled to ${text.trim()}.`, "good");
  return true;
}

async function restart(kind, object) {
  const { namespace, name } = object.metadata;
  const annotations = { [RESTARTED]: new Date().toISOString().replace(/\.\d+Z/, "Z") };
  await write("PATCH", pathOf(kind, namespace, name), { spec: { template: { metadata: { annotations } } } }, MERGE);
  toast("A rollout has begun.", "good");
  return true;
}

function cordon(unschedulable) {
  return async (kind, object) => {
    await write("PATCH", pathOf(kind, "", object.metadata.name), { spec: { unschedulable } }, MERGE);
    toast(unschedulable ? "Cordoned." : "Uncordoned.", "good");
    return true;
  };
}

async function remove(kind, object) {
  const { namespace, name, uid } = object.metadata;
  if (!confirm(`Delete ${kind.kind} ${namespace ? `${namespace}/` : ""}${name}?`)) return false;
  await write("DELETE", pathOf(kind, namespace, name), { propagationPolicy: "Background", preconditions: { uid } });
  toast("Deleted.", "good");
  location.hash = kindHash(kind);
  return false;
}
