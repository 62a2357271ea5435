// What stands behind # in the address.
//
//     #/                                            the cluster at a glance
//     #/kind/GROUP/VERSION/RESOURCE                 a list; "-" is the core group
//     #/object/GROUP/VERSION/RESOURCE/NAMESPACE/NAME/TAB    "-" is no namespace

const part = (text) => encodeURIComponent(text || "-");
const back = (text) => (text === "-" ? "" : text);

export function kindHash(kind) {
  return `#/kind/${part(kind.group)}/${part(kind.version)}/${part(kind.resource)}`;
}

export function objectHash(kind, namespace, name, tab = "") {
  return `#/object/${[kind.group, kind.version, kind.resource, namespace, name].map(part).join("/")}${tab && `/${tab}`}`;
}

/** Return {view, group, version, resource, namespace, name, tab}. */
export function parse(hash) {
  let parts;
  try {
    parts = hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  } catch {
    return { view: "" }; // not a link of this page
  }
  const [view, group = "", version = "", resource = "", namespace = "", name = "", tab = ""] = parts;
  return { view, group: back(group), version, resource, namespace: back(namespace), name: back(name), tab };
}
