// What is known of pods, nodes and rollouts, in a few values each, so that 10,000 of them are small.

const FAILING = /(BackOff|Error|Failed|OOMKilled|Evicted|Invalid|NeverPull|Unknown)/;

/** Return the summary of a pod: its status as kubectl prints it, and what it waits for. */
export function summaryOf(pod) {
  const { metadata, spec, status = {} } = pod;
  const all = [...(status.initContainerStatuses || []), ...(status.containerStatuses || [])];
  const bad = all.find(
    (each) =>
      FAILING.test(each.state?.waiting?.reason || "") ||
      (each.state?.terminated?.exitCode && spec.restartPolicy === "Never"),
  );
  const slow = all.find((each) => each.state?.waiting);
  const condition = (status.conditions || []).find((each) => each.status === "False" && each.message);
  const waiting = (bad || slow)?.state?.waiting;
  return {
    uid: metadata.uid,
    namespace: metadata.namespace,
    name: metadata.name,
    version: metadata.resourceVersion,
    node: spec.nodeName || "",
    phase: status.phase || "Pending",
    deletedAt: metadata.deletionTimestamp || "",
    finalizers: metadata.finalizers || [],
    createdAt: metadata.creationTimestamp,
    grace: metadata.deletionGracePeriodSeconds || 0,
    reason: status.reason || waiting?.reason || bad?.state?.terminated?.reason || condition?.reason || "",
    message: waiting?.message || condition?.message || status.message || "",
    container: (bad || slow)?.name || "",
    restarts: all.reduce((sum, each) => sum + (each.restartCount || 0), 0),
    last: lastOf(bad),
    isReady: (status.conditions || []).some((each) => each.type === "Ready" && each.status === "True"),
  };
}

function lastOf(container) {
  const ended = container?.lastState?.terminated || container?.state?.terminated;
  return ended
    ? `exit code ${ended.exitCode} (${ended.reason || "?"})${ended.message ? `: ${ended.message}` : ""}`
    : "";
}

export function isFailing(pod) {
  return pod.phase === "Failed" || FAILING.test(pod.reason);
}

export function isWaiting(pod) {
  return pod.phase === "Pending" && !isFailing(pod);
}

/** Return how a pod does, in a word. */
export function wordOf(pod) {
  if (pod.deletedAt) return "Terminating";
  if (pod.phase === "Running" && !FAILING.test(pod.reason)) return pod.isReady ? "Ready" : "Running";
  return pod.reason || pod.phase;
}

export function nodeOf(node) {
  const ready = (node.status?.conditions || []).find((each) => each.type === "Ready");
  return {
    uid: node.metadata.uid,
    name: node.metadata.name,
    namespace: "",
    isReady: ready?.status === "True",
    reason: ready?.reason || "no status",
    message: ready?.message || "",
    since: ready?.lastTransitionTime || node.metadata.creationTimestamp,
    isCordoned: Boolean(node.spec?.unschedulable),
    version: node.metadata.resourceVersion,
  };
}

/** Return how far a Deployment, StatefulSet or DaemonSet is. */
export function rolloutOf(kind, { metadata, spec, status = {} }) {
  const desired = kind.kind === "DaemonSet" ? status.desiredNumberScheduled || 0 : (spec.replicas ?? 1);
  const ready = (kind.kind === "DaemonSet" ? status.numberReady : status.readyReplicas) || 0;
  const byHand = spec.updateStrategy?.type === "OnDelete";
  const updated =
    (kind.kind === "DaemonSet" ? status.updatedNumberScheduled : status.updatedReplicas) ?? (byHand ? desired : 0);
  const isSeen = (status.observedGeneration || 0) >= (metadata.generation || 0);
  const progress = (status.conditions || []).find((each) => each.type === "Progressing");
  const most = status.replicas ?? desired;
  return {
    uid: metadata.uid,
    kind,
    namespace: metadata.namespace,
    name: metadata.name,
    version: metadata.resourceVersion,
    desired,
    ready,
    updated,
    isRolling: !isSeen || ready !== desired || (!byHand && updated < desired) || most > desired,
    reason: spec.paused ? "paused" : progress?.reason === "ProgressDeadlineExceeded" ? progress.message : "",
  };
}
