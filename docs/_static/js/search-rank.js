/* From a query to ranked sections. Knows nothing of the page it runs in, so that Node runs it, too. */
"use strict";

((search) => {
  const BOOST = { title: 2.5, trail: 1.5, about: 2, keywords: 3, text: 1, code: 0.2 };
  const COVERAGE = 1.5; // how much the share of the query counts that a section has
  const WHOLE = 0.5; // the same of a page
  const SECOND = 0.5; // what the second section of a page adds to its best one
  const NEAR = 0.4; // how much a word counts that is a typo away from one of the query, or only begins like it
  const PHRASE = 1.5; // how much the best phrase of a page counts, where the best text counts 1
  const SHARE = 0.8; // how much it counts that the phrase has nothing else
  const MORE = 3; // further sections that a result names
  const CHUNK = 200;
  const LONGEST_QUERY = 4000;

  /** Return the words of each section, from lines that each hold a word and the sections that have it. */
  function wordsOfEach(lines, count) {
    const sections = Array.from({ length: count }, () => []);
    for (const line of lines) {
      const [word, ...steps] = line.split(" ");
      let place = -1;
      steps.forEach((step) => sections[(place += Number(step))].push(word));
    }
    return sections.map((words) => words.join(" "));
  }

  /**
   * Make the search of an index, as `docs/_ext/search_index.py` writes it.
   * @param {object} index
   * @param {Function} MiniSearch
   * @returns {Promise<(query: string, options?: {limit?: number, typing?: boolean}) => {results: object[], suggestions: object[], absent: string[]}>}
   */
  async function make(index, MiniSearch) {
    const { pages } = index;
    const [texts, codes] = [index.text, index.code].map((lines) => wordsOfEach(lines, index.sections.length));
    const sections = index.sections.map(([page, anchor, title, lead], id) => {
      const trail = [...pages[page].trail, ...(anchor ? [pages[page].title] : [])];
      const { about, fix, keywords } = anchor ? { about: "", fix: "", keywords: [] } : pages[page];
      const written = { about: about || fix, keywords: keywords.join(" , "), text: texts[id], code: codes[id] };
      return { id, page, anchor, title, trail, lead: lead || about, ...written };
    });
    const alike = index.alike.map(([pattern, text]) => [new RegExp(pattern, "g"), text]);
    const plain = (query) => alike.reduce((whole, [pattern, text]) => whole.replace(pattern, text), query);
    const messages = index.messages.map(([source, page]) => ({ expression: new RegExp(source), page }));
    const beginning = (page) => sections.find((section) => section.page === page);
    const phrases = pages.map(({ title, keywords }) =>
      [title, ...keywords].map((phrase) => [...new Set(search.words(phrase))].map((word) => search.terms(word)))
    );
    const known = new Set(index.common.flatMap(search.terms));
    const engine = new MiniSearch({
      fields: Object.keys(BOOST),
      extractField: (section, field) => (field === "trail" ? section.trail.join(" ") : section[field]),
      tokenize: (text) => {
        const terms = search.terms(text);
        terms.forEach((term) => known.add(term));
        return terms;
      },
      processTerm: (term) => term,
    });
    await engine.addAllAsync(sections, { chunkSize: CHUNK }); // the page stays alive meanwhile

    /** Pages of the entries that have a message of the query, the most specific one first. */
    const matching = (query) => [
      ...new Set(messages.filter(({ expression }) => expression.test(plain(query))).map(({ page }) => page)),
    ];

    function groupsOf(query, typing) {
      const wanted = search.wanted(query, (term) => known.has(term));
      const last = typing ? search.words(query.match(/\S*$/)[0]).pop() : undefined;
      const unknown = (term) => !known.has(term);
      const options = {
        tokenize: (text) => text.split(" ").filter(Boolean),
        processTerm: (term) => term,
        boost: BOOST,
        boostTerm: (term) => wanted.get(term).weight,
        prefix: (term) => term === last || (term.length > 2 && unknown(term) && !term.startsWith("~")),
        fuzzy: (term) => unknown(term) && /^\p{L}{5,}$/u.test(term) && (term.length < 8 ? 1 : 2),
        weights: { prefix: NEAR, fuzzy: NEAR },
      };
      const hits = engine.search([...wanted.keys()].join(" "), options);
      const near = new Map(wanted);
      for (const [term, { word }] of wanted) {
        if (term !== last && !unknown(term)) continue;
        for (const other of new Set(engine.search(term, options).flatMap((hit) => hit.terms))) {
          if (!near.has(other)) near.set(other, { weight: NEAR, word });
        }
      }
      return grouped(hits, wanted, near);
    }

    /** Let a page count by its best sections, by the share of the query that it has, and by its best phrase. */
    function grouped(hits, wanted, near) {
      const wordsOf = (hit) => new Set(hit.queryTerms.map((term) => wanted.get(term).word));
      const share = shareOf(hits.map(wordsOf));
      const groups = new Map();
      const weighed = hits.map((hit) => {
        const words = wordsOf(hit);
        const score = (hit.score / hit.queryTerms.length) * share(words) ** COVERAGE;
        return { words, section: sections[hit.id], score, own: share(ownOf(hit, near)) };
      });
      for (const hit of weighed.sort((left, right) => right.score - left.score)) {
        const { words, section, score } = hit;
        const group = groups.get(section.page);
        if (!group) groups.set(section.page, { page: section.page, score, words, hits: [hit] });
        else {
          if (group.hits.length === 1) group.score += SECOND * score;
          words.forEach((word) => group.words.add(word));
          group.hits.push(hit);
        }
      }
      const all = [...groups.values()];
      for (const group of all) {
        group.sections = group.hits.sort((left, right) => right.own - left.own).map(({ section }) => section); // a stable sort
      }
      for (const group of all) group.score *= share(group.words) ** WHOLE;
      const best = all.reduce((most, { score }) => Math.max(most, score), 0);
      for (const group of all) {
        const phrase = Math.max(...phrases[group.page].map((words) => fit(words, near, share)));
        group.score = (group.score / best + PHRASE * phrase) * pages[group.page].weight;
      }
      return groups;
    }

    /** Words of a query that a section has itself: what is said about its page leads to the page, not to its beginning. */
    function ownOf({ match }, near) {
      const terms = Object.keys(match).filter((term) => match[term].some((field) => !["about", "keywords"].includes(field)));
      return new Set(terms.flatMap((term) => near.get(term)?.word ?? []));
    }

    /** Make what tells which share of a query some of its words are, rare ones before common ones, from those of each hit. */
    function shareOf(hits) {
      const counts = new Map();
      hits.forEach((words) => words.forEach((word) => counts.set(word, (counts.get(word) ?? 0) + 1)));
      const rarity = (word) => (counts.has(word) ? Math.log(1 + sections.length / counts.get(word)) : 0);
      const sum = (words) => [...words].reduce((total, word) => total + rarity(word), 0);
      const all = sum(counts.keys());
      return (words) => sum(words) / all;
    }

    /** Tell how well a phrase fits a query, from 0 to 1: what it has of the query, and nothing else. */
    function fit(phrase, near, share) {
      const had = new Map();
      let count = 0;
      for (const terms of phrase) {
        const matches = terms.flatMap((term) => near.get(term) ?? []);
        if (!matches.length) continue;
        const { word, weight } = matches.reduce((best, next) => (next.weight > best.weight ? next : best));
        count += weight;
        had.set(word, Math.max(had.get(word) ?? 0, weight));
      }
      const asked = [...had].reduce((total, [word, weight]) => total + weight * share([word]), 0);
      return asked * (count / Math.max(1, phrase.length)) ** SHARE;
    }

    function resultOf({ page, sections: [first, ...others] }, matched, query) {
      return {
        ...reference(first),
        page: pages[page].address,
        trail: first.trail,
        fix: pages[page].fix,
        matched,
        excerpt: search.marked(first.lead, query),
        more: others.slice(0, MORE).map(reference),
      };
    }

    const reference = ({ page, anchor, title }) => ({
      address: pages[page].address + (anchor && `#${anchor}`),
      title,
    });

    /** A page for those who found nothing, with how it begins. */
    function suggested(page) {
      const begin = beginning(page);
      return { ...reference(begin), excerpt: search.marked(begin.lead, "") };
    }

    return (text, { limit = 20, typing = false } = {}) => {
      const query = text.slice(0, LONGEST_QUERY);
      const groups = groupsOf(query, typing);
      const matched = matching(query);
      const first = matched.map(
        (page) => groups.get(page) ?? { page, score: 0, sections: [beginning(page)] }
      );
      matched.forEach((page) => groups.delete(page));
      const others = [...groups.values()].sort((left, right) => right.score - left.score);
      const results = [...first, ...others].slice(0, limit).map((group, place) => resultOf(group, place < first.length, query));
      const lacking = (word) => !known.has(word) && !known.has(`~${search.stem(word)}`);
      const absent = [...new Set(search.words(query).filter(lacking))];
      const suggestions = results.length ? [] : index.suggestions.map(suggested);
      return { results, suggestions, absent };
    };
  }

  Object.assign(search, { make });
})((globalThis.siteSearch ??= {}));
