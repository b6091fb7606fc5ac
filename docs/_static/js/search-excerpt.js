/* How a section begins, with the words of a query marked. */
"use strict";

((search) => {
  /**
   * @param {string} text
   * @param {string} query
   * @returns {{text: string, marked: boolean}[]} The text in pieces; those are marked that the query has in some form.
   */
  function marked(text, query) {
    const stems = new Set(search.words(query).map(search.stem));
    const asked = (word) => search.words(word).some((part) => stems.has(search.stem(part)));
    return text.split(/([\p{L}\p{N}_]+)/u).filter(Boolean).map((piece) => ({ text: piece, marked: asked(piece) }));
  }

  Object.assign(search, { marked });
})((globalThis.siteSearch ??= {}));
