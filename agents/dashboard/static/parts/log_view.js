// Lines as they come, the last of them: LINES_MAX lines and CHARACTERS_MAX characters are kept, however
// long the log is. What comes between two drawings is drawn together; what would be thrown away at once
// is never drawn.

import { el, fill } from "./elements.js";

const LINES_MAX = 5000;
const CHARACTERS_MAX = 8 * 1024 * 1024;
const DRAW_MS = 100;
const COLOURS = 6;

export class LogView {
  constructor() {
    this.lines = [];
    this.size = 0;
    this.dropped = 0;
    this.fresh = 0;
    this.wanted = "";
    this.colours = new Map();
    this.timer = 0;
    this.body = el("div", { role: "presentation" });
    this.head = el("p", { class: "quiet", hidden: true });
    this.element = el(
      "div",
      { class: "log", id: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Log" },
      this.head,
      this.body,
    );
  }

  add(label, text, kind = "") {
    this.lines.push({ label, text, kind });
    this.size += text.length;
    this.fresh += 1;
    while (this.lines.length > LINES_MAX || (this.size > CHARACTERS_MAX && this.lines.length > 1)) {
      this.size -= this.lines.shift().text.length;
      this.dropped += 1;
    }
    this.timer ||= setTimeout(() => this.draw(), DRAW_MS);
  }

  draw() {
    this.timer = 0;
    const isBelow = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 40;
    const fresh = this.lines.slice(-Math.min(this.fresh, this.lines.length));
    this.fresh = 0;
    this.body.append(...fresh.filter((each) => this.isShown(each)).map((each) => this.lineOf(each)));
    const max = this.wanted ? this.lines.filter((each) => this.isShown(each)).length : this.lines.length;
    while (this.body.childElementCount > max) this.body.firstElementChild.remove();
    this.head.hidden = !this.dropped;
    this.head.textContent = `${this.dropped} lines before are not shown any more.`;
    if (isBelow) this.element.scrollTop = this.element.scrollHeight;
  }

  isShown({ label, text }) {
    return !this.wanted || `${label} ${text}`.toLowerCase().includes(this.wanted);
  }

  lineOf({ label, text, kind }) {
    if (label && !this.colours.has(label)) this.colours.set(label, this.colours.size % COLOURS);
    return el(
      "div",
      { class: `log-line ${kind}` },
      label && el("span", { class: `m${this.colours.get(label)}` }, `${label} `),
      text || "\u00a0",
    );
  }

  /** Show the lines with a text alone. */
  filter(text) {
    this.wanted = text.trim().toLowerCase();
    this.redraw();
  }

  redraw() {
    fill(this.body);
    this.fresh = this.lines.length;
    this.draw();
    this.element.scrollTop = this.element.scrollHeight;
  }

  wrap(isWrapped) {
    this.element.classList.toggle("long", !isWrapped);
  }

  clear() {
    this.lines = [];
    this.size = 0;
    this.dropped = 0;
    this.fresh = 0;
    fill(this.body);
    this.head.hidden = true;
  }

  close() {
    clearTimeout(this.timer);
    this.clear();
  }
}
