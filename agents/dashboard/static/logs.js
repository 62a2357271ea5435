// The log of a container, followed.

import { lines, pathOf } from "./api.js";
import { el, fill, plain } from "./dom.js";

const LINES_MAX = 5000;
const TAIL = 500;

export function logs(view, app, kind, pod) {
  const all = [...(pod.spec.initContainers || []), ...pod.spec.containers, ...(pod.spec.ephemeralContainers || [])];
  const container = el("select", { "aria-label": "Container", onchange: () => start() },
    all.map((each) => el("option", {}, each.name)));
  container.value = pod.spec.containers[0].name;
  const previous = el("input", { type: "checkbox", onchange: () => start() });
  const times = el("input", { type: "checkbox", onchange: () => start() });
  const follow = el("input", { type: "checkbox", checked: true, onchange: () => start() });
  const state = el("span", { class: "quiet" });
  const output = el("pre", { class: "log", tabindex: "0", id: "log" });
  fill(view, el("div", { class: "bar" }, container, el("label", {}, follow, " follow"),
    el("label", {}, previous, " previous"), el("label", {}, times, " times"), state), output);
  let ending = new AbortController();

  async function start() {
    ending.abort();
    ending = new AbortController();
    const { signal } = ending;
    fill(output);
    state.textContent = "";
    const asked = new URLSearchParams({ container: container.value, tailLines: TAIL });
    if (follow.checked && !previous.checked) asked.set("follow", "true");
    if (previous.checked) asked.set("previous", "true");
    if (times.checked) asked.set("timestamps", "true");
    const path = `${pathOf(kind, pod.metadata.namespace, pod.metadata.name, "log")}?${asked}`;
    try {
      for await (const line of lines(path, { signal, accept: "*/*" })) {
        if (signal.aborted) return;
        const isBelow = output.scrollTop + output.clientHeight >= output.scrollHeight - 40;
        output.append(el("div", {}, plain(line) || "\u200b"));
        while (output.childElementCount > LINES_MAX) output.firstElementChild.remove();
        if (isBelow) output.scrollTop = output.scrollHeight;
      }
      state.textContent = "the log has ended";
    } catch (error) {
      if (error.name !== "AbortError") state.textContent = error.message;
    }
  }

  start().catch((error) => app.fail(error));
  return () => ending.abort();
}
