/* Find in a log the first line of each kind that an entry knows, or that speaks of trouble.
   What `srunbook.explain.scan` does. */
"use strict";

/**
 * The first line of its kind in a log.
 * @typedef {{slug: string, weight: number, text: string, log: string, number: number, rank: number?, time: number?}} Finding
 */

((explain) => {
  const { binary, decoded } = explain;

  /** A log that is read piece by piece. */
  class LogScan {
    /** @param {object} rules as `ready` returns them @param {string} name what findings call the log */
    constructor(rules, name) {
      this.rules = rules;
      this.name = name;
      this.lines = new explain.LineReader(rules);
      this.kinds = new Set();
      this.started = new Set();
      this.before = [];
      this.clock = null;
      /** @type {Finding[]} */
      this.findings = [];
      /** @type {Map<number, string>} */
      this.hosts = new Map();
      this.size = 0;
      /** @type {string[]} */
      this.problems = [];
    }

    /** @param {Uint8Array} bytes more of the log, unpacked */
    push(bytes) {
      this.take(this.lines.push(binary(bytes)));
    }

    /** Say that there is no more. @returns {LogScan} with its findings as a whole */
    end() {
      this.take(this.lines.end());
      this.findings = withoutChained(this.findings, this.rules);
      const [named] = this.name.matchAll(this.rules.expressions.RANK_OF_NAME);
      const only = this.started.size === 1 ? [...this.started][0] : null;
      const rank = named ? Number(named[1]) : only;
      this.findings.filter(({ weight }) => weight !== this.rules.trouble.ENDED).forEach((finding) => (finding.rank ??= rank));
      return this;
    }

    take({ texts, numbers }) {
      const { LOOK_BACK, LONGEST_QUOTE, MOST_FINDINGS } = this.rules.limits;
      if (!texts.length) return;
      const whole = texts.join("\n");
      this.noteHosts(whole);
      if (this.findings.length === MOST_FINDINGS) return;
      const places = this.fresh(whole);
      const times = new Map();
      for (const [place, finding] of this.judged(texts, numbers, places)) {
        const near = [...this.before, ...texts.slice(Math.max(0, place - LOOK_BACK), place + 1)].slice(-LOOK_BACK);
        this.clock = this.timeOfLast(near, times) ?? this.clock;
        this.findings.push({ ...finding, time: this.clock });
        if (this.findings.length === MOST_FINDINGS) break;
      }
      const last = texts.slice(-LOOK_BACK).map((text) => text.slice(0, LONGEST_QUOTE));
      this.before = [...this.before, ...last].slice(-LOOK_BACK);
    }

    /** Return the places of the lines of a kind that was not seen before, and remember the kinds. */
    fresh(text) {
      const shapes = text.replace(/[0-9]+/g, "").split("\n");
      const fresh = new Set(shapes.filter((shape) => !this.kinds.has(shape)));
      if (!fresh.size) return [];
      if (this.kinds.size > this.rules.limits.MOST_KINDS) this.kinds.clear();
      fresh.forEach((shape) => this.kinds.add(shape));
      return shapes.flatMap((shape, place) => (fresh.delete(shape) ? [place] : []));
    }

    /** Yield the findings among some lines, with their places. */
    *judged(texts, numbers, places) {
      const { messages, loud, limits, ordinary, sticky, trouble: levels } = this.rules;
      const text = places.map((place) => texts[place]).join("\n");
      const active = messages.filter(({ anchor }) => text.includes(anchor));
      if (!active.length && !loud.test(text)) return;
      for (const place of places) {
        const line = texts[place];
        const known = active.filter(({ anchor }) => line.includes(anchor));
        if (!known.length && !loud.test(line)) continue;
        const whole = decoded(line);
        const { text: own, rank } = explain.stripLabels(whole, this.rules);
        const slugs = new Set(known.filter(({ expression }) => expression.test(whole)).map(({ slug }) => slug));
        const found = { slug: "", weight: levels.NONE, text: own, log: this.name, number: numbers[place], rank };
        if (explain.matchAt(sticky.CHAINED, own, 0)) {
          yield [place, found];
          continue;
        }
        const weight = explain.trouble(own, this.rules);
        const ended = weight === levels.ENDED;
        if (ended) found.rank = explain.taskOf(own, this.rules);
        else if (!slugs.size && (weight === levels.NONE || ordinary.has(explain.shape(own, this.rules)))) continue;
        const quote = explain.cut(own, limits.LONGEST_QUOTE);
        for (const slug of slugs.size ? slugs : [""]) yield [place, { ...found, slug, weight, text: quote }];
      }
    }

    noteHosts(text) {
      const { RANK_START, TASK_ENDED } = this.rules.expressions;
      if (text.includes(" start")) {
        for (const [, rank, host] of text.matchAll(RANK_START)) {
          this.started.add(Number(rank));
          this.hosts.set(Number(rank), decoded(host));
        }
      }
      if (text.includes("srun: error: ")) {
        for (const [, host, rank] of text.matchAll(TASK_ENDED)) {
          if (!this.hosts.has(Number(rank))) this.hosts.set(Number(rank), decoded(host));
        }
      }
    }

    /**
     * Return the time of the last line, or of the nearest one before it that says it.
     * @param {string[]} texts @param {Map<string, number?>} times those of lines that were asked before
     */
    timeOfLast(texts, times) {
      for (let place = texts.length - 1; place >= 0; place -= 1) {
        const text = texts[place];
        if (!times.has(text)) times.set(text, this.timeOf(text));
        if (times.get(text) !== null) return times.get(text);
      }
      return null;
    }

    timeOf(text) {
      if (!text.includes(":")) return null;
      return explain.timeOf(decoded(text.slice(0, this.rules.limits.LONGEST_QUOTE)), this.rules);
    }
  }

  /** Drop the marks between the exceptions of a traceback, and the exception above each, which led to that below. */
  function withoutChained(findings, { limits, trouble: levels }) {
    const kept = [];
    for (const finding of findings) {
      if (finding.weight !== levels.NONE || finding.slug) {
        kept.push(finding);
        continue;
      }
      for (const other of kept.slice(-limits.MOST_BETWEEN)) {
        const above = other.number >= finding.number - limits.MOST_BETWEEN && !other.slug && other.rank === finding.rank;
        if (above) kept.splice(kept.indexOf(other), 1);
      }
    }
    return kept;
  }

  Object.assign(explain, { LogScan });
})((globalThis.logExplainer ??= {}));
