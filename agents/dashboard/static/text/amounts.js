// Quantities, and what a pod requests of its node.
//
// The rule of requests is that of kvstack/apimachinery/objects/core/pod_resources.py; a test compares
// the two on the same pods.

const SUFFIXES = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** Return a quantity as a number; 0 for what is none. */
export function amount(text) {
  const found = /^([+-]?[0-9.]+)(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)$/.exec(String(text ?? "").trim());
  if (!found) return 0;
  const number = Number(found[1]);
  return Number.isNaN(number) ? 0 : number * (found[2] ? 10 ** Number(found[2]) : SUFFIXES[found[3] || ""]);
}

function requests(holder) {
  const found = {};
  for (const [name, text] of Object.entries(holder?.resources?.requests || {})) found[name] = amount(text);
  return found;
}

function add(total, more) {
  for (const [name, value] of Object.entries(more)) total[name] = (total[name] || 0) + value;
}

function raise(total, others) {
  for (const [name, value] of Object.entries(others)) total[name] = Math.max(total[name] || 0, value);
}

/** Return what a pod requests: {cpu, memory, …} in cores and bytes. */
export function podRequests(spec) {
  const running = {};
  for (const each of spec.containers || []) add(running, requests(each));
  const sidecars = {};
  const starting = {};
  for (const each of spec.initContainers || []) {
    const own = requests(each);
    if (each.restartPolicy === "Always") {
      add(running, own);
      add(sidecars, own);
      raise(starting, sidecars);
    } else {
      const together = { ...sidecars };
      add(together, own);
      raise(starting, together);
    }
  }
  const total = running;
  raise(total, starting);
  for (const [name, value] of Object.entries(requests(spec))) {
    if (["cpu", "memory"].includes(name) || name.startsWith("hugepages-")) total[name] = value;
  }
  const overhead = Object.fromEntries(Object.entries(spec.overhead || {}).map(([name, text]) => [name, amount(text)]));
  add(total, overhead);
  return total;
}
