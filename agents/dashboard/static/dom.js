// Elements. All text of the cluster passes through textContent: names, labels, events, log lines and
// YAML are written by others and may hold markup.

/** Make an element: el("a", {class: "x", href: "#/", onclick: f}, "text", child, …). */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null).map(asNode));
  return made;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** Put children in the place of what an element holds. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child != null).map(asNode));
  return parent;
}

/** Show a message for a while; kind: "good", "bad" or "". */
export function toast(text, kind = "") {
  const shown = el("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), kind === "bad" ? 12000 : 4000);
}

/** Return how long ago a time was, as kubectl shows it. */
export function age(time, now = Date.now()) {
  if (!time) return "";
  const seconds = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** Return a text without escape sequences of terminals and without control characters but tabs. */
export function plain(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|.)/g, "")
    // eslint-disable-next-line no-control-regex
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "");
}

const GOOD = /^(Running|Ready|Active|Bound|Complete|Completed|Succeeded|True|Available|Approved,Issued|Normal)$/;
const BAD = /(Error|Failed|CrashLoopBackOff|BackOff|Evicted|OOMKilled|NotReady|Unknown|Lost|Invalid|Warning|Denied)/;
const BUSY = /^(Pending|ContainerCreating|PodInitializing|Terminating|Released|Init:.*|SchedulingDisabled|.*,SchedulingDisabled)$/;

/** Return the class of a cell by its text. */
export function tone(text) {
  if (GOOD.test(text)) return "good";
  if (BAD.test(text)) return "bad";
  return BUSY.test(text) ? "busy" : "";
}
