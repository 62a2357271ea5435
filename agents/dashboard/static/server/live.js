// A list that follows its watch: entries by the objects' uids.
//
//     const pods = new Live(server, "/api/v1/pods", { onChange: draw, onState: tell });
//     pods.run();  …;  pods.close();
//
// Entries are rows of a Table, or what `keep(object)` makes of an object. A watch that ends goes on
// from where it was; where the history is gone (410) everything is read anew, and what was shown
// stays until then. Of the past there is no watch.

import { ApiError } from "./connection.js";
import { list, TABLE, watch } from "./lists.js";

const ENTRIES_MAX = 50_000;
const PAUSE_MS = 1000;
const PAUSE_MAX_MS = 30_000;
const FINAL = [401, 403, 404, 405, 406];

export class Live {
  constructor(server, path, { values = {}, keep = null, isPresent = false, onChange, onState, drawMs = 250 }) {
    Object.assign(this, { server, path, values, keep, isPresent, onChange, onState, drawMs });
    this.columns = [];
    this.entries = new Map();
    this.isWhole = false;
    this.isCut = false;
    this.version = "";
    this.ending = new AbortController();
    this.timer = 0;
  }

  /** Follow until close() is called. */
  async run() {
    let pause = PAUSE_MS;
    let isRead = false;
    while (!this.ending.signal.aborted) {
      try {
        if (!isRead) await this.read();
        isRead = true;
        if ((this.server.moment && !this.isPresent) || this.isCut) return;
        await this.follow();
        pause = PAUSE_MS;
      } catch (error) {
        if (error.name === "AbortError") return;
        if (!(error instanceof ApiError)) throw error;
        const isPast = this.server.moment && !this.isPresent;
        if (error.code === 410 && !isPast && isRead) {
          isRead = false; // the history is gone since the list was read
          continue;
        }
        this.onState?.(error.message, error);
        if (FINAL.includes(error.code) || isPast) return;
        await this.wait(pause);
        pause = Math.min(2 * pause, PAUSE_MAX_MS);
      }
    }
  }

  async read() {
    const entries = new Map();
    const accept = this.keep ? undefined : TABLE;
    const values = this.keep ? this.values : { ...this.values, includeObject: "Metadata" };
    this.isCut = false;
    const whole = await list(this.server, this.path, values, {
      accept,
      signal: this.ending.signal,
      isPresent: this.isPresent,
      onPage: (page) => {
        if (page.columnDefinitions) this.columns = page.columnDefinitions;
        for (const each of page.rows || page.items) this.put(entries, each);
        if (!this.isWhole) this.entries = entries;
        this.changed();
        this.isCut = entries.size >= ENTRIES_MAX && Boolean(page.metadata?.continue);
        return !this.isCut;
      },
    });
    this.entries = entries;
    this.version = whole.metadata?.resourceVersion || "";
    this.isWhole = true;
    this.onState?.("");
    this.changed();
  }

  put(entries, each) {
    const metadata = this.keep ? each.metadata : each.object.metadata;
    delete metadata.managedFields; // which are the larger part of most objects
    entries.set(metadata.uid || `${metadata.namespace || ""}/${metadata.name}`, this.keep ? this.keep(each) : each);
  }

  async follow() {
    const accept = this.keep ? "application/json" : TABLE;
    const options = { signal: this.ending.signal, accept, isPresent: this.isPresent };
    for await (const event of watch(this.server, this.path, this.values, this.version, options)) {
      const changed = this.keep ? [event.object] : event.object.rows || [];
      for (const each of event.type === "BOOKMARK" ? [] : changed) {
        const metadata = this.keep ? each.metadata : each.object.metadata;
        this.version = metadata.resourceVersion || this.version;
        if (event.type === "DELETED") this.entries.delete(metadata.uid);
        else this.put(this.entries, each);
      }
      if (event.type === "BOOKMARK") {
        const metadata = event.object.metadata || event.object.rows?.[0]?.object.metadata;
        this.version = metadata?.resourceVersion || this.version;
      }
      this.onState?.("");
      if (event.type !== "BOOKMARK") this.changed();
    }
  }

  wait(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.ending.signal.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Call onChange soon, however much changes until then. */
  changed() {
    if (this.timer || this.ending.signal.aborted) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      if (!this.ending.signal.aborted) this.onChange(this);
    }, this.drawMs);
  }

  close() {
    this.ending.abort();
    clearTimeout(this.timer);
  }
}

/** Return the cell of a row by the name of its column. */
export function cell(live, row, name) {
  const index = live.columns.findIndex((each) => each.name.toLowerCase() === name.toLowerCase());
  return index < 0 ? "" : row.cells[index];
}
