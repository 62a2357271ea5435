// The kinds that the cluster has, from discovery: built-in ones, custom resources, aggregated APIs.
//
//     {group, version, resource, kind, namespaced, verbs, short, sub}

const DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

export const PODS = { group: "", version: "v1", resource: "pods", kind: "Pod", namespaced: true };
export const NODES = { group: "", version: "v1", resource: "nodes", kind: "Node", namespaced: false };
export const EVENTS = { group: "", version: "v1", resource: "events", kind: "Event", namespaced: true };
export const REPLICA_SETS = {
  group: "apps",
  version: "v1",
  resource: "replicasets",
  kind: "ReplicaSet",
  namespaced: true,
};
export const DEPLOYMENTS = {
  group: "apps",
  version: "v1",
  resource: "deployments",
  kind: "Deployment",
  namespaced: true,
};
export const STATEFUL_SETS = {
  group: "apps",
  version: "v1",
  resource: "statefulsets",
  kind: "StatefulSet",
  namespaced: true,
};
export const DAEMON_SETS = {
  group: "apps",
  version: "v1",
  resource: "daemonsets",
  kind: "DaemonSet",
  namespaced: true,
};
export const REVISIONS = {
  group: "apps",
  version: "v1",
  resource: "controllerrevisions",
  kind: "ControllerRevision",
  namespaced: true,
};

/** Return every kind that can be listed, of the preferred version of its group. */
export async function readKinds(server) {
  const found = [];
  for (const path of ["/api", "/apis"]) {
    const answer = await server.get(path, { accept: DISCOVERY, isPresent: true });
    for (const group of answer.items || []) {
      const seen = new Set();
      for (const version of group.versions || []) {
        for (const each of version.resources || []) {
          if (seen.has(each.resource) || !each.verbs.includes("list")) continue;
          seen.add(each.resource);
          found.push({
            group: group.metadata?.name || "",
            version: version.version,
            resource: each.resource,
            kind: each.responseKind?.kind || each.resource,
            namespaced: each.scope === "Namespaced",
            verbs: each.verbs,
            short: each.shortNames || [],
            sub: (each.subresources || []).map((one) => one.subresource),
          });
        }
      }
    }
  }
  return found;
}

/** Return the path of a kind, of its objects in a namespace, or of one object. */
export function pathOf(kind, namespace = "", name = "", sub = "") {
  const parts = kind.group ? ["apis", kind.group, kind.version] : ["api", kind.version];
  if (namespace && kind.namespaced) parts.push("namespaces", namespace);
  parts.push(kind.resource);
  if (name) parts.push(name);
  if (sub) parts.push(sub);
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

/** Whether two rows of kinds are the same resource. */
export function isSame(kind, other) {
  return kind.group === other.group && kind.resource === other.resource;
}

/** Return the kind of an owner or of an event's object, if the cluster has it. */
export function kindOf(kinds, apiVersion, name) {
  const group = apiVersion?.includes("/") ? apiVersion.split("/")[0] : "";
  return kinds.find((each) => each.group === group && each.kind === name);
}

/** Return the kinds that a text means, the best first: a plural, a short name, the beginning of one. */
export function named(kinds, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const names = (each) => [each.resource, each.kind.toLowerCase(), `${each.resource}.${each.group}`, ...each.short];
  const rank = (each) => {
    if (names(each).includes(wanted)) return 0;
    if (names(each).some((name) => name.startsWith(wanted))) return 1;
    return names(each).some((name) => name.includes(wanted)) ? 2 : 3;
  };
  return kinds
    .map((each) => ({ each, rank: rank(each) }))
    .filter((one) => one.rank < 3)
    .sort((a, b) => a.rank - b.rank || a.each.resource.length - b.each.resource.length)
    .map((one) => one.each);
}
