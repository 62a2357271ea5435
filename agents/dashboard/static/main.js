// The page: who sits before it, which kind is shown, which moment is looked at, and the keys.
//
//     :  choose a kind      /  filter      Enter, d  open      l  logs      g  overview      Esc  back

import { ApiError, getMoment, kinds, list, setMoment, setToken, whoAmI } from "./api.js";
import { el, fill, toast } from "./dom.js";
import { listing } from "./listing.js";
import { objectView } from "./object.js";
import { overview } from "./overview.js";
import { kindHash, objectHash, parse } from "./routes.js";

const ANONYMOUS = "system:anonymous";
const FIRST = ["pods", "deployments", "services", "nodes", "events", "configmaps", "secrets", "jobs", "statefulsets", "namespaces"];

class App {
  constructor() {
    this.kinds = [];
    this.namespace = "";
    this.current = {};
    this.close = () => undefined;
    this.view = document.getElementById("view");
  }

  fail(error) {
    if (error.name === "AbortError") return;
    console.error(error);
    toast(error.message, "bad");
  }

  async start() {
    let user;
    try {
      user = await whoAmI();
    } catch (error) {
      if (!(error instanceof ApiError) || ![401, 403].includes(error.code)) throw error;
      this.login("");
      return;
    }
    if (user.username === ANONYMOUS) {
      this.login("");
      return;
    }
    this.user = user;
    this.kinds = await kinds();
    await this.head();
    this.menu();
    addEventListener("hashchange", () => this.show());
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.show();
  }

  login(problem) {
    const token = el("input", { type: "password", id: "token", autocomplete: "off", "aria-label": "Token" });
    const told = el("p", { class: "bad" }, problem);
    const form = el("form", { class: "login", onsubmit: async (event) => {
      event.preventDefault();
      setToken(token.value.trim());
      try {
        if ((await whoAmI()).username === ANONYMOUS) throw new Error("The token is empty.");
        await this.start();
      } catch (error) {
        setToken("");
        told.textContent = error.message;
      }
    } }, el("h1", {}, "kvstack"),
    el("p", {}, "Paste a token, for example of ", el("code", {}, "kubectl create token NAME"),
      ". It is kept in this page alone, and ends with it. Through ", el("code", {}, "kubectl proxy"), " none is needed."),
    token, el("button", { class: "good" }, "Sign in"), told);
    fill(this.view, form);
    token.focus();
  }

  async head() {
    const names = await this.namespaces();
    const namespace = el("select", { id: "namespace", "aria-label": "Namespace", onchange: (event) => {
      this.namespace = event.target.value;
      this.show();
    } }, el("option", { value: "" }, "all namespaces"), names.map((name) => el("option", { value: name }, name)));
    const moment = el("input", { id: "moment", placeholder: "now", title: "a resourceVersion, or a time such as 2026-01-02T15:04:05Z", "aria-label": "Moment" });
    const look = el("form", { id: "when", onsubmit: (event) => {
      event.preventDefault();
      setMoment(moment.value.trim());
      document.body.classList.toggle("past", Boolean(getMoment()));
      this.show();
    } }, moment, el("button", {}, "Look"), el("button", { type: "button", onclick: () => { moment.value = ""; look.requestSubmit(); } }, "Now"));
    fill(document.getElementById("top"), el("a", { class: "brand", href: "#/" }, "kvstack"), namespace,
      el("button", { id: "choose", onclick: () => this.choose() }, "Kind :"), el("span", { class: "grow" }), look,
      el("span", { class: "quiet", id: "user", title: (this.user.groups || []).join("\n") }, this.user.username));
  }

  async namespaces() {
    try {
      return (await list("/api/v1/namespaces", {})).items.map((each) => each.metadata.name);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      toast(error.message, "bad");
      return [];
    }
  }

  menu() {
    const rank = (kind) => (FIRST.includes(kind.resource) && (kind.group === "" || kind.group === "apps" || kind.group === "batch") ? FIRST.indexOf(kind.resource) : FIRST.length);
    const sorted = [...this.kinds].sort((a, b) => rank(a) - rank(b) || a.kind.localeCompare(b.kind));
    fill(document.getElementById("kinds"), el("a", { href: "#/" }, "Overview"), sorted.map((kind) => el("a", {
      href: kindHash(kind), title: `${kind.resource}.${kind.group || "core"}/${kind.version}`,
    }, kind.kind)));
  }

  show() {
    this.close();
    this.close = () => undefined;
    this.current = {};
    const route = parse(location.hash);
    const kind = this.kinds.find((each) => each.group === route.group && each.resource === route.resource && each.version === route.version);
    for (const each of document.querySelectorAll("#kinds a")) {
      each.classList.toggle("chosen", each.getAttribute("href") === (kind ? kindHash(kind) : "#/"));
    }
    if (route.view === "kind" && kind) this.close = listing(this.view, this, kind, kind.namespaced ? this.namespace : "");
    else if (route.view === "object" && kind) this.close = objectView(this.view, this, kind, route.namespace, route.name, route.tab);
    else if (["", undefined].includes(route.view)) this.close = overview(this.view, this, this.namespace);
    else fill(this.view, el("p", { class: "bad" }, "This cluster has no such kind."));
  }

  choose() {
    const box = el("input", { id: "chooser", list: "names", placeholder: "a kind, its plural or its short name", "aria-label": "Kind" });
    const names = el("datalist", { id: "names" }, this.kinds.map((each) => el("option", { value: each.resource })));
    const dialog = el("dialog", { class: "chooser", onclose: () => dialog.remove() }, el("form", { method: "dialog", onsubmit: () => {
      const text = box.value.trim().toLowerCase();
      const named = (each) => [each.resource, each.kind.toLowerCase(), `${each.resource}.${each.group}`, ...each.short].includes(text);
      const found = this.kinds.find(named) || this.kinds.find((each) => each.resource.startsWith(text));
      if (found) location.hash = kindHash(found);
      else toast(`no kind is called "${text}"`, "bad");
    } }, box, names));
    document.body.append(dialog);
    dialog.showModal();
    box.focus();
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur?.();
      return;
    }
    const row = this.current.row?.();
    const chosen = row ? { kind: this.current.kind, namespace: row.object.metadata.namespace || "", name: row.object.metadata.name } : this.current.object;
    const go = (tab) => { if (chosen) location.hash = objectHash(chosen.kind, chosen.namespace, chosen.name, tab); };
    const keys = {
      ":": () => this.choose(), "/": () => document.getElementById("filter")?.focus(), g: () => { location.hash = "#/"; },
      l: () => { if (chosen?.kind.resource === "pods") go("logs"); }, d: () => go("summary"), y: () => go("yaml"),
      Escape: () => history.back(),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  }
}

const app = new App();
app.start().catch((error) => {
  fill(app.view, el("p", { class: "bad" }, error.message));
});
