// Small changes of one object, as patches of the fields that they are about.

import { pathOf } from "../server/kinds.js";
import { ask } from "../parts/dialogs.js";
import { toast } from "../parts/elements.js";
import { rfc3339 } from "../text/times.js";

const MERGE = "application/merge-patch+json";
const RESTARTED = "kubectl.kubernetes.io/restartedAt";
const JOB_NAME_MAX = 63;

async function patch(app, kind, { metadata }, body, told, sub = "") {
  await app.server.write("PATCH", pathOf(kind, metadata.namespace, metadata.name, sub), body, MERGE);
  toast(told, "good");
  return true;
}

export async function scale(app, kind, object) {
  const answer = await ask(
    `Scale ${object.metadata.name}`,
    [{ name: "replicas", label: "Replicas", value: object.spec.replicas ?? 1, type: "number", min: 0 }],
    "Scale",
  );
  if (!answer) return false;
  if (!/^\d{1,9}$/.test(answer.replicas.trim())) throw new Error(`"${answer.replicas}" is not a number of replicas`);
  return patch(
    app,
    kind,
    object,
    { spec: { replicas: Number(answer.replicas) } },
    `Scaled to ${Number(answer.replicas)}.`,
    "scale",
  );
}

export async function restart(app, kind, object) {
  const annotations = { [RESTARTED]: rfc3339(Date.now()) };
  return patch(app, kind, object, { spec: { template: { metadata: { annotations } } } }, "A rollout has begun.");
}

export function pause(paused) {
  return (app, kind, object) =>
    patch(app, kind, object, { spec: { paused } }, paused ? "Rollouts wait." : "Rollouts go on.");
}

export function suspend(isSuspended) {
  return (app, kind, object) =>
    patch(
      app,
      kind,
      object,
      { spec: { suspend: isSuspended } },
      isSuspended ? "Suspended." : "It runs again by its schedule.",
    );
}

export function cordon(unschedulable) {
  return (app, kind, object) =>
    patch(
      app,
      kind,
      object,
      { spec: { unschedulable } },
      unschedulable ? "No pods are scheduled here any more." : "Pods are scheduled here again.",
    );
}

/** Make the Job of a CronJob now. */
export async function trigger(app, kind, object) {
  const { name, namespace, uid } = object.metadata;
  const { metadata: template = {}, spec } = object.spec.jobTemplate;
  const job = {
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: {
      generateName: `${name.slice(0, JOB_NAME_MAX - 12)}-manual-`,
      labels: template.labels,
      annotations: { "cronjob.kubernetes.io/instantiate": "manual", ...template.annotations },
      ownerReferences: [{ apiVersion: "batch/v1", kind: "CronJob", name, uid, controller: true }],
    },
    spec,
  };
  const made = await app.server.write("POST", pathOf({ ...kind, resource: "jobs" }, namespace), job);
  toast(`Job ${made.metadata.name} is created.`, "good");
  return true;
}
