// What an object is, who owns it and what it owns, how it does, what happened to it.

import { ApiError } from "../server/connection.js";
import { latestEvents, timeOf } from "../server/events.js";
import { isSame, kindOf, NODES, pathOf, PODS } from "../server/kinds.js";
import { copies, el, fill, quiet, section, table, toned } from "../parts/elements.js";
import { short } from "../text/plain.js";
import { age } from "../text/times.js";
import { tone } from "../text/tone.js";
import { withoutSecrets } from "../text/yaml.js";
import { podsOf } from "./pods_of.js";
import { usage } from "./usage.js";

const OWNERS_MAX = 8;
const EVENTS_MAX = 50;
const CHIPS_MAX = 100;
const VALUE_MAX = 300;
const MESSAGE_MAX = 1000;
const EVENTS_MS = 10_000;
const READ_MAX = 1000;

export function summary(app, body, { kind, object }) {
  const { metadata, status = {} } = withoutSecrets(object);
  const facts = el("dl", { class: "facts" });
  const fact = (name, ...value) => facts.append(el("dt", {}, name), el("dd", {}, ...value));
  fact("Age", `${age(metadata.creationTimestamp)} (${metadata.creationTimestamp})`);
  if (metadata.deletionTimestamp)
    fact(
      "Terminating",
      toned("busy", `since ${metadata.deletionTimestamp}`),
      metadata.finalizers ? `, waits for ${metadata.finalizers.join(", ")}` : "",
    );
  else if (metadata.finalizers?.length) fact("Finalizers", metadata.finalizers.join(", "));
  const owners = el("span", {}, "…");
  if (metadata.ownerReferences?.length) fact("Owned by", owners);
  if (metadata.labels) fact("Labels", chips(metadata.labels));
  if (metadata.annotations) fact("Annotations", chips(metadata.annotations));
  if (status.phase) fact("Phase", toned(tone(status.phase), status.phase));
  if (isSame(kind, PODS)) podFacts(app, fact, object);
  if (kind.resource === "services" && !kind.group) serviceFacts(fact, object);
  const events = el("div", { id: "events" });
  const graphs = el("div", { id: "usage" });
  const pods = el("div", { id: "pods" });
  fill(body, facts, graphs, conditions(status.conditions), containers(object), pods, events);
  const ends = [app.repeat((signal) => showEvents(app, events, object, signal), EVENTS_MS)];
  if (metadata.ownerReferences?.length)
    chain(app, metadata)
      .then((found) => fill(owners, found))
      .catch((error) => app.fail(error));
  if (!app.route.moment && (isSame(kind, PODS) || isSame(kind, NODES))) ends.push(usage(app, graphs, kind, object));
  ends.push(podsOf(app, pods, kind, object));
  return () => {
    for (const each of ends) each();
  };
}

function chips(pairs) {
  const all = Object.entries(pairs);
  return [
    all
      .slice(0, CHIPS_MAX)
      .map(([name, value]) =>
        el(
          "span",
          { class: "chip", title: short(`${name}=${value}`, MESSAGE_MAX) },
          short(`${name}=${value}`, VALUE_MAX),
        ),
      ),
    all.length > CHIPS_MAX && ` and ${all.length - CHIPS_MAX} more`,
  ];
}

function podFacts(app, fact, pod) {
  const { spec, status = {}, metadata } = pod;
  fact("Node", spec.nodeName ? app.link(NODES, "", spec.nodeName) : "none yet");
  fact("Address", (status.podIPs || []).map((each) => each.ip).join(", ") || "none");
  fact("Service account", spec.serviceAccountName || "default");
  if (status.qosClass) fact("Quality of service", status.qosClass);
  const ports = (spec.containers || []).flatMap((each) => each.ports || []);
  fact("Port forward", hint(`pod/${metadata.name}`, metadata.namespace, ports[0]?.containerPort || 80));
}

function serviceFacts(fact, service) {
  const { spec, metadata } = service;
  fact("Type", spec.type || "ClusterIP");
  fact(
    "Addresses",
    [
      ...(spec.clusterIPs || []),
      ...(spec.externalIPs || []),
      ...(service.status?.loadBalancer?.ingress || []).map((each) => each.ip || each.hostname),
    ].join(", ") || "none",
  );
  fact(
    "Ports",
    (spec.ports || [])
      .map(
        (each) =>
          `${each.name ? `${each.name} ` : ""}${each.port}/${each.protocol || "TCP"} to ${each.targetPort ?? each.port}${each.nodePort ? `, node port ${each.nodePort}` : ""}`,
      )
      .join("; ") || "none",
  );
  fact("Port forward", hint(`service/${metadata.name}`, metadata.namespace, spec.ports?.[0]?.port || 80));
}

/** A browser cannot listen on a port: kubectl does. */
function hint(target, namespace, port) {
  const command = `kubectl port-forward -n ${namespace} ${target} ${port < 1024 ? `8080:${port}` : port}`;
  return [el("code", { id: "port-forward" }, command), " ", copies(command)];
}

function conditions(found) {
  return section(
    "Conditions",
    found?.length > 0 &&
      table(
        ["type", "status", "reason", "message", "since"],
        found.map((each) => [
          each.type,
          toned(tone(each.status), each.status),
          each.reason || "",
          short(each.message || "", MESSAGE_MAX),
          age(each.lastTransitionTime),
        ]),
      ),
  );
}

function containers(object) {
  const status = object.status || {};
  const states = [
    ...(status.initContainerStatuses || []),
    ...(status.containerStatuses || []),
    ...(status.ephemeralContainerStatuses || []),
  ];
  if (states.length) {
    return section(
      "Containers",
      table(
        ["name", "image", "state", "restarts", "why"],
        states.map((each) => {
          const [state, detail] = Object.entries(each.state || {})[0] || ["waiting", {}];
          const last = each.lastState?.terminated;
          return [
            each.name,
            short(each.image || "", VALUE_MAX),
            toned(tone(detail.reason || (state === "running" ? "Running" : "Pending")), detail.reason || state),
            each.restartCount,
            short(
              [detail.message, last && `last: ${last.reason || "?"} (${last.exitCode}) ${last.message || ""}`]
                .filter(Boolean)
                .join("; "),
              MESSAGE_MAX,
            ),
          ];
        }),
      ),
    );
  }
  const template = object.spec?.template?.spec;
  return section(
    "Containers",
    template?.containers?.length > 0 &&
      table(
        ["name", "image"],
        template.containers.map((each) => [each.name, short(each.image || "", VALUE_MAX)]),
      ),
  );
}

/** Return the owners of an object, up to one that has none. */
async function chain(app, metadata) {
  const found = [];
  let of = metadata;
  for (let depth = 0; depth < OWNERS_MAX; depth += 1) {
    const owner = (of.ownerReferences || []).find((each) => each.controller) || of.ownerReferences?.[0];
    if (!owner) break;
    const kind = kindOf(app.kinds, owner.apiVersion, owner.kind);
    if (found.length) found.push(" ← ");
    if (!kind) {
      found.push(`${owner.kind} ${owner.name}`);
      break;
    }
    const namespace = kind.namespaced ? metadata.namespace : "";
    found.push(app.link(kind, namespace, owner.name, `${owner.kind} ${owner.name}`));
    try {
      const next = (await app.server.get(pathOf(kind, namespace, owner.name))).metadata;
      if (next.uid !== owner.uid) {
        found.push(" (another one, of the same name)");
        break;
      }
      of = next;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      found.push(` (${error.message})`);
      break;
    }
  }
  return found;
}

async function showEvents(app, place, object, signal) {
  const { namespace, uid, name } = object.metadata;
  let kept;
  // Events of nodes name the node in the place of its uid.
  const selector =
    object.kind === "Node" ? `involvedObject.kind=Node,involvedObject.name=${name}` : `involvedObject.uid=${uid}`;
  try {
    kept = await latestEvents(app.server, namespace, selector, { max: READ_MAX, signal });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    fill(place, el("h2", {}, "Events"), quiet(error.message));
    return;
  }
  fill(
    place,
    el("h2", {}, "Events"),
    kept.length
      ? table(
          ["age", "type", "reason", "message", "times", "from"],
          kept
            .slice(0, EVENTS_MAX)
            .map((each) => [
              age(timeOf(each)),
              toned(tone(each.type), each.type),
              each.reason,
              short(each.message || "", MESSAGE_MAX),
              each.series?.count || each.count || 1,
              each.reportingComponent || each.source?.component || "",
            ]),
        )
      : quiet("none"),
  );
}
