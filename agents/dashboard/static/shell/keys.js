// Keys, as k9s has them. A screen says what is chosen (`app.current`): a row of a list or its object.

import { named } from "../server/kinds.js";
import { openDialog } from "../parts/dialogs.js";
import { el, fill, table } from "../parts/elements.js";

const CHOICES_MAX = 12;
const HELP = [
  [":", "choose a kind"],
  ["/", "filter the list"],
  ["j k ↓ ↑", "move"],
  ["PgDn PgUp Home End", "move far"],
  ["Enter, d", "describe: open the object"],
  ["y", "its YAML"],
  ["e", "edit it"],
  ["l", "its logs"],
  ["s", "a terminal in it"],
  ["Ctrl-d", "delete it"],
  ["g", "the cluster at a glance"],
  ["n", "nodes, requested against used"],
  ["c", "changes"],
  ["t", "the slider of time"],
  ["Esc", "back"],
  ["?", "this help"],
];
const LOGGED = ["pods", "deployments", "statefulsets", "daemonsets", "replicasets", "jobs"];

export class Keys {
  constructor(app) {
    this.app = app;
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (document.querySelector("dialog[open]")) return;
    const isWriting = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.dataset?.keys === "own";
    if (isWriting) {
      if (event.key === "Escape" && event.target.dataset?.keys !== "own") event.target.blur();
      return;
    }
    if (event.metaKey || event.altKey || (event.ctrlKey && event.key !== "d")) return;
    const action = this.actions(event.ctrlKey)[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  actions(isControl) {
    const { app } = this;
    const row = app.current.row?.();
    const metadata = row?.object.metadata;
    const chosen = metadata
      ? { kind: app.current.kind, namespace: metadata.namespace || "", name: metadata.name }
      : app.current.object;
    const open = (tab) => () => {
      if (chosen) location.hash = app.objectHref(chosen.kind, chosen.namespace, chosen.name, tab);
    };
    if (isControl) return { d: () => app.current.remove?.() };
    return {
      ":": () => this.choose(),
      "?": () => this.help(),
      "/": () => document.getElementById("filter")?.focus(),
      t: () => document.getElementById("slider").focus(),
      g: () => app.go({ view: "" }),
      n: () => app.go({ view: "nodes" }),
      c: () => app.go({ view: "changes" }),
      l: () => LOGGED.includes(chosen?.kind.resource) && open("logs")(),
      s: () => chosen?.kind.resource === "pods" && open("terminal")(),
      d: open("summary"),
      y: open("yaml"),
      e: open("edit"),
      Escape: () => history.back(),
    };
  }

  /** Ask for a kind. */
  choose() {
    const { app } = this;
    openDialog("Kind", (close) => {
      const list = el("div", { id: "choices", role: "listbox", "aria-label": "Kinds" });
      let found = [];
      let at = 0;
      const go = (kind) => {
        close();
        location.hash = app.kindHref(kind);
      };
      const draw = () => {
        fill(
          list,
          found.map((kind, index) =>
            el(
              "button",
              {
                type: "button",
                role: "option",
                id: `choice${index}`,
                "aria-selected": index === at ? "true" : "false",
                class: index === at ? "chosen" : "",
                onclick: () => go(kind),
              },
              `${kind.resource}${kind.group ? `.${kind.group}` : ""}`,
            ),
          ),
        );
        box.setAttribute("aria-activedescendant", found.length ? `choice${at}` : "");
      };
      const box = el("input", {
        id: "chooser",
        role: "combobox",
        "aria-expanded": "true",
        "aria-controls": "choices",
        autocomplete: "off",
        autofocus: true,
        "aria-label": "A kind, its plural or its short name",
        placeholder: "a kind, its plural or its short name",
        oninput: () => {
          found = named(app.kinds, box.value).slice(0, CHOICES_MAX);
          at = 0;
          draw();
        },
        onkeydown: (event) => {
          const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          if (!step || !found.length) return;
          event.preventDefault();
          at = (at + step + found.length) % found.length;
          draw();
        },
      });
      const wrong = el("p", { class: "bad", role: "alert" });
      return el(
        "form",
        {
          class: "chooser",
          onsubmit: (event) => {
            event.preventDefault();
            if (found.length) go(found[at]);
            else wrong.textContent = `No kind is called "${box.value.trim()}".`;
          },
        },
        box,
        list,
        wrong,
      );
    });
  }

  help() {
    openDialog("Keys", (close) => [
      table(
        ["key", "what"],
        HELP.map(([key, text]) => [el("kbd", {}, key), text]),
      ),
      el("button", { type: "button", onclick: close, autofocus: true }, "Close"),
    ]);
  }
}
