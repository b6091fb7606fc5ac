/* One line: what stands before its message, when it was printed, how loudly it speaks of trouble, which task it ends.
   What `srunbook.explain.scan` does. */
"use strict";

((explain) => {
  const LEAP_YEAR = 2000;
  const DAY = 86400;

  /** Take launchers' labels and the time off the beginning of a line. @returns {{text: string, rank: number?}} */
  function stripLabels(line, { sticky }) {
    let [rank, place] = [null, 0];
    for (let found; (found = explain.matchAt(sticky.LABEL, line, place)); place += found[0].length) {
      const named = found.groups.rank ?? found.groups.task ?? found.groups.mpi;
      if (named) rank = Number(named);
    }
    const time = explain.matchAt(sticky.PREFIX, line, place);
    if (time) place += time[0].length;
    return { text: explain.strip(line.slice(place)), rank };
  }

  /** Return when a line was printed, in seconds of a year; null if it does not say. @returns {number?} */
  function timeOf(line, { times }) {
    for (const expression of times) {
      for (const { groups } of line.matchAll(expression)) {
        const [month, day, hour, minute, second] = ["month", "day", "hour", "minute", "second"].map((name) => Number(groups[name]));
        const date = new Date(Date.UTC(LEAP_YEAR, month - 1, day));
        if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day || hour > 23 || minute > 59 || second > 59) continue;
        const days = (date.getTime() - Date.UTC(LEAP_YEAR, 0, 1)) / 1000 / DAY;
        return days * DAY + hour * 3600 + minute * 60 + second + Number(`0.${groups.part ?? 0}`);
      }
    }
    return null;
  }

  /** Judge a line without its labels. @returns {number} */
  function trouble(text, { expressions, sticky, trouble: levels }) {
    if (explain.has(expressions.ENDED, text)) return levels.ENDED;
    if (explain.has(expressions.RESULT, text)) return levels.NONE;
    if (explain.matchAt(sticky.EXCEPTION, text, 0)) {
      return text.split(":", 1)[0].includes("Warning") ? levels.HINT : levels.EXCEPTION;
    }
    if (explain.has(expressions.HARD, text)) return levels.HARD;
    if (explain.has(expressions.ERROR, text)) return levels.ERROR;
    return explain.has(expressions.SOFT, text) ? levels.HINT : levels.NONE;
  }

  /** Return who ended first and how, in words; an empty text if the line tells of no task that ended by itself. */
  function endedFirst(line, { sticky, stopped }) {
    const { host, rank, ranks, code, signal } = explain.matchAt(sticky.TASK, line, 0)?.groups ?? { signal: stopped };
    if (signal === stopped) return "";
    const [who, they] = rank ? [`Rank ${rank}`, "it"] : [`Ranks ${ranks}`, "they"];
    const how = code ? `with ${code}` : `by a signal (${signal})`;
    return `${who} on ${host} ended first, ${how}; nothing that ${they} printed says why.`;
  }

  /** Return the rank of which srun says how it ended; null where it speaks of several, or of the step. */
  function taskOf(line, { sticky }) {
    const rank = explain.matchAt(sticky.TASK, line, 0)?.groups.rank;
    return rank ? Number(rank) : null;
  }

  /** Return what lines that differ in numbers alone have in common. */
  const shape = (text, { expressions }) => text.replace(expressions.VARYING, "");

  Object.assign(explain, { stripLabels, timeOf, trouble, endedFirst, taskOf, shape });
})((globalThis.logExplainer ??= {}));
