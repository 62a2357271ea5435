// One object: its tabs, its actions, kept current by a watch.

import { ApiError } from "../server/connection.js";
import { Live } from "../server/live.js";
import { isSame, NODES, pathOf, PODS } from "../server/kinds.js";
import { actionsOf } from "../actions/table.js";
import { remove } from "../actions/objects.js";
import { el, fill, quiet, toast, toned } from "../parts/elements.js";
import { edit } from "./edit.js";
import { logs } from "./logs.js";
import { revisions } from "./revisions.js";
import { summary } from "./summary.js";
import { terminal } from "./terminal.js";
import { yamlTab } from "./yaml_tab.js";

const TABS = { summary, yaml: yamlTab, edit, logs, terminal, revisions };
const WORKLOADS = ["deployments", "statefulsets", "daemonsets", "replicasets", "jobs"];

/** Return the tabs of a kind. */
function tabsOf(kind, isPast) {
  const isPod = isSame(kind, PODS);
  const isWorkload = ["apps", "batch"].includes(kind.group) && WORKLOADS.includes(kind.resource);
  const hasRevisions = kind.group === "apps" && WORKLOADS.slice(0, 3).includes(kind.resource);
  return [
    "summary",
    "yaml",
    !isPast && kind.verbs.includes("update") && "edit",
    !isPast && (isPod || isWorkload) && "logs",
    !isPast && isPod && "terminal",
    hasRevisions && "revisions",
  ].filter(Boolean);
}

export function object(app, view, kind) {
  const { of: namespace, name, moment } = app.route;
  const path = pathOf(kind, namespace, name);
  const tabs = tabsOf(kind, Boolean(moment));
  const tab = tabs.includes(app.route.tab) ? app.route.tab : "summary";
  const head = el(
    "div",
    { class: "bar" },
    el("h1", {}, el("a", { href: app.kindHref(kind) }, kind.kind), " ", namespace && `${namespace}/`, name),
  );
  const state = el("p", { class: "quiet", id: "changed-since", role: "status" });
  const body = el("section", { class: "body" });
  const actions = el("span", { class: "actions", id: "actions" });
  fill(view, head, state, body);
  app.current = { object: { kind, namespace, name } };
  let shown = null;
  let ends = () => undefined;
  let isOver = false;
  let watching = null;
  let drawn = 0;

  head.append(
    el(
      "span",
      { class: "tabs", role: "tablist", "aria-label": "Views" },
      tabs.map((each) =>
        el(
          "a",
          {
            class: `tab${each === tab ? " chosen" : ""}`,
            role: "tab",
            "aria-selected": String(each === tab),
            href: app.objectHref(kind, namespace, name, each),
          },
          each,
        ),
      ),
    ),
    actions,
  );

  /** Read the object and show its tab. */
  async function load() {
    let found;
    try {
      found = await app.server.get(path);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      fill(body, el("p", { class: "bad", role: "alert" }, error.message));
      return;
    }
    if (isOver) return;
    if (!watching) follow(found);
    await show(found);
  }

  async function show(found) {
    ends();
    ends = () => undefined;
    shown = found;
    state.textContent = "";
    if (!moment) offer();
    const turn = (drawn += 1);
    const ending = await TABS[tab](app, body, { kind, object: found, path, reload });
    if (isOver || turn !== drawn) ending?.();
    else ends = ending || ends;
  }

  const reload = () => load().catch((error) => app.fail(error));

  function offer() {
    app.current.remove = () => remove(app, kind, shown).catch((error) => app.fail(error));
    actionsOf(app, kind, shown)
      .then((usable) => {
        if (isOver) return;
        fill(
          actions,
          usable.map((each) =>
            el(
              "button",
              {
                type: "button",
                class: each.isBad ? "bad" : "",
                onclick: async (event) => {
                  const button = event.currentTarget;
                  button.disabled = true;
                  try {
                    if ((await each.run(app, kind, shown)) && !isOver) await load();
                  } catch (error) {
                    toast(error.message, "bad");
                  } finally {
                    button.disabled = false;
                  }
                },
              },
              each.name,
            ),
          ),
        );
      })
      .catch((error) => app.fail(error));
  }

  /** Show what changes; a text that is being edited, a log or a terminal is left alone. */
  function follow(found) {
    if (moment || !kind.verbs.includes("watch")) return;
    watching = new Live(app.server, pathOf(kind, namespace), {
      values: { fieldSelector: `metadata.name=${name}` },
      keep: (each) => each,
      drawMs: 500,
      onChange: (live) => changed([...live.entries.values()][0], found.metadata.uid),
    });
    watching.version = found.metadata.resourceVersion;
    watching.run().catch((error) => app.fail(error));
  }

  function changed(now, uid) {
    if (isOver || !shown) return;
    if (!now) fill(state, toned("bad", "It is gone."));
    else if (now.metadata.uid !== uid) fill(state, toned("bad", "It is gone, and another one has its name."));
    else if (now.metadata.resourceVersion === shown.metadata.resourceVersion) fill(state);
    else if (["summary", "revisions"].includes(tab)) show(now).catch((error) => app.fail(error));
    else if (["yaml", "edit"].includes(tab)) {
      fill(
        state,
        `It has changed since it was read, by ${now.metadata.resourceVersion}. `,
        tab === "yaml" && el("button", { type: "button", onclick: reload }, "Show"),
      );
    }
  }

  if (isSame(kind, NODES) || !kind.namespaced || namespace) reload();
  else fill(body, quiet("The address names no namespace."));
  return () => {
    isOver = true;
    watching?.close();
    ends();
  };
}
