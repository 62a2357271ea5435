// What stands behind # in the address. It is the whole state of the page but for the token: links can
// be shared, and the browser's Back leads back.
//
//     #/                                            the cluster at a glance
//     #/kind/GROUP/VERSION/RESOURCE                 a list; "-" is the core group
//     #/object/GROUP/VERSION/RESOURCE/NAMESPACE/NAME/TAB    "-" is no namespace
//     #/nodes  #/changes  #/create
//     #/in/NAMESPACE/…                              any of these in one namespace
//     #/at/MOMENT/…                                 any of these at a resourceVersion or time

const part = (text) => encodeURIComponent(text || "-");
const back = (text) => (text === "-" || text === undefined ? "" : text);

/** Return {moment, namespace, view, group, version, resource, of, name, tab}. */
export function parse(hash) {
  let parts;
  try {
    parts = hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  } catch {
    parts = []; // not a link of this page
  }
  const prefixes = { at: "", in: "" };
  while (parts[0] in prefixes && Object.hasOwn(prefixes, parts[0])) {
    prefixes[parts[0]] = parts[1] || "";
    parts = parts.slice(2);
  }
  const [view = "", group, version, resource, of, name, tab] = parts;
  return {
    moment: prefixes.at,
    namespace: prefixes.in,
    view,
    group: back(group),
    version: back(version),
    resource: back(resource),
    of: back(of),
    name: back(name),
    tab: back(tab),
  };
}

/** Return the hash of a route. */
export function write({ moment, namespace, view = "", group, version, resource, of, name, tab }) {
  const prefix = `#/${moment ? `at/${part(moment)}/` : ""}${namespace ? `in/${part(namespace)}/` : ""}`;
  if (view === "kind") return `${prefix}kind/${[group, version, resource].map(part).join("/")}`;
  if (view === "object")
    return `${prefix}object/${[group, version, resource, of, name].map(part).join("/")}${tab ? `/${part(tab)}` : ""}`;
  return prefix + view;
}
