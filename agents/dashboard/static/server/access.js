// Who the user is, and what the user may do. Answers are kept for a while.

const KEPT_MS = 60_000;
const KEPT_MAX = 500;

/** Return who the server takes the user for: {username, groups}. */
export async function whoAmI(server) {
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  return (
    await server.write("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, undefined, {
      isHarmless: true,
    })
  ).status.userInfo;
}

export class Access {
  constructor(server) {
    this.server = server;
    this.known = new Map();
  }

  /** Return whether the user may: {verb, group, resource, subresource, namespace, name}. */
  async may(attributes) {
    const key = JSON.stringify(attributes);
    const kept = this.known.get(key);
    if (kept && kept.until > Date.now()) return kept.allowed;
    const review = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: { resourceAttributes: attributes },
    };
    const answer = await this.server.write(
      "POST",
      "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
      review,
      undefined,
      { isHarmless: true },
    );
    if (this.known.size >= KEPT_MAX) this.known.clear();
    this.known.set(key, { allowed: answer.status.allowed, until: Date.now() + KEPT_MS });
    return answer.status.allowed;
  }
}
