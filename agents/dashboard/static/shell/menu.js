// The kinds at the side, those that most people want first.

import { el, fill } from "../parts/elements.js";

const FIRST = [
  "pods",
  "deployments",
  "statefulsets",
  "daemonsets",
  "jobs",
  "cronjobs",
  "services",
  "ingresses",
  "configmaps",
  "secrets",
  "persistentvolumeclaims",
  "events",
  "namespaces",
];
const OWN_GROUPS = ["", "apps", "batch", "networking.k8s.io"];

export class Menu {
  constructor(app) {
    this.app = app;
    this.element = document.getElementById("kinds");
  }

  mark() {
    const { app } = this;
    const rank = (kind) =>
      OWN_GROUPS.includes(kind.group) && FIRST.includes(kind.resource) ? FIRST.indexOf(kind.resource) : FIRST.length;
    const sorted = [...app.kinds].sort((a, b) => rank(a) - rank(b) || a.kind.localeCompare(b.kind));
    const own = [
      ["Overview", ""],
      ["Nodes, used", "nodes"],
      ["Changes", "changes"],
    ].map(([name, view]) => this.entry(name, app.href({ view }), app.route.view === view));
    fill(
      this.element,
      own,
      sorted.map((kind) =>
        this.entry(
          kind.kind,
          app.kindHref(kind),
          ["kind", "object"].includes(app.route.view) &&
            kind.group === app.route.group &&
            kind.resource === app.route.resource,
          `${kind.resource}.${kind.group || "core"}/${kind.version}`,
        ),
      ),
    );
  }

  entry(name, href, isChosen, title) {
    return el(
      "a",
      { href, title, class: isChosen ? "chosen" : "", "aria-current": isChosen ? "page" : undefined },
      name,
    );
  }
}
