/* Mask what a report must not tell strangers: users, homes, hosts, addresses, tokens and keys.
   What `srunbook.explain.redact` does. */
"use strict";

((explain) => {
  const PACKAGES = "/site-packages/";

  /** Masks texts, with the same mask for the same name in all of them. */
  class Redactor {
    constructor(rules) {
      this.rules = rules;
      /** @type {Map<string, string>} */
      this.names = new Map();
    }

    /** Remember the users and hosts that a text names, wherever else they appear. */
    learn(text) {
      const { HOME, USER, HOST } = this.rules.expressions;
      for (const [kind, expression] of [["user", HOME], ["user", USER], ["host", HOST]]) {
        for (const [, ...groups] of text.matchAll(expression)) {
          for (const name of groups) this.learnName(kind, (name ?? "").replace(/^[.-]+|[.-]+$/g, ""));
        }
      }
    }

    learnName(kind, name) {
      const nobody = [...name].length < 2 || this.rules.nobody.has(name.toLowerCase()) || /^\p{Decimal_Number}+$/u.test(name);
      if (nobody || this.names.has(name)) return;
      const number = 1 + [...this.names.values()].filter((mask) => mask.startsWith(`<${kind}`)).length;
      this.names.set(name, `<${kind}${number}>`);
    }

    /** Return a text without secrets. @param {string} text */
    mask(text) {
      const own = this.rules.expressions;
      let masked = text
        .replace(own.NAMED_SECRET, (...found) => `${found.at(-1).name}<secret>`)
        .replace(own.SECRET, "<secret>")
        .replace(own.IN_URL, "<secret>@")
        .replace(own.URL_HOST, "<host>")
        .replace(own.EMAIL, "<address>")
        .replace(own.PATH, (path) => this.path(path));
      for (const name of ["MAC", "IPV6", "IPV4"]) masked = masked.replace(own[name], "<address>");
      const isFile = (name) => this.rules.file_endings.some((ending) => name.endsWith(ending));
      masked = masked.replace(own.DOMAIN, (name) => (isFile(name) ? name : "<host>"));
      if (!this.names.size) return masked;
      const names = [...this.names.keys()].sort((one, other) => [...other].length - [...one].length);
      const any = new RegExp(`(?<![A-Za-z0-9])(?:${names.map(explain.literal).join("|")})(?![A-Za-z0-9])`, "gu");
      return masked.replace(any, (name) => this.names.get(name));
    }

    /** Keep the part of a path that belongs to a package, or else the name of a file; a folder may be somebody's. */
    path(path) {
      const package_ = path.indexOf(PACKAGES);
      if (package_ >= 0) return `<path>${path.slice(package_)}`;
      const name = path.slice(path.lastIndexOf("/") + 1);
      return explain.has(this.rules.expressions.NAMED_FILE, name) ? `<path>/${name}` : "<path>";
    }
  }

  Object.assign(explain, { Redactor });
})((globalThis.logExplainer ??= {}));
