/* Tell a diagnosis: the text that `srunbook explain` prints, and what `--json` tells. What `srunbook.explain.report` does. */
"use strict";

((explain) => {
  const STRANGE = /(?! )[\p{C}\p{Z}]/gu;

  /** Show what is no text by its number. */
  const printable = (text) =>
    text.replace(STRANGE, (character) => `\\x${character.codePointAt(0).toString(16).padStart(2, "0")}`);

  /** Return what masks the names in the findings and in the names of the logs. */
  function redactor(diagnosis, scans, rules) {
    const made = new explain.Redactor(rules);
    for (const scan of scans) {
      made.learn(`/${scan.name}`);
      scan.hosts.forEach((host) => made.learn(`host=${host}`));
      scan.findings.forEach((finding) => made.learn(finding.text));
    }
    return made;
  }

  /** A diagnosis in words. */
  class Report {
    /**
     * @param {import("./explain-diagnosis.js").Diagnosis} diagnosis
     * @param {{name: string, size: number}[]} scans
     * @param {object} rules
     * @param {(text: string) => string} mask
     */
    constructor(diagnosis, scans, rules, mask = (text) => text) {
      Object.assign(this, { diagnosis, rules, mask, logs: scans.filter(({ size }) => size) });
    }

    /** @returns {"explained" | "unknown" | "nothing_failed"} */
    get status() {
      const { cause } = this.diagnosis;
      return !cause ? "nothing_failed" : cause.slug ? "explained" : "unknown";
    }

    /** Return the report for people. */
    text() {
      const { cause, consequences, warnings, toSearch } = this.diagnosis;
      const lines = [];
      if (!cause) lines.push(...this.nothing());
      else if (cause.slug) {
        lines.push(`The first failure: ${this.place(cause)}`, "", this.quote(cause), "", ...this.advice(cause.slug));
      } else if (this.ended(cause)) {
        const advice = this.advice(this.rules.says_nothing);
        lines.push(this.sentence(cause), "", `  ${this.line(cause)}`, this.quote(cause), ...advice);
      } else lines.push(`No entry knows the first failure: ${this.place(cause)}`, "", this.quote(cause));
      const others = toSearch.filter((finding) => finding !== cause);
      if (others.length) lines.push("", `Worth searching for${cause ? " as well" : ""}:`, "", ...others.map((one) => this.quote(one)));
      if (consequences.length) lines.push("", "What followed:");
      for (const finding of consequences.slice(0, this.rules.limits.MOST_SHOWN)) {
        lines.push("", `  ${this.place(finding)}`, this.quote(finding), ...this.advice(finding.slug));
      }
      if (warnings.length) lines.push("", "No failure, but worth reading:");
      for (const finding of warnings) lines.push("", this.quote(finding), ...this.advice(finding.slug));
      return `${lines.join("\n")}\n`;
    }

    nothing() {
      const { length } = this.logs;
      return [
        `No line of ${length} log${length === 1 ? "" : "s"} speaks of a failure.`,
        "To check that the job did what it should: srunbook verify JOBID",
      ];
    }

    /** Return where a line is: `rank 3 on node2, job.log, line 17`. */
    place({ rank, log, number }) {
      const host = this.diagnosis.hosts.get(rank);
      const who = rank === null ? "" : `rank ${rank}${host ? ` on ${host}` : ""}, `;
      return printable(this.mask(who)) + this.line({ log, number });
    }

    line({ log, number }) {
      return printable(this.mask(`${log}, line ${number}`));
    }

    /** Tell whether a finding says only which task ended first. */
    ended({ weight }) {
      return weight === this.rules.trouble.ENDED;
    }

    sentence({ text }) {
      return printable(this.mask(explain.endedFirst(text, this.rules)));
    }

    quote(finding) {
      return `    ${printable(this.mask(finding.text))}`;
    }

    advice(slug) {
      return [`  Fix:  ${this.rules.entries[slug].fix}`, `  Page: ${this.page(slug)}`];
    }

    page(slug) {
      return `${this.rules.pages}/${slug}.html`;
    }

    /** Return the report for programs. */
    told() {
      const { cause, consequences, warnings, toSearch } = this.diagnosis;
      const all = (findings) => findings.map((finding) => this.toldOf(finding));
      return {
        schema: this.rules.limits.SCHEMA,
        status: this.status,
        job: null,
        state: "",
        cause: cause && this.toldOf(cause),
        consequences: all(consequences),
        warnings: all(warnings),
        to_search: all(toSearch),
        logs: this.logs.map(({ name, size }) => ({ name: this.mask(name), bytes: size })),
      };
    }

    toldOf(finding) {
      const { slug, text, log, number, rank } = finding;
      const host = this.diagnosis.hosts.get(rank);
      const advice = slug || (this.ended(finding) ? this.rules.says_nothing : "");
      return {
        entry: slug || null,
        line: this.mask(text),
        log: this.mask(log),
        number,
        rank,
        host: host ? this.mask(host) : null,
        fix: advice ? this.rules.entries[advice].fix : null,
        page: advice ? this.page(advice) : null,
      };
    }
  }

  Object.assign(explain, { Report, redactor, printable });
})((globalThis.logExplainer ??= {}));
