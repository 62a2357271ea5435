// Events, the latest first.

import { EVENTS, pathOf } from "./kinds.js";
import { list } from "./lists.js";

/** Return when an event happened last. */
export function timeOf(event) {
  return event.series?.lastObservedTime || event.lastTimestamp || event.eventTime || event.metadata.creationTimestamp;
}

/** Return the events of a namespace ("": of all) that fields select. No page is read after max are there. */
export async function latestEvents(server, namespace, fieldSelector, { max, signal }) {
  const kept = [];
  const onPage = (page) => {
    kept.push(...page.items);
    return kept.length < max;
  };
  await list(server, pathOf(EVENTS, namespace), { fieldSelector }, { signal, onPage });
  return kept.sort((a, b) => Date.parse(timeOf(b)) - Date.parse(timeOf(a)));
}
