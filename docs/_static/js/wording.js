/** Values in messages as Python writes them, and the word that somebody may have meant. */

const SHORT = 80;
const ITEMS = 6;
const NAMES = 4;
const ESCAPES = { "\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\" };

/**
 * Show a value in a message: short and on one line.
 *
 * @param {unknown} value
 * @returns {string}
 */
export function shown(value) {
  return short(value, 2);
}

/** Python's reprlib: lists and mappings are cut after a few items, and texts in their middle. */
function short(value, level) {
  if (typeof value === "string") return shortText(value);
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) {
    if (value.length && !level) return "[...]";
    const items = value.slice(0, ITEMS).map((item) => short(item, level - 1));
    return `[${[...items, ...(value.length > ITEMS ? ["..."] : [])].join(", ")}]`;
  }
  if (typeof value === "object") {
    const names = Object.keys(value).sort();
    if (names.length && !level) return "{...}";
    const items = names.slice(0, NAMES).map((name) => `${short(name, level - 1)}: ${short(value[name], level - 1)}`);
    return `{${[...items, ...(names.length > NAMES ? ["..."] : [])].join(", ")}}`;
  }
  return String(value);
}

function shortText(text) {
  const letters = [...text];
  const whole = [...quoted(letters.slice(0, SHORT))];
  if (whole.length <= SHORT) return whole.join("");
  const before = Math.floor((SHORT - 3) / 2);
  const after = SHORT - 3 - before;
  const ends = [...quoted([...letters.slice(0, before), ...letters.slice(letters.length - after)])];
  return `${ends.slice(0, before).join("")}...${ends.slice(ends.length - after).join("")}`;
}

/** Python's repr of a text. */
function quoted(letters) {
  const quote = letters.includes("'") && !letters.includes('"') ? '"' : "'";
  const inner = letters.map((letter) => {
    if (letter === quote) return `\\${letter}`;
    if (letter in ESCAPES) return ESCAPES[letter];
    return printable(letter) ? letter : hexadecimal(letter.codePointAt(0));
  });
  return `${quote}${inner.join("")}${quote}`;
}

/** Show a text as Python's repr does. */
export function repr(text) {
  return quoted([...text]);
}

function hexadecimal(code) {
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
}

/**
 * Tell whether all characters of a text can be seen, as Python's str.isprintable does.
 *
 * @param {string} text
 */
export function printable(text) {
  return !/[\p{C}\p{Z}]/u.test(text.replaceAll(" ", ""));
}

/**
 * List the words that a word may mean, the likeliest first, as Python's difflib.get_close_matches does.
 *
 * @param {string} word
 * @param {string[]} words
 * @returns {string[]}
 */
export function closeMatches(word, words) {
  const likely = words.map((other) => ({ other, score: likeness(other, word) })).filter(({ score }) => score >= 0.6);
  likely.sort((a, b) => b.score - a.score || (a.other < b.other ? 1 : -1));
  return likely.map(({ other }) => other);
}

function likeness(a, b) {
  return (2 * matching([...a], [...b])) / ([...a].length + [...b].length || 1);
}

/** Count the letters of the longest block that two words share, and of those to both sides of it. */
function matching(a, b) {
  let [size, from, to] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    for (let j = 0; j < b.length; j++) {
      let length = 0;
      while (i + length < a.length && a[i + length] === b[j + length]) length++;
      if (length > size) [size, from, to] = [length, i, j];
    }
  }
  if (!size) return 0;
  return size + matching(a.slice(0, from), b.slice(0, to)) + matching(a.slice(from + size), b.slice(to + size));
}

/** Write JSON with Python's spaces. @param {any} value @returns {string} */
export function json(value) {
  return Array.isArray(value) ? `[${value.map(json).join(", ")}]` : JSON.stringify(value);
}
