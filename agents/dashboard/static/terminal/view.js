// A screen on the page: rows of spans, the cursor, and keys as a terminal sends them.

import { el, fill } from "../parts/elements.js";
import { Parser } from "./parser.js";
import { Screen } from "./screen.js";

const DRAW_MS = 16;
const BASE = [
  "#2e3436",
  "#cc0000",
  "#4e9a06",
  "#c4a000",
  "#3465a4",
  "#75507b",
  "#06989a",
  "#d3d7cf",
  "#888a85",
  "#ef5350",
  "#8ae234",
  "#fce94f",
  "#729fcf",
  "#ad7fa8",
  "#34e2e2",
  "#eeeeec",
];
const HISTORY_SHOWN = 500;
const WAITING_BYTES_MAX = 4 << 20;
const SLICE_BYTES = 64 << 10;
const KEYS = {
  Enter: "\r",
  Backspace: "\u007f",
  Tab: "\t",
  Escape: "\u001b",
  Delete: "\u001b[3~",
  Insert: "\u001b[2~",
  PageUp: "\u001b[5~",
  PageDown: "\u001b[6~",
  F1: "\u001bOP",
  F2: "\u001bOQ",
  F3: "\u001bOR",
  F4: "\u001bOS",
  F5: "\u001b[15~",
  F6: "\u001b[17~",
  F7: "\u001b[18~",
  F8: "\u001b[19~",
  F9: "\u001b[20~",
  F10: "\u001b[21~",
  F11: "\u001b[23~",
  F12: "\u001b[24~",
};
const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };

export class TerminalView {
  constructor({ onInput, onResize }) {
    this.onInput = onInput;
    this.onResize = onResize;
    this.screen = new Screen(80, 24);
    this.parser = new Parser(this.screen, (text) => onInput(text));
    this.waiting = [];
    this.waitingBytes = 0;
    this.timer = 0;
    this.past = el("div", { class: "terminal-past", role: "presentation" });
    this.rows = el("div", { role: "presentation" });
    this.probe = el("span", { class: "terminal-probe", "aria-hidden": "true" }, "MMMMMMMMMM");
    this.element = el(
      "div",
      {
        class: "terminal",
        id: "terminal",
        tabindex: "0",
        role: "textbox",
        "aria-multiline": "true",
        "aria-label": "Terminal",
        "data-keys": "own",
      },
      this.past,
      this.rows,
      this.probe,
    );
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.element.addEventListener("paste", (event) => this.onPaste(event));
    this.element.addEventListener("compositionend", (event) => this.onInput(event.data));
    this.resizes = new ResizeObserver(() => this.fit());
    this.resizes.observe(this.element);
    this.pastCount = 0;
  }

  reset() {
    this.screen.reset();
    this.parser.reset();
    this.waiting = [];
    this.waitingBytes = 0;
    this.pastCount = 0;
    fill(this.past);
    this.soon();
  }

  /** Take bytes; they are worked through in slices, so that a flood does not stop the page. */
  write(bytes) {
    this.waiting.push(bytes);
    this.waitingBytes += bytes.length;
    // More than a person can see is left out, the oldest first.
    while (this.waitingBytes > WAITING_BYTES_MAX && this.waiting.length > 1)
      this.waitingBytes -= this.waiting.shift().length;
    this.soon();
  }

  soon() {
    this.timer ||= setTimeout(() => this.draw(), DRAW_MS);
  }

  draw() {
    this.timer = 0;
    let left = SLICE_BYTES;
    while (this.waiting.length && left > 0) {
      const bytes = this.waiting.shift();
      const now = bytes.subarray(0, left);
      this.parser.write(now);
      if (now.length < bytes.length) this.waiting.unshift(bytes.subarray(now.length));
      this.waitingBytes -= now.length;
      left -= now.length;
    }
    const { screen } = this;
    while (this.rows.childElementCount > screen.rows) this.rows.lastElementChild.remove();
    while (this.rows.childElementCount < screen.rows) this.rows.append(el("div", { class: "terminal-row" }));
    if (this.cursorRow !== undefined) screen.dirty.add(this.cursorRow);
    this.cursorRow = screen.row;
    screen.dirty.add(screen.row);
    for (const row of screen.dirty) if (row < screen.rows) this.drawRow(row);
    screen.dirty = new Set();
    this.drawPast();
    this.element.scrollTop = this.element.scrollHeight;
    if (this.waiting.length) this.soon();
  }

  drawRow(row) {
    const { screen } = this;
    const isHere = row === screen.row && screen.isVisible;
    fill(this.rows.children[row], runs(screen.lines[row], isHere ? screen.column : -1).map(span));
  }

  drawPast() {
    const shown = this.screen.history.slice(-HISTORY_SHOWN);
    const last = shown.at(-1);
    if (last === this.lastPast && this.past.childElementCount === shown.length) return;
    const from = shown.lastIndexOf(this.lastPast) + 1;
    this.lastPast = last;
    if (!from) fill(this.past);
    this.past.append(
      ...shown.slice(from).map((line) => el("div", { class: "terminal-row" }, runs(line, -1).map(span))),
    );
    while (this.past.childElementCount > HISTORY_SHOWN) this.past.firstElementChild.remove();
  }

  /** Give the screen as many cells as there is room for. */
  fit() {
    const width = this.probe.getBoundingClientRect().width / 10;
    const height = this.probe.getBoundingClientRect().height;
    if (!width || !height) return;
    const { columns, rows } = this.screen;
    this.screen.resize((this.element.clientWidth - 16) / width, (this.element.clientHeight - 12) / height);
    if (columns !== this.screen.columns || rows !== this.screen.rows)
      this.onResize(this.screen.columns, this.screen.rows);
    this.soon();
  }

  onKey(event) {
    if (event.ctrlKey && event.altKey && event.key === "Escape") {
      this.element.blur();
      return;
    }
    const text = this.keyText(event);
    if (text === null) return;
    event.preventDefault();
    event.stopPropagation();
    this.onInput(text);
  }

  keyText({ key, ctrlKey, altKey, metaKey, shiftKey, isComposing }) {
    if (metaKey || isComposing) return null;
    if (ctrlKey && shiftKey) return null; // the browser's: copy, paste
    if (key in ARROWS) return `\u001b${this.screen.keysOfApplications ? "O" : "["}${ARROWS[key]}`;
    if (key === "Tab" && shiftKey) return "\u001b[Z";
    if (key in KEYS) return (altKey ? "\u001b" : "") + KEYS[key];
    if ([...key].length !== 1) return null;
    if (ctrlKey && !altKey) {
      const code = key.toUpperCase().charCodeAt(0);
      if (key === " ") return "\u0000";
      return code >= 0x40 && code <= 0x5f ? String.fromCharCode(code - 0x40) : null;
    }
    return (altKey ? "\u001b" : "") + key;
  }

  onPaste(event) {
    event.preventDefault();
    // Without what would end the bracket, or act as keys.
    // eslint-disable-next-line no-control-regex
    const text = event.clipboardData
      .getData("text")
      .replace(/\r?\n/g, "\r")
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g, "");
    this.onInput(this.screen.bracketsPaste ? `\u001b[200~${text}\u001b[201~` : text);
  }

  focus() {
    this.element.focus();
  }

  close() {
    this.resizes.disconnect();
    clearTimeout(this.timer);
  }
}

/** Return a row as texts of one style each: [{text, style, isCursor}]; blanks at its end are left out. */
export function runs(line, cursor) {
  let end = line.length;
  while (
    end > 0 &&
    end - 1 > cursor &&
    line[end - 1].text === " " &&
    line[end - 1].style.background < 0 &&
    !line[end - 1].style.inverse
  )
    end -= 1;
  const found = [];
  for (let at = 0; at < end; at += 1) {
    const { text, style } = line[at];
    const last = found.at(-1);
    if (last && last.style === style && !last.isCursor && at !== cursor) last.text += text;
    else found.push({ text, style, isCursor: at === cursor });
  }
  return found;
}

function span({ text, style, isCursor }) {
  const made = document.createElement("span");
  made.textContent = text;
  if (isCursor) made.className = "cursor";
  const { foreground, background, bold, dim, italic, underline, inverse } = style;
  const [front, back] = inverse
    ? [background < 0 ? "var(--raised)" : colour(background), foreground < 0 ? "var(--front)" : colour(foreground)]
    : [foreground < 0 ? "" : colour(foreground), background < 0 ? "" : colour(background)];
  if (!isCursor) {
    made.style.color = front;
    made.style.background = back;
  }
  if (bold) made.style.fontWeight = "bold";
  if (dim) made.style.opacity = "0.7";
  if (italic) made.style.fontStyle = "italic";
  if (underline) made.style.textDecoration = "underline";
  return made;
}

function colour(number) {
  if (number < 16) return BASE[number];
  if (number >= 232) {
    const grey = 8 + 10 * (number - 232);
    return `rgb(${grey},${grey},${grey})`;
  }
  const level = (part) => (part ? 55 + 40 * part : 0);
  const cube = number - 16;
  return `rgb(${level(Math.floor(cube / 36))},${level(Math.floor(cube / 6) % 6)},${level(cube % 6)})`;
}
