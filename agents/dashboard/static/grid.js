// A table of any length: only the rows in sight are elements.

import { el, fill, tone } from "./dom.js";

const ROW_PX = 28;
const SPARE_ROWS = 12;

/** columns: [{name, value(row), shown(row), width, isToned}]; rows are any objects. */
export class Grid {
  constructor(columns, { onOpen, label }) {
    this.columns = columns;
    this.onOpen = onOpen;
    this.rows = [];
    this.chosen = 0;
    this.sortBy = null;
    this.descending = false;
    const widths = columns.map((each) => each.width || "minmax(6ch, 1fr)").join(" ");
    this.head = el("div", { class: "grid-head", role: "row" });
    this.spacer = el("div", { class: "grid-spacer" });
    this.body = el("div", { class: "grid-body", tabindex: "0", role: "rowgroup" }, this.spacer);
    this.element = el("div", { class: "grid", role: "table", "aria-label": label }, this.head, this.body);
    this.element.style.setProperty("--columns", widths);
    this.body.addEventListener("scroll", () => this.draw(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.resizes = new ResizeObserver(() => this.draw());
    this.resizes.observe(this.body);
    this.drawHead();
  }

  drawHead() {
    fill(this.head, this.columns.map((each) => el("button", {
      class: "cell", role: "columnheader", title: each.about,
      onclick: () => {
        this.descending = this.sortBy === each ? !this.descending : false;
        this.sortBy = each;
        this.show(this.rows);
      },
    }, each.name + (this.sortBy === each ? (this.descending ? " ↓" : " ↑") : ""))));
  }

  /** Show rows, sorted as was asked for last. */
  show(rows) {
    this.rows = rows;
    this.order = rows;
    if (this.sortBy) {
      const value = this.sortBy.sort || this.sortBy.value;
      const sign = this.descending ? -1 : 1;
      this.order = [...rows].sort((a, b) => sign * compare(value(a), value(b)));
    }
    this.chosen = Math.min(this.chosen, Math.max(0, rows.length - 1));
    this.drawHead();
    this.draw();
  }

  draw() {
    const order = this.order || [];
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW_PX) - SPARE_ROWS);
    const count = Math.ceil(this.body.clientHeight / ROW_PX) + 2 * SPARE_ROWS;
    this.spacer.style.height = `${order.length * ROW_PX}px`;
    this.element.setAttribute("aria-rowcount", String(order.length));
    fill(this.spacer, order.slice(first, first + count).map((row, index) => this.row(row, first + index)));
  }

  row(row, index) {
    const cells = this.columns.map((column) => {
      const shown = column.shown ? column.shown(row) : String(column.value(row) ?? "");
      const text = shown instanceof Node ? shown.textContent : shown;
      return el("span", { class: `cell ${column.isToned === false ? "" : tone(text)}`, role: "cell", title: text }, shown);
    });
    const made = el("div", {
      class: `grid-row${index === this.chosen ? " chosen" : ""}`, role: "row", "aria-rowindex": index + 1,
      onclick: () => { this.chosen = index; this.draw(); },
      ondblclick: () => this.onOpen?.(row),
    }, cells);
    made.style.top = `${index * ROW_PX}px`;
    return made;
  }

  current() {
    return (this.order || [])[this.chosen];
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW_PX) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) {
      const last = Math.max(0, (this.order || []).length - 1);
      this.chosen = Math.min(last, Math.max(0, this.chosen + steps[event.key]));
      const top = this.chosen * ROW_PX;
      if (top < this.body.scrollTop) this.body.scrollTop = top;
      const bottom = top + ROW_PX - this.body.clientHeight;
      if (bottom > this.body.scrollTop) this.body.scrollTop = bottom;
      this.draw();
    } else if (event.key === "Enter" && this.current()) {
      this.onOpen?.(this.current());
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  close() {
    this.resizes.disconnect();
  }
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""), undefined, { numeric: true });
}
