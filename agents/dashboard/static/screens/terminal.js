// A terminal in a container, as `kubectl exec -it` opens one.

import { openExec } from "../server/exec.js";
import { query } from "../server/connection.js";
import { PODS, pathOf } from "../server/kinds.js";
import { el, fill } from "../parts/elements.js";
import { TerminalView } from "../terminal/view.js";

const SHELL = "command -v bash >/dev/null 2>&1 && exec bash || exec sh";

export async function terminal(app, body, { object }) {
  const { namespace, name } = object.metadata;
  const containers = [...object.spec.containers, ...(object.spec.ephemeralContainers || [])].map((each) => each.name);
  const container = el(
    "select",
    { id: "container", "aria-label": "Container" },
    containers.map((each) => el("option", {}, each)),
  );
  const command = el("input", {
    id: "command",
    value: "",
    placeholder: "bash, or else sh",
    "aria-label": "Command",
    autocomplete: "off",
  });
  const state = el("p", { class: "quiet", id: "terminal-state", role: "status" });
  const view = new TerminalView({
    onInput: (text) => stream?.send(text),
    onResize: (columns, rows) => stream?.resize(columns, rows),
  });
  let stream = null;
  let isOver = false;
  fill(
    body,
    el(
      "form",
      {
        class: "bar",
        onsubmit: (event) => {
          event.preventDefault();
          open();
        },
      },
      container,
      command,
      el("button", { id: "open" }, "Open"),
      el("span", { class: "quiet" }, "Ctrl-Alt-Esc leaves the terminal"),
    ),
    state,
    view.element,
  );

  function open() {
    stream?.close();
    view.reset();
    state.textContent = "Opening…";
    const words = command.value.trim() ? ["sh", "-c", command.value] : ["sh", "-c", SHELL];
    const asked = query({ container: container.value, stdin: "true", stdout: "true", tty: "true", command: words });
    const mine = openExec(app.server, pathOf(PODS, namespace, name, "exec") + asked, {
      onOpen: () => {
        if (stream !== mine) return;
        state.textContent = `Open in ${container.value}.`;
        mine.resize(view.screen.columns, view.screen.rows);
        view.focus();
      },
      onOutput: (bytes) => stream === mine && view.write(bytes),
      onEnd: (text, { isOpened }) => {
        if (stream !== mine || isOver) return;
        stream = null;
        state.textContent = text;
        if (!isOpened) explain().catch((error) => app.fail(error));
      },
    });
    stream = mine;
  }

  /** Say what may be the reason; a browser does not tell pages why a WebSocket was refused. */
  async function explain() {
    const may = await app.access.may({
      verb: "create",
      group: "",
      resource: "pods",
      subresource: "exec",
      namespace,
      name,
    });
    state.textContent = !may
      ? "You may not open terminals in this pod (create pods/exec)."
      : object.status?.phase !== "Running"
        ? `The pod is ${object.status?.phase || "not running"}.`
        : app.server.token
          ? "The server refused: the container may not run, or its node cannot be reached."
          : "The connection was refused. kubectl proxy refuses terminals unless it is told not to (--reject-paths): sign in at the server's own address.";
  }

  open();
  return () => {
    isOver = true;
    stream?.close();
    view.close();
  };
}
