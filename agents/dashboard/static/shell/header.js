// The head of the page: namespace, kind, time, user.

import { Live } from "../server/live.js";
import { el, fill, toast } from "../parts/elements.js";
import { Timeline } from "./timeline.js";

const NAMESPACES_MAX = 2000;

export class Header {
  constructor(app) {
    this.app = app;
    this.namespace = el("select", {
      id: "namespace",
      "aria-label": "Namespace",
      onchange: () => {
        location.hash = app.href({ ...app.route, namespace: this.namespace.value });
      },
    });
    this.timeline = new Timeline(app);
    this.user = el("span", { class: "quiet", id: "user" });
    fill(
      document.getElementById("top"),
      el("a", { class: "brand", href: "#/" }, "kvstack"),
      this.namespace,
      el("button", { type: "button", id: "choose", onclick: () => app.keys.choose() }, "Kind :"),
      el("a", { class: "button", id: "create", href: "#/create" }, "Create…"),
      el("span", { class: "grow" }),
      this.user,
      el("button", { type: "button", id: "leave", onclick: () => location.reload() }, "Sign out"),
      el("button", { type: "button", id: "help", "aria-label": "Help", onclick: () => app.keys.help() }, "?"),
    );
    fill(document.getElementById("time"), this.timeline.element);
  }

  /** Show the user, and the namespaces there are. */
  begin() {
    const { username, groups = [] } = this.app.user;
    fill(this.user, username);
    this.user.title = groups.join("\n");
    this.rest();
    this.namespaces = new Live(this.app.server, "/api/v1/namespaces", {
      isPresent: true,
      keep: (each) => each.metadata.name,
      onChange: () => this.markNamespace(),
      onState: (problem) => problem && toast(problem, "bad"),
    });
    this.namespaces.run().catch((error) => this.app.fail(error));
    this.timeline.begin();
    this.mark();
  }

  /** Ask for nothing more until begin() is called. */
  rest() {
    this.namespaces?.close();
    this.timeline.rest();
  }

  /** Show what the address says. */
  mark() {
    const { view } = this.app.route;
    this.markNamespace();
    this.namespace.hidden = view === "object" || view === "nodes";
    document.getElementById("create").href = this.app.href({ view: "create", moment: "" });
    this.timeline.mark();
  }

  markNamespace() {
    const { namespace } = this.app.route;
    const known = [...this.namespaces.entries.values()].sort().slice(0, NAMESPACES_MAX);
    // Who may not list namespaces can still be in one.
    const names = !namespace || known.includes(namespace) ? known : [namespace, ...known];
    fill(
      this.namespace,
      el("option", { value: "" }, "all namespaces"),
      names.map((name) => el("option", { value: name }, name)),
    );
    this.namespace.value = namespace;
  }
}
