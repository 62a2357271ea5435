// The head of the page: namespace, kind, time, user.

import { ApiError } from "../server/connection.js";
import { objects } from "../server/lists.js";
import { el, fill, toast } from "../parts/elements.js";
import { Timeline } from "./timeline.js";

const NAMESPACES_MAX = 2000;

export class Header {
  constructor(app) {
    this.app = app;
    this.namespace = el("select", { id: "namespace", "aria-label": "Namespace", onchange: () => {
      location.hash = app.href({ ...app.route, namespace: this.namespace.value });
    } });
    this.timeline = new Timeline(app);
    this.user = el("span", { class: "quiet", id: "user" });
    fill(document.getElementById("top"), el("a", { class: "brand", href: "#/" }, "kvstack"), this.namespace,
      el("button", { type: "button", id: "choose", onclick: () => app.keys.choose() }, "Kind :"),
      el("a", { class: "button", id: "create", href: "#/create" }, "Create…"),
      el("span", { class: "grow" }), this.user,
      el("button", { type: "button", id: "leave", onclick: () => location.reload() }, "Sign out"),
      el("button", { type: "button", id: "help", "aria-label": "Help", onclick: () => app.keys.help() }, "?"));
    fill(document.getElementById("time"), this.timeline.element);
  }

  /** Show the user, and the namespaces there are. */
  async begin() {
    const { username, groups = [] } = this.app.user;
    fill(this.user, username);
    this.user.title = groups.join("\n");
    this.names = [];
    try {
      this.names = (await objects(this.app.server, "/api/v1/namespaces")).map((each) => each.metadata.name).slice(0, NAMESPACES_MAX);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      toast(error.message, "bad");
    }
    this.timeline.begin();
    this.mark();
  }

  /** Show what the address says. */
  mark() {
    const { namespace, view } = this.app.route;
    // Who may not list namespaces can still be in one.
    const names = !namespace || this.names.includes(namespace) ? this.names : [namespace, ...this.names];
    fill(this.namespace, el("option", { value: "" }, "all namespaces"), names.map((name) => el("option", { value: name }, name)));
    this.namespace.value = namespace;
    this.namespace.hidden = view === "object" || view === "nodes";
    document.getElementById("create").href = this.app.href({ view: "create", moment: "" });
    this.timeline.mark();
  }
}
