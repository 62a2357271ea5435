// Logs: of one container, or of all containers of all pods of a workload, followed.

import { ApiError } from "../server/connection.js";
import { isSame, PODS, pathOf } from "../server/kinds.js";
import { query } from "../server/connection.js";
import { list } from "../server/lists.js";
import { el, fill, toast } from "../parts/elements.js";
import { saveFile } from "../parts/files.js";
import { LogView } from "../parts/log_view.js";
import { plain } from "../text/plain.js";
import { isOf, selectorOf } from "./pods_of.js";

const TAIL = 500;
const STREAMS_MAX = 30;
const LINE_MAX = 16 * 1024;
const SAVED_BYTES_MAX = 64 * 1024 * 1024;
const AGAIN_MS = 2000;
const ALL = "all containers";
const SPANS = {
  "last 500 lines": {},
  "last 5 minutes": { sinceSeconds: 300 },
  "last hour": { sinceSeconds: 3600 },
  "from the beginning": { tailLines: "" },
};

export async function logs(app, body, { kind, object }) {
  const pods = isSame(kind, PODS) ? [object] : await podsOfWorkload(app, object);
  const containers = [...new Set(pods.flatMap((pod) => containersOf(pod)))];
  const isOnePod = isSame(kind, PODS);
  const choice = el(
    "select",
    { id: "container", "aria-label": "Container", onchange: () => start() },
    [ALL, ...containers].map((name) => el("option", {}, name)),
  );
  choice.value = isOnePod ? mainOf(object) : ALL;
  const span = el(
    "select",
    { id: "span", "aria-label": "How much", onchange: () => start() },
    Object.keys(SPANS).map((name) => el("option", {}, name)),
  );
  const box = (id, isChecked, onchange) => el("input", { type: "checkbox", id, checked: isChecked, onchange });
  const follow = box("follow", true, () => start());
  const previous = box("previous", false, () => start());
  const times = box("times", false, () => start());
  const wrap = box("wrap", true, () => view.wrap(wrap.checked));
  const find = el("input", {
    type: "search",
    id: "filter",
    placeholder: "filter ( / )",
    "aria-label": "Filter lines",
    autocomplete: "off",
    oninput: () => view.filter(find.value),
  });
  const state = el("span", { class: "quiet", id: "log-state", role: "status" });
  const view = new LogView();
  fill(
    body,
    el(
      "div",
      { class: "bar" },
      choice,
      span,
      [
        ["follow", follow],
        ["previous", previous],
        ["times", times],
        ["wrap", wrap],
      ].map(([name, made]) => el("label", {}, made, ` ${name}`)),
      find,
      el("button", { type: "button", id: "save-log", onclick: () => save() }, "Download"),
      state,
    ),
    view.element,
  );
  let ending = new AbortController();
  let isOver = false;

  function streams() {
    const found = pods.flatMap((pod) =>
      containersOf(pod)
        .filter((name) => choice.value === ALL || name === choice.value)
        .map((container) => ({ pod, container })),
    );
    return found.slice(0, STREAMS_MAX);
  }

  function pathFor({ pod, container }, more = {}) {
    const asked = {
      container,
      tailLines: TAIL,
      ...SPANS[span.value],
      previous: previous.checked ? "true" : "",
      timestamps: times.checked ? "true" : "",
      ...more,
    };
    return pathOf(PODS, pod.metadata.namespace, pod.metadata.name, "log") + query(asked);
  }

  function start() {
    ending.abort();
    ending = new AbortController();
    view.clear();
    const chosen = streams();
    const left = pods.length ? "" : "there are no pods";
    const cut = chosen.length === STREAMS_MAX ? ` The first ${STREAMS_MAX} containers alone.` : "";
    let open = chosen.length;
    const { signal } = ending;
    const tell = () => {
      if (!isOver && !signal.aborted)
        state.textContent = left || `${open ? `${open} of ${chosen.length} open` : "ended"}.${cut}`;
    };
    tell();
    for (const each of chosen) {
      const label = chosen.length > 1 ? `${each.pod.metadata.name} ${each.container}` : "";
      run(each, label, signal)
        .catch((error) => {
          if (!(error instanceof ApiError)) throw error;
          if (!signal.aborted) view.add(label, error.message, "bad");
        })
        .catch((error) => app.fail(error))
        .finally(() => {
          open -= 1;
          tell();
        });
    }
  }

  /** Read one stream; one that is followed and breaks goes on from its last line's time. */
  async function run(each, label, signal) {
    const isFollowed = follow.checked && !previous.checked;
    let more = isFollowed ? { follow: "true" } : {};
    for (;;) {
      const began = new Date();
      try {
        for await (const line of app.server.lines(pathFor(each, more), {
          signal,
          accept: "*/*",
          lineMax: LINE_MAX,
          isPresent: true,
        })) {
          view.add(label, plain(line));
        }
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof ApiError) || error.code !== 0 || !isFollowed) throw error;
        view.add(label, `(${error.message}; it goes on)`, "quiet");
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        if (signal.aborted) return;
        more = { follow: "true", tailLines: "", sinceSeconds: "", sinceTime: began.toISOString() };
      }
    }
  }

  async function save() {
    const parts = [];
    let size = 0;
    for (const each of streams()) {
      try {
        const left = SAVED_BYTES_MAX - size;
        if (left <= 0) break;
        const { text } = await app.server.send(pathFor(each, { limitBytes: left, tailLines: "" }), {
          accept: "*/*",
          isPresent: true,
          signal: ending.signal,
        });
        size += text.length;
        parts.push(`==> ${each.pod.metadata.name} ${each.container} <==\n`, text, "\n");
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        parts.push(`${error.message}\n`);
      }
    }
    saveFile(`${object.metadata.name}.log`, parts);
    if (size >= SAVED_BYTES_MAX) toast("The log is longer: its first 64 MiB were saved.");
  }

  start();
  return () => {
    isOver = true;
    ending.abort();
    view.close();
  };
}

async function podsOfWorkload(app, object) {
  const selector = selectorOf(object);
  if (!selector) return [];
  const found = await list(app.server, pathOf(PODS, object.metadata.namespace), { labelSelector: selector });
  return found.items.filter((pod) => isOf(pod, object));
}

function containersOf({ spec }) {
  return [...(spec.initContainers || []), ...spec.containers, ...(spec.ephemeralContainers || [])].map(
    (each) => each.name,
  );
}

function mainOf(pod) {
  const wanted = pod.metadata.annotations?.["kubectl.kubernetes.io/default-container"];
  return containersOf(pod).includes(wanted) ? wanted : pod.spec.containers[0].name;
}
