// What changes right now: the differences between what was shown a moment ago and what is.

import { el, fill, section } from "../parts/elements.js";
import { clock } from "../text/times.js";
import { tone } from "../text/tone.js";
import { wordOf } from "./states.js";

const KEPT_MAX = 30;
const SHOWN_MAX = 10;
const NEWS_MAX = 200;

export class Recent {
  constructor(app) {
    this.app = app;
    this.before = new Map();
    this.kept = [];
  }

  word(kind, each) {
    if (kind.kind === "Pod") return `${wordOf(each)}${each.node && each.phase === "Pending" ? ` on ${each.node}` : ""}`;
    if (kind.kind === "Node") return each.isReady ? (each.isCordoned ? "Ready, cordoned" : "Ready") : each.reason;
    return `${each.ready}/${each.desired} ready, ${each.updated} updated`;
  }

  /** Take note of what came, went or has another word. The first look is no news. */
  compare(kind, entries) {
    const old = this.before.get(kind.kind);
    const now = new Map();
    for (const [uid, each] of entries)
      now.set(uid, { word: this.word(kind, each), namespace: each.namespace, name: each.name });
    this.before.set(kind.kind, now);
    if (!old) return;
    const news = [];
    for (const [uid, each] of now) {
      const word = old.get(uid)?.word;
      if (word !== each.word && news.length < NEWS_MAX) news.push({ kind, ...each, from: word ?? "new" });
    }
    for (const [uid, each] of old)
      if (!now.has(uid) && news.length < NEWS_MAX) news.push({ kind, ...each, from: each.word, word: "gone" });
    this.kept = [...news.map((each) => ({ ...each, at: Date.now() })).reverse(), ...this.kept].slice(0, KEPT_MAX);
  }

  draw(place) {
    fill(
      place,
      section(
        "Changes right now",
        this.kept.length > 0 &&
          el(
            "ol",
            { class: "plain" },
            this.kept
              .slice(0, SHOWN_MAX)
              .map((each) =>
                el(
                  "li",
                  {},
                  el("span", { class: "quiet" }, clock(each.at)),
                  " ",
                  each.word === "gone"
                    ? `${each.kind.kind} ${each.namespace && `${each.namespace}/`}${each.name}`
                    : this.app.link(
                        each.kind,
                        each.namespace,
                        each.name,
                        `${each.kind.kind} ${each.namespace && `${each.namespace}/`}${each.name}`,
                      ),
                  ` ${each.from} → `,
                  el("span", { class: tone(each.word) }, each.word),
                ),
              ),
          ),
      ),
    );
  }
}
