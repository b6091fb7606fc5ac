/**
 * A job script as `srunbook.script` reads it, and edits that keep every other letter.
 *
 * The build parses each script with Python and writes what it found into a JSON file; nothing here parses bash. Offsets
 * count the UTF-16 units of `text`.
 *
 * @typedef {{text: string, start: number, end: number, line: number, plain: boolean}} Word  word of a directive
 * @typedef {{name: string, value: string|null, word: Word, value_word: Word|null, at: number|null, alone: boolean,
 *   line: number}} Option
 * @typedef {{raw: string, start: number, end: number, literal: string|null}} ShellWord
 * @typedef {{words: ShellWord[], start: number, end: number, line: number, plain: boolean, name: string|null}} Command
 * @typedef {{name: string, value: ShellWord, line: number, plain: boolean}} Assignment
 * @typedef {{start: number, end: number, new: string}} Edit
 */

/** A script that is not understood, or that the site cannot run. */
export class Refusal extends Error {
  /** @param {number} line from 1 @param {string} problem */
  constructor(line, problem) {
    super(`line ${line}: ${problem}`);
    this.line = line;
    this.problem = problem;
  }
}

const PLAIN = /^[A-Za-z0-9_./:@%+,=-]+$/;
const SPACE = " \t\n\v\f\r";

/** What bash makes of a word; null where something in it is expanded. @param {string} raw */
export function literal(raw) {
  if (PLAIN.test(raw)) return raw;
  const quoted = raw.match(/^(?:'([^']*)'|"([^"$`\\]*)")$/);
  return quoted ? quoted[1] || quoted[2] || "" : null;
}

/** A job script. */
export class Script {
  /** @param {any} facts what the build says of the script (docs/_ext/script_facts.py) */
  constructor(facts) {
    this.text = facts.text;
    this.error = facts.error;
    this.bash = facts.bash;
    this.lines = facts.lines;
    /** @type {Option[]} */
    this.options = facts.options.map((one) => ({ ...one, line: one.word.line }));
    const word = ([start, end]) => this.shellWord(start, end);
    const { commands, assignments, arrays, expansions, steps, problem } = facts.shell;
    /** @type {Command[]} */
    this.commands = commands.map((one) => {
      const words = one.words.map(word);
      return { ...one, words, name: words.length ? words[0].literal : null };
    });
    /** @type {Assignment[]} */
    this.assignments = assignments.map((one) => ({ ...one, value: word(one.value) }));
    /** @type {ShellWord[][]} */
    this.arrays = arrays.map((one) => one.map(word));
    /** @type {[string, number][]} */
    this.expansions = expansions;
    /** @type {[number, string|null][]} */
    this.steps = steps;
    this.problem = problem;
  }

  /** @param {number} start @param {number} end @returns {ShellWord} */
  shellWord(start, end) {
    const raw = this.text.slice(start, end);
    return { raw, start, end, literal: literal(raw) };
  }

  /** The option that counts: the last of these names. @param {...string} names */
  last(...names) {
    return this.options.findLast((option) => names.includes(option.name)) ?? null;
  }

  /** Line of an offset, from 1. @param {number} offset */
  lineAt(offset) {
    return this.text.slice(0, offset).split("\n").length;
  }

  /** Where the line of an offset begins, and where the next one does. @param {number} offset */
  lineSpan(offset) {
    const end = this.text.indexOf("\n", offset);
    return [lineStart(this.text, offset), end < 0 ? this.text.length : end + 1];
  }
}

/** @param {string} text @param {number} offset */
function lineStart(text, offset) {
  return offset ? text.lastIndexOf("\n", offset - 1) + 1 : 0;
}

const width = (text) => [...text].length;

/**
 * Apply edits that do not overlap; a comment that follows one on its line keeps its column where there is room.
 * @param {string} text @param {Edit[]} edits
 */
export function apply(text, edits) {
  const ordered = [...edits].sort((one, other) => one.start - other.start || one.end - other.end);
  if (ordered.some((edit, place) => place && ordered[place - 1].end > edit.start)) throw Error("two edits overlap");
  /** @type {Map<number, Edit[]>} */
  const groups = new Map();
  for (const edit of ordered) {
    const line = lineStart(text, edit.start);
    groups.set(line, [...(groups.get(line) ?? []), edit]);
  }
  let made = "";
  let done = 0;
  for (const changes of groups.values()) {
    for (const edit of changes) {
      made += text.slice(done, edit.start) + edit.new;
      done = edit.end;
    }
    const gap = text.slice(done).match(/^( {2,})#/);
    if (gap && !changes.some((edit) => (edit.new + text.slice(edit.start, edit.end)).includes("\n"))) {
      const grown = changes.reduce((sum, edit) => sum + width(edit.new) - width(text.slice(edit.start, edit.end)), 0);
      made += " ".repeat(Math.max(2, gap[1].length - grown));
      done += gap[1].length;
    }
  }
  return made + text.slice(done);
}

/** Write an option. Values were judged before (adapt-site.js): none ends its word. */
export function directive(name, value) {
  const text = value === null ? `--${name}` : `--${name}=${value}`;
  if (/[\s'"\\#\0]/.test(text)) throw Error(`${text} is not one word to sbatch`);
  return text;
}

/**
 * Give an option another argument; its form, such as `-p gpu`, stays where that is possible.
 * @param {Option} option @param {string} value @param {string|null} name another option in its place
 * @returns {Edit}
 */
export function setValue(option, value, name = null) {
  const text = directive(name ?? option.name, value);
  const { word, value_word: follows } = option;
  if (name === null || name === option.name) {
    if (follows && word.line === follows.line && !value.startsWith("-")) {
      return { start: follows.start, end: follows.end, new: value };
    }
    if (option.at !== null && word.plain) return { start: word.start + option.at, end: word.end, new: value };
  }
  if (!option.alone) {
    throw new Refusal(word.line, `${word.text} is several options in one word. Write --${option.name}=VALUE`);
  }
  if (follows && word.line !== follows.line) {
    throw new Refusal(word.line, `--${option.name} has its value on another line. Write --${option.name}=VALUE`);
  }
  return { start: word.start, end: follows ? follows.end : word.end, new: text };
}

/**
 * Take an option away: its line, if the line has no other, or else its words.
 * @param {Script} script @param {Option} option @returns {Edit}
 */
export function remove(script, option) {
  const ours = option.value_word ? [option.word, option.value_word] : [option.word];
  const line = script.lines.find((one) => one.number === option.line);
  if (!option.alone || ours.at(-1).line !== option.line) {
    throw new Refusal(option.line, `--${option.name} shares a word or a line with others. Put it on its own line`);
  }
  if (line.words === ours.length) {
    const [start, end] = script.lineSpan(line.start);
    return { start, end, new: "" };
  }
  let start = option.word.start;
  while (SPACE.includes(script.text[start - 1])) start -= 1;
  return { start, end: ours.at(-1).end, new: "" };
}

/** Add a directive behind the last one, or behind the first line of a script without any. @returns {Edit} */
export function addDirective(script, name, value) {
  const text = `#SBATCH ${directive(name, value)}`;
  const [start, end] = script.lineSpan(script.lines.length ? script.lines.at(-1).start : 0);
  const last = script.text.slice(start, end);
  const dos = last.endsWith("\r\n") || (!last.endsWith("\n") && script.text.includes("\r\n"));
  const newline = dos ? "\r\n" : "\n";
  return { start: end, end, new: last.endsWith("\n") ? text + newline : newline + text };
}
