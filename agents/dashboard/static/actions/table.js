// What can be done with an object, and who may: buttons are shown only for what the server would allow.

import { isSame, NODES } from "../server/kinds.js";
import { remove } from "./objects.js";
import { drain } from "./drain.js";
import { cordon, pause, restart, scale, suspend, trigger } from "./changes.js";

const isWorkload = (kind) =>
  kind.group === "apps" && ["deployments", "daemonsets", "statefulsets"].includes(kind.resource);
const isNode = (kind) => isSame(kind, NODES);
const isDeployment = (kind) => kind.group === "apps" && kind.resource === "deployments";
const isCronJob = (kind) => kind.group === "batch" && kind.resource === "cronjobs";

const ACTIONS = [
  { name: "Scale…", verb: "patch", sub: "scale", when: (kind) => kind.sub.includes("scale"), run: scale },
  { name: "Restart", verb: "patch", when: isWorkload, run: restart },
  { name: "Pause", verb: "patch", when: (kind, object) => isDeployment(kind) && !object.spec.paused, run: pause(true) },
  { name: "Resume", verb: "patch", when: (kind, object) => isDeployment(kind) && object.spec.paused, run: pause(null) },
  { name: "Run now", verb: "create", resource: "jobs", when: isCronJob, run: trigger },
  {
    name: "Suspend",
    verb: "patch",
    when: (kind, object) => isCronJob(kind) && !object.spec.suspend,
    run: suspend(true),
  },
  {
    name: "Resume",
    verb: "patch",
    when: (kind, object) => isCronJob(kind) && object.spec.suspend,
    run: suspend(false),
  },
  {
    name: "Cordon",
    verb: "patch",
    when: (kind, object) => isNode(kind) && !object.spec?.unschedulable,
    run: cordon(true),
  },
  {
    name: "Uncordon",
    verb: "patch",
    when: (kind, object) => isNode(kind) && object.spec?.unschedulable,
    run: cordon(null),
  },
  { name: "Drain…", verb: "patch", when: isNode, run: drain },
  { name: "Delete…", verb: "delete", when: (kind) => kind.verbs.includes("delete"), run: remove, isBad: true },
];

/** Return the actions that the user may do with an object. */
export async function actionsOf(app, kind, object) {
  const { namespace = "", name } = object.metadata;
  const usable = ACTIONS.filter((each) => each.when(kind, object));
  const allowed = await Promise.all(
    usable.map((each) =>
      app.access.may({
        verb: each.verb,
        group: kind.group,
        version: kind.version,
        resource: each.resource || kind.resource,
        subresource: each.sub,
        namespace,
        name: each.resource ? "" : name,
      }),
    ),
  );
  return usable.filter((_, index) => allowed[index]);
}
