/* The part of a section that shows why it was found. */
"use strict";

((search) => {
  /** Where words stand in a text: from, to, and whether the query has the word in some form. */
  function places(text, query) {
    const stems = new Set(search.words(query).map(search.stem));
    return [...text.matchAll(/[\p{L}\p{N}_]+/gu)].map(({ 0: word, index }) => ({
      from: index,
      to: index + word.length,
      marked: search.words(word).some((part) => stems.has(search.stem(part))),
      stem: search.stem(word.toLowerCase()),
    }));
  }

  /**
   * Cut the stretch of a text out that has the most different words of a query.
   * @param {string} text
   * @param {string} query
   * @param {number} length Characters, about.
   * @returns {{text: string, marked: boolean}[]} The stretch in pieces; ellipses tell where text is left out.
   */
  function excerpt(text, query, length) {
    const all = places(text, query);
    const marked = all.filter((place) => place.marked);
    let best = { from: 0, count: 0 };
    marked.forEach((first, index) => {
      const near = marked.slice(index).filter((place) => place.to - first.from <= length * 0.8);
      const count = new Set(near.map((place) => place.stem)).size;
      if (count > best.count) best = { from: first.from, count };
    });
    const before = text.slice(0, best.from).lastIndexOf(". ") + 1;
    const from = best.from - before < length * 0.3 ? before : (all.findLast((place) => place.from < best.from - 30)?.from ?? 0);
    const to = all.findLast((place) => place.to <= from + length)?.to ?? text.length;
    const pieces = [];
    let at = from;
    const add = (end, isMarked) => {
      if (end > at) pieces.push({ text: text.slice(at, end), marked: isMarked });
      at = Math.max(at, end);
    };
    for (const place of marked.filter((mark) => mark.from >= from && mark.to <= to)) {
      add(place.from, false);
      add(place.to, true);
    }
    const end = text.slice(to).match(/^[^\s\p{L}\p{N}]*/u)[0].length + to;
    add(end, false);
    if (pieces.length && from > 0) pieces.unshift({ text: "… ", marked: false });
    if (end < text.trimEnd().length) pieces.push({ text: " …", marked: false });
    return pieces;
  }

  Object.assign(search, { excerpt });
})((globalThis.siteSearch ??= {}));
