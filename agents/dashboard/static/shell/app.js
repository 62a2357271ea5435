// The page as a whole: who sits before it, and which screen is shown for the address.
//
// A screen is a function (app, view) that fills an element and returns what ends it; it has `app.server`,
// `app.access`, `app.kinds` and `app.route`, and changes the address alone (`app.go`). What it wants of
// the keys is in `app.current`.

import { Access, whoAmI } from "../server/access.js";
import { ApiError, Connection } from "../server/connection.js";
import { isSame, readKinds } from "../server/kinds.js";
import { el, fill, quiet, toast } from "../parts/elements.js";
import { changes } from "../screens/changes.js";
import { create } from "../screens/create.js";
import { listing } from "../screens/listing.js";
import { nodes } from "../screens/nodes.js";
import { object } from "../screens/object.js";
import { overview } from "../screens/overview.js";
import { Header } from "./header.js";
import { Keys } from "./keys.js";
import { login } from "./login.js";
import { Menu } from "./menu.js";
import { parse, write } from "./routes.js";

const SCREENS = { "": overview, kind: listing, object, nodes, changes, create };
const ANONYMOUS = "system:anonymous";

export class App {
  constructor() {
    this.server = new Connection(location);
    this.access = new Access(this.server);
    this.kinds = [];
    this.user = null;
    this.route = parse(location.hash);
    this.current = {};
    this.isReady = false;
    this.isSigningIn = false;
    this.ends = () => undefined;
    this.view = document.getElementById("view");
  }

  /** Find out who the user is, and show the address; again after a new token. */
  async start() {
    this.server.onUnauthenticated = () => this.signIn("Your token is not valid any more, or was never.");
    let user = null;
    try {
      user = await whoAmI(this.server);
    } catch (error) {
      if (!(error instanceof ApiError) || ![401, 403].includes(error.code)) throw error;
    }
    if (!user || user.username === ANONYMOUS) {
      this.signIn("");
      return;
    }
    await this.begin(user);
  }

  async begin(user) {
    this.user = user;
    this.kinds = await readKinds(this.server);
    if (!this.isReady) {
      this.isReady = true;
      this.header = new Header(this);
      this.menu = new Menu(this);
      this.keys = new Keys(this);
      addEventListener("hashchange", () => this.show());
    }
    this.header.begin();
    this.show();
  }

  /** Ask for a token, once, whatever is shown; what was shown comes back with it. */
  signIn(problem) {
    if (this.isSigningIn) return;
    this.isSigningIn = true;
    this.leave();
    this.header?.rest(); // nothing is asked without a credential
    login(this, problem && this.user ? problem : "", async (token) => {
      this.server.token = token;
      this.server.onUnauthenticated = () => undefined;
      try {
        const user = await whoAmI(this.server);
        if (user.username === ANONYMOUS) throw new Error("The token is empty.");
        this.access = new Access(this.server);
        this.isSigningIn = false;
        await this.begin(user);
        this.server.onUnauthenticated = () => this.signIn("Your token is not valid any more.");
      } catch (error) {
        this.isSigningIn = true;
        this.server.token = "";
        throw error;
      }
    });
  }

  leave() {
    const ends = this.ends;
    this.ends = () => undefined;
    this.current = {};
    ends();
  }

  /** Show the screen of the address. */
  show() {
    if (this.isSigningIn) return;
    this.leave();
    this.route = parse(location.hash);
    this.server.moment = this.route.moment;
    document.body.classList.toggle("past", Boolean(this.route.moment));
    document.body.dataset.view = this.route.view;
    this.menu.mark();
    this.header.mark();
    const kind = this.kinds.find((each) => isSame(each, this.route) && each.version === this.route.version);
    const needsKind = ["kind", "object"].includes(this.route.view);
    if (!(this.route.view in SCREENS) || (needsKind && !kind)) {
      fill(this.view, el("h1", {}, "Nothing"), quiet("This cluster has no such kind, or this page no such view."));
      return;
    }
    this.ends = SCREENS[this.route.view](this, this.view, kind) || this.ends;
    document.title = `${this.route.name || kind?.kind || this.route.view || "Overview"} - kvstack`;
    this.view.scrollTop = 0;
  }

  /** Return the hash of a route, at the moment and in the namespace that are looked at. */
  href(route) {
    return write({ moment: this.route.moment, namespace: this.route.namespace, ...route });
  }

  go(route) {
    location.hash = this.href(route);
  }

  kindHref(kind) {
    return this.href({ ...kind, view: "kind" });
  }

  objectHref(kind, namespace, name, tab = "") {
    return this.href({ ...kind, view: "object", of: namespace, name, tab });
  }

  /** Return a link to an object. */
  link(kind, namespace, name, text = namespace ? `${namespace}/${name}` : name, tab = "") {
    return el("a", { href: this.objectHref(kind, namespace, name, tab) }, text);
  }

  /** Show what went wrong where nobody expected it. */
  fail(error) {
    if (error.name === "AbortError") return;
    console.error(error);
    toast(error.message, "bad");
  }

  /** Do something again and again until the screen is left: run(signal). */
  repeat(run, everyMs, firstMs = 0) {
    const ending = new AbortController();
    let timer = 0;
    const step = async () => {
      try {
        await run(ending.signal);
      } catch (error) {
        if (!ending.signal.aborted) this.fail(error);
      }
      if (!ending.signal.aborted) timer = setTimeout(step, everyMs);
    };
    timer = setTimeout(step, firstMs);
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }
}
