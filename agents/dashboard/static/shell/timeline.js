// The slider of time: the whole page at any moment that the store still has.
//
// Its left end is the oldest moment that can be asked for, its right end is now. Above it stands how
// much changed when. What is looked at is in the address; the slider only writes that.

import { ApiError, query } from "../server/connection.js";
import { el, fill, svg } from "../parts/elements.js";
import { clock, rfc3339, span } from "../text/times.js";

const STEPS = 1000;
const BARS = 60;
const AGAIN_MS = 15_000;

export class Timeline {
  constructor(app) {
    this.app = app;
    this.oldest = 0;
    this.now = Date.now();
    this.skew = 0;
    this.slider = el("input", {
      type: "range",
      id: "slider",
      min: 0,
      max: STEPS,
      value: STEPS,
      "aria-label": "Moment",
      oninput: () => this.tell(this.chosen()),
      onchange: () => this.leap(),
    });
    this.bars = svg("svg", {
      class: "bars",
      viewBox: `0 0 ${BARS} 10`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    });
    this.text = el("input", {
      id: "moment",
      size: 22,
      placeholder: "now",
      autocomplete: "off",
      "aria-label": "Moment as a time or resourceVersion",
      title: "a resourceVersion, or a time such as 2026-01-02T15:04:05Z",
    });
    this.label = el("output", { id: "when", for: "slider" }, "now");
    this.element = el(
      "form",
      {
        class: "timeline",
        id: "timeline",
        onsubmit: (event) => {
          event.preventDefault();
          this.look(this.text.value.trim());
        },
      },
      el("a", { href: "#/changes", id: "changed" }, "Changes"),
      el("span", { class: "track" }, this.bars, this.slider),
      this.label,
      this.text,
      el("button", {}, "Look"),
      el("button", { type: "button", id: "now", onclick: () => this.look("") }, "Now"),
    );
  }

  /** Begin to follow how far back the past goes. */
  begin() {
    this.rest();
    this.ends = this.app.repeat((signal) => this.read(signal), AGAIN_MS);
  }

  rest() {
    this.ends?.();
    this.ends = null;
  }

  async read(signal) {
    try {
      const { oldest, now } = await this.app.server.get("/at", { isPresent: true, signal });
      this.now = Date.parse(now);
      this.skew = this.now - Date.now();
      this.oldest = oldest ? Math.min(Date.parse(oldest), this.now) : this.now;
      const asked = query({ from: rfc3339(this.oldest) });
      this.draw((await this.app.server.get(`/at${asked}`, { isPresent: true, signal })).notes);
      this.element.hidden = false;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      // Who may not ask, or asks a server without a past, sees no slider.
      if ([403, 404].includes(error.code)) this.element.hidden = true;
    }
    this.mark();
  }

  /** Show how many revisions came when. */
  draw(notes) {
    const counts = new Array(BARS).fill(0);
    const width = Math.max(1, this.now - this.oldest);
    for (const [at, first, last] of notes) {
      if (!first) continue;
      const bar = Math.min(BARS - 1, Math.max(0, Math.floor((BARS * (at - this.oldest)) / width)));
      counts[bar] += last - first + 1;
    }
    const top = Math.max(1, ...counts);
    fill(
      this.bars,
      counts.map((count, at) => {
        const height = count ? 1 + (9 * Math.sqrt(count)) / Math.sqrt(top) : 0;
        return svg("rect", { x: at, y: 10 - height, width: 0.8, height });
      }),
    );
  }

  chosen() {
    const share = Number(this.slider.value) / STEPS;
    return share >= 1 ? 0 : this.oldest + share * (this.now - this.oldest);
  }

  tell(moment) {
    const ago = moment ? ` (${span((Date.now() + this.skew - moment) / 1000)} ago)` : "";
    fill(this.label, moment ? `${clock(moment)}${ago}` : "now");
    this.slider.setAttribute("aria-valuetext", this.label.textContent);
  }

  /** Go where the slider was let go. From the present one comes to the list of changes first. */
  leap() {
    const moment = this.chosen();
    this.look(moment ? rfc3339(moment) : "");
  }

  look(moment) {
    const { route } = this.app;
    const view = moment && !route.moment ? { view: "changes" } : route;
    location.hash = this.app.href({ ...view, namespace: route.namespace, moment });
  }

  /** Show the moment of the address. */
  mark() {
    const { moment } = this.app.route;
    if (document.activeElement !== this.text) this.text.value = moment;
    document.getElementById("changed")?.setAttribute("href", this.app.href({ view: "changes" }));
    const time = /^\d+$/.test(moment) ? NaN : Date.parse(moment);
    if (!moment) this.slider.value = STEPS;
    else if (!Number.isNaN(time))
      this.slider.value = (STEPS * (time - this.oldest)) / Math.max(1, this.now - this.oldest);
    if (moment && Number.isNaN(time)) {
      fill(this.label, `resourceVersion ${moment}`);
      this.slider.setAttribute("aria-valuetext", this.label.textContent);
    } else {
      this.tell(Number.isNaN(time) ? 0 : time);
    }
  }
}
