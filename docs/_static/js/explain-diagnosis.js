/* Decide which finding is the cause, and which ones follow from it. What `srunbook.explain.report` does. */
"use strict";

/**
 * Why a job failed.
 * @typedef {import("./explain-scan.js").Finding} Finding
 * @typedef {{cause: Finding?, consequences: Finding[], warnings: Finding[], toSearch: Finding[], hosts: Map<number, string>}} Diagnosis
 */

((explain) => {
  /**
   * Find the cause among the findings of all logs.
   * @param {{findings: Finding[], hosts: Map<number, string>}[]} logs
   * @param {object} rules
   * @returns {Diagnosis}
   */
  function diagnose(logs, rules) {
    const { entries, trouble: levels } = rules;
    const hosts = new Map(logs.flatMap((log) => [...log.hosts]));
    const found = logs.flatMap((log) => log.findings);
    const role = (finding) => entries[finding.slug].role;
    const known = withoutExplained(found.filter((finding) => finding.slug), entries);
    const failures = known.filter((finding) => role(finding) !== "warning");
    const warnings = firstOfEach(known.filter((finding) => role(finding) === "warning"));
    const unknown = found.filter((finding) => !finding.slug && !belongs(finding, failures, rules));
    let loud = unknown.filter((finding) => finding.weight >= levels.HARD);
    if (!failures.length && !loud.length) loud = unknown.filter((finding) => finding.weight === levels.ERROR);
    if (!failures.length && !loud.length) loud = ended(logs, rules);
    const cause = firstOf(loud, failures, entries);
    const consequences = firstOfEach(failures).filter((finding) => !cause || finding.slug !== cause.slug);
    const spoken = unknown.filter((finding) => finding.weight !== levels.ENDED);
    const own = spoken.filter((finding) => finding.weight >= levels.HARD || !near(finding, failures, rules));
    const toSearch = cause?.slug ? [] : worthSearching(own, cause, rules);
    return { cause, consequences, warnings, toSearch, hosts };
  }

  /** Return, of each log, the task that ended first, unless its step was ended as a whole before. */
  function ended(logs, rules) {
    const firsts = logs.map(({ findings }) => findings.find(({ weight }) => weight === rules.trouble.ENDED));
    return firsts.filter((finding) => finding && !finding.slug && explain.endedFirst(finding.text, rules));
  }

  /** Drop the messages that another entry explains, and the entries whose consequence did not come. */
  function withoutExplained(known, entries) {
    const slugs = new Set(known.map((finding) => finding.slug));
    const came = new Set([...slugs].filter((slug) => !entries[slug].explains.length || entries[slug].explains.some((other) => slugs.has(other))));
    const explained = new Set([...came].flatMap((slug) => entries[slug].explains));
    return known.filter(({ slug }) => came.has(slug) && !explained.has(slug));
  }

  /** Tell whether a line is part of what a rank reports of a failure that an entry knows. */
  function belongs(finding, failures, { entries, limits: { NEAR } }) {
    return failures.some((failure) => {
      if (failure.log !== finding.log || failure.rank !== finding.rank) return false;
      const after = finding.number - failure.number;
      return (after >= 0 && after < NEAR) || (after < 0 && after > -NEAR && entries[failure.slug].role === "cause");
    });
  }

  /** Tell whether a line stands beside one that an entry knows. */
  const near = (finding, failures, { limits: { NEAR } }) =>
    failures.some((failure) => failure.log === finding.log && Math.abs(failure.number - finding.number) < NEAR);

  function firstOf(unknown, failures, entries) {
    const causes = failures.filter(({ slug }) => entries[slug].role !== "consequence");
    const candidates = unknown.length || causes.length ? [...unknown, ...causes] : failures;
    if (candidates.every(({ time }) => time !== null)) return least(candidates, ({ time }) => [time]);
    // Without times, the order is known within a log only; a line that an entry knows tells more than one it does not.
    return least(candidates, ({ slug, weight }) => [slug ? 0 : 1, -weight]);
  }

  /** Return the first of those whose key is least, or null. */
  function least(findings, key) {
    return findings.reduce((best, finding) => (best && compare(key(finding), key(best)) >= 0 ? best : finding), null);
  }

  const compare = (one, other) => one.map((value, place) => value - other[place]).find(Boolean) ?? 0;

  const firstOfEach = (findings) => {
    const first = new Map();
    findings.forEach((finding) => first.has(finding.slug) || first.set(finding.slug, finding));
    return [...first.values()];
  };

  /** Choose the loudest lines, the cause first, each text once. */
  function worthSearching(unknown, cause, { limits }) {
    const key = (finding) => [finding === cause ? 0 : 1, -finding.weight];
    const texts = new Map();
    for (const finding of [...unknown].sort((one, other) => compare(key(one), key(other)))) {
      if (!texts.has(finding.text)) texts.set(finding.text, finding);
    }
    return [...texts.values()].slice(0, limits.MOST_TO_SEARCH);
  }

  Object.assign(explain, { diagnose });
})((globalThis.logExplainer ??= {}));
