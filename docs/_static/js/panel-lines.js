/** Which lines of a script were replaced by which: what the page marks. */

/**
 * @typedef {{from: number, to: number, lines: string[]}} Hunk  lines [from, to) of the original, from 0, became `lines`
 * @param {string} before @param {string} after @returns {Hunk[]}
 */
export function hunks(before, after) {
  const [one, other] = [before.split("\n"), after.split("\n")];
  const longest = one.map(() => Array(other.length + 1).fill(0)).concat([Array(other.length + 1).fill(0)]);
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      const same = one[i] === other[j];
      longest[i][j] = same ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  /** @type {Hunk[]} */
  const found = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      i += 1;
      j += 1;
      continue;
    }
    const hunk = { from: i, to: i, lines: [] };
    while (i < one.length || j < other.length) {
      if (i < one.length && j < other.length && one[i] === other[j]) break;
      if (j < other.length && (i === one.length || longest[i][j + 1] > longest[i + 1][j])) hunk.lines.push(other[j++]);
      else i += 1;
    }
    found.push({ ...hunk, to: i });
  }
  return found;
}

/**
 * Where some lines of a script begin, from 0; -1 if they are none of it.
 * @param {string} whole @param {string[]} part @param {number} from the first line that they may be
 */
export function placeOf(whole, part, from) {
  const lines = whole.split("\n");
  return lines.findIndex((_, place) => place >= from && part.every((line, at) => lines[place + at] === line));
}
