/* The words of a text, and what a reader may mean by those of a query. Classic scripts, so that a page on a disk loads them. */
"use strict";

((search) => {
  const STOP = new Set(
    (
      "a about after all also am an and any are as at be been but by can cannot could did do does doing for from get gets " +
      "had has have help how i if in into is it its just me message messages my need no not of on or our out over please problem really should so some than that the their " +
      "them then there these they this those to too up use used uses using want was we were what when where which while who why will with would you your"
    ).split(" ")
  );

  const OTHER_FORM = 0.8;
  const OTHER_WORD = 0.6;
  const LONGEST = 40;
  const SHORTEST_PART = 3; // of a word that is written in one
  const stems = new Map();

  /** Split `RendezvousTimeoutError` and `SLURM_JOB_ID` into their parts. */
  function parts(word) {
    const pieces = word.replace(/([a-z\d])([A-Z])/g, "$1 $2").replace(/([A-Z])([A-Z][a-z])/g, "$1 $2").split(/[\s_]+/);
    return pieces.length > 1 ? pieces.filter((part) => part.length > 1) : [];
  }

  /** Cut what differs between the forms of an English word: `hangs`, `hanging` and `hang` have one stem. */
  function stem(word) {
    if (stems.has(word)) return stems.get(word);
    let cut = word;
    if (cut.length > 4) cut = cut.replace(/ies$/, "y");
    if (cut.length > 3 && !/(?:ss|is|[^p]us)$/.test(cut)) cut = cut.replace(/s$/, "");
    const short = cut.replace(/(?:i[sz](?:ation|ed?|ing)|at(?:ion|ed?|ing|or)|ing|ed|ism|ion)$/, "");
    if (short.length >= (cut.length > 6 ? 4 : 3)) cut = short.replace(/([^aeiouls])\1$/, "$1");
    if (cut.length > 3) cut = cut.replace(/e$/, "");
    stems.set(word, cut);
    return cut;
  }

  /**
   * Return the words of a text in small letters: names whole and in parts, without addresses, times and other numbers of a run.
   * @param {string} text
   * @returns {string[]}
   */
  function words(text) {
    const kept = [];
    for (const [raw] of text.matchAll(/[\p{L}\p{N}_]+/gu)) {
      if (raw.length > LONGEST || /^(?:\d{4,}|0x[\da-f]*|[\da-f]{12,}|_+)$/i.test(raw)) continue;
      for (const word of [raw, ...parts(raw)]) {
        const small = word.toLowerCase();
        if (small.length > 1 && !STOP.has(small)) kept.push(small);
      }
    }
    return kept;
  }

  /** Return what the index keeps of a text: its words, and behind a `~` the stem of each that has another. */
  function terms(text) {
    return words(text).flatMap((word) => (stem(word) === word ? [word] : [word, `~${stem(word)}`]));
  }

  /** Return the parts of a word that is written as one: `multigpu`, `jobscript`. */
  function split(word, known) {
    for (let place = SHORTEST_PART; place <= word.length - SHORTEST_PART; place += 1) {
      const halves = [word.slice(0, place), word.slice(place)];
      if (halves.every(known)) return halves;
    }
    return [];
  }

  /**
   * Return the terms to look for, each with its weight and the word that it stands for: a word counts most as it was written,
   * then in another form, in one word or in two, then as what the pages call it.
   * @param {string} query
   * @param {(term: string) => boolean} known Whether the index has a term.
   * @returns {Map<string, {weight: number, word: string}>}
   */
  function wanted(query, known) {
    const weighted = new Map();
    const want = (term, weight, word) => {
      if ((weighted.get(term)?.weight ?? 0) < weight) weighted.set(term, { weight, word });
    };
    const wantForms = (form, weight, word) => {
      want(form, weight, word);
      want(stem(form), OTHER_FORM * weight, word);
      want(`~${stem(form)}`, OTHER_FORM * weight, word);
    };
    for (const word of words(query)) {
      wantForms(word, 1, word);
      const meaning = MEANINGS.get(/^\d+(?:h|hrs?|hours?)$/.test(word) ? "24h" : stem(word)) ?? "";
      words(meaning).forEach((other) => wantForms(other, OTHER_WORD, word));
      if (!known(word) && !known(`~${stem(word)}`)) split(word, known).forEach((part) => wantForms(part, OTHER_FORM, word));
    }
    const raw = query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
    raw.slice(1).forEach((word, place) => {
      const joined = raw[place] + word;
      if (joined.length > 2 * SHORTEST_PART && known(joined)) wantForms(joined, OTHER_FORM, STOP.has(word) ? raw[place] : word);
    });
    return weighted;
  }

  const MEANINGS = new Map(Object.entries(search.MEANINGS).map(([word, meaning]) => [stem(word), meaning]));

  Object.assign(search, { words, stem, terms, wanted });
})((globalThis.siteSearch ??= {}));
