// The revisions of a rollout: what each changed, and the way back.
//
// A Deployment keeps them as ReplicaSets; StatefulSets and DaemonSets as ControllerRevisions.

import { ApiError } from "../server/connection.js";
import { DEPLOYMENTS, isSame, pathOf, REPLICA_SETS, REVISIONS } from "../server/kinds.js";
import { list } from "../server/lists.js";
import { ask } from "../parts/dialogs.js";
import { el, fill, quiet, table, toast } from "../parts/elements.js";
import { age } from "../text/times.js";
import { yamlText } from "../text/yaml.js";
import { shown } from "./edit.js";
import { selectorOf } from "./pods_of.js";

const NUMBER = "deployment.kubernetes.io/revision";
const CAUSE = "kubernetes.io/change-cause";
const HASH = "pod-template-hash";
// What kubectl does not take over from a ReplicaSet when it goes back.
const KEPT = [
  "kubectl.kubernetes.io/last-applied-configuration",
  NUMBER,
  "deployment.kubernetes.io/revision-history",
  "deployment.kubernetes.io/desired-replicas",
  "deployment.kubernetes.io/max-replicas",
  "deprecated.deployment.rollback.to",
];

export async function revisions(app, body, { kind, object, reload }) {
  let all;
  try {
    all = await readRevisions(app, kind, object);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    fill(body, el("p", { class: "bad" }, error.message));
    return;
  }
  const compared = el("div", { id: "difference" });
  const now = all[0];
  const may =
    !app.route.moment &&
    (await app.access.may({
      verb: "patch",
      group: kind.group,
      resource: kind.resource,
      namespace: object.metadata.namespace,
      name: object.metadata.name,
    }));
  fill(
    body,
    all.length
      ? table(
          ["revision", "age", "images", "cause", "pods", ""],
          all.map((each, at) => [
            `${each.number}${at ? "" : " (now)"}`,
            age(each.createdAt),
            images(each.template),
            each.cause,
            each.pods,
            [
              at > 0 &&
                el(
                  "button",
                  {
                    type: "button",
                    onclick: () =>
                      fill(
                        compared,
                        shown(`From revision ${each.number} to ${now.number}`, text(each.template), text(now.template)),
                      ),
                  },
                  "Compare",
                ),
              at > 0 &&
                may &&
                el(
                  "button",
                  {
                    type: "button",
                    "data-undo": each.number,
                    onclick: () => undo(each).catch((error) => toast(error.message, "bad")),
                  },
                  "Go back to it…",
                ),
            ],
          ]),
        )
      : quiet("There are no revisions."),
    compared,
  );

  async function undo(to) {
    if (
      !(await ask(`Go back to revision ${to.number}?`, [], "Go back", {
        about: `The pods of ${kind.kind} ${object.metadata.name} are replaced by those of that revision.`,
      }))
    )
      return;
    await app.server.write(
      "PATCH",
      pathOf(kind, object.metadata.namespace, object.metadata.name),
      ...patchTo(kind, object, to),
    );
    toast(`Going back to revision ${to.number}.`, "good");
    reload();
  }
}

/** Return the body and media type of the patch that goes back to a revision. */
export function patchTo(kind, object, { template, annotations, data }) {
  if (!isSame(kind, DEPLOYMENTS)) return [data, "application/strategic-merge-patch+json"];
  const own = object.metadata.annotations || {};
  const kept = Object.fromEntries(Object.entries(own).filter(([name]) => KEPT.includes(name)));
  const back = Object.fromEntries(Object.entries(annotations).filter(([name]) => !KEPT.includes(name)));
  return [
    [
      // What is replaced must still be what was read: somebody else's change is not undone with it. The
      // resourceVersion is not tested, since each status that the controller writes changes it.
      { op: "test", path: "/metadata/generation", value: object.metadata.generation },
      ...(object.metadata.annotations ? [{ op: "test", path: "/metadata/annotations", value: own }] : []),
      { op: "replace", path: "/spec/template", value: template },
      { op: "add", path: "/metadata/annotations", value: { ...back, ...kept } },
    ],
    "application/json-patch+json",
  ];
}

/** Return the revisions of an object, the newest first. */
async function readRevisions(app, kind, object) {
  const isDeployment = isSame(kind, DEPLOYMENTS);
  const path = pathOf(isDeployment ? REPLICA_SETS : REVISIONS, object.metadata.namespace);
  const { items } = await list(app.server, path, { labelSelector: selectorOf(object) });
  const own = items.filter((each) =>
    (each.metadata.ownerReferences || []).some((one) => one.controller && one.uid === object.metadata.uid),
  );
  return own.map((each) => (isDeployment ? ofReplicaSet(each) : ofRevision(each))).sort((a, b) => b.number - a.number);
}

function ofReplicaSet({ metadata, spec, status = {} }) {
  const labels = { ...spec.template.metadata?.labels };
  delete labels[HASH];
  const template = { ...spec.template, metadata: { ...spec.template.metadata, labels } };
  return {
    number: Number(metadata.annotations?.[NUMBER] || 0),
    createdAt: metadata.creationTimestamp,
    annotations: metadata.annotations || {},
    cause: metadata.annotations?.[CAUSE] || "",
    template,
    pods: status.replicas || 0,
  };
}

function ofRevision({ metadata, revision, data }) {
  return {
    number: revision,
    createdAt: metadata.creationTimestamp,
    annotations: {},
    cause: metadata.annotations?.[CAUSE] || "",
    template: data?.spec?.template || {},
    data,
    pods: "",
  };
}

function images(template) {
  return (template.spec?.containers || []).map((each) => each.image).join(", ");
}

function text(template) {
  const { $patch, ...rest } = template; // of a patch, which ControllerRevisions are
  return yamlText(rest);
}
