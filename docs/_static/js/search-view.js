/* What a result looks like, in the list below the box and on the page of results. */
"use strict";

((search) => {
  const MOST_PAGES = 3;
  const LONGEST_REPORT = 1000;

  /** Make an element of a class and of what it holds. */
  function element(name, className, ...children) {
    const node = document.createElement(name);
    if (className) node.className = className;
    node.append(...children.filter(Boolean));
    return node;
  }

  const link = ({ address, title }, addressOf) => Object.assign(element("a", "", title), { href: addressOf(address) });

  /** Make nodes of a line that has code between backticks. */
  const inlined = (line) => line.split("`").map((part, place) => (place % 2 ? element("code", "", part) : part));

  const marks = (pieces) => pieces.map(({ text, marked }) => (marked ? element("mark", "", text) : text));

  const trailOf = (result) => result.trail.join(" › ") || "Contents";

  /** Make the options of the list below the box. */
  function options({ results, suggestions }, query, addressOf) {
    if (!results.length) return suggestions.map((page) => suggested(page, addressOf));
    return results.map((result) => {
      const option = link(result, addressOf);
      option.className = result.matched ? "search-option search-matched" : "search-option";
      const title = element("span", result.fix ? "search-title search-message" : "search-title", result.title);
      const below = result.matched ? inlined(result.fix) : [trailOf(result)];
      option.replaceChildren(title, element("span", "search-trail", ...below));
      return option;
    });
  }

  function suggested(page, addressOf) {
    const option = link(page, addressOf);
    option.className = "search-option";
    option.append(element("span", "search-trail", "Nothing has these words: look here"));
    return option;
  }

  /** Make an item of the page of results. */
  function item(result, addressOf) {
    const title = link(result, addressOf);
    if (result.fix) title.className = "search-message";
    const more = result.more.flatMap((section, place) => [place ? " · " : "On the same page: ", link(section, addressOf)]);
    return element(
      "li",
      result.matched ? "search-result search-matched" : "search-result",
      element("p", "search-trail", result.matched && element("span", "search-badge", "Your message"), trailOf(result)),
      element("h2", "search-title", title),
      result.fix && element("p", "search-fix", element("strong", "", "Fix: "), ...inlined(result.fix)),
      !result.fix && result.excerpt.length && element("p", "search-excerpt", ...marks(result.excerpt)),
      more.length && element("p", "search-more", ...more)
    );
  }

  /** Make an item for a query that found nothing. */
  const suggestion = (page, addressOf) =>
    element(
      "li",
      "search-result",
      element("h2", "search-title", link(page, addressOf)),
      element("p", "search-excerpt", ...marks(page.excerpt))
    );

  /** Say that no entry has a message, with the best pages for its words, and a link to report it. */
  function missing(message, { results, suggestions }, addressOf) {
    const pages = [...results, ...suggestions].slice(0, MOST_PAGES).map((page) => element("li", "", link(page, addressOf)));
    return [element("p", "", absent(results)), element("ul", "", ...pages), element("p", "", report(message))];
  }

  const absent = (results) => `No entry has this message. ${results.length ? "Pages with some of its words:" : "Start here:"}`;

  /** Make a link that opens a report of a message that no entry has. */
  function report(message) {
    const href = `${globalThis.searchIndex.report}&message=${encodeURIComponent(message.slice(0, LONGEST_REPORT))}`;
    return Object.assign(element("a", "", "Report the missing message"), { href });
  }

  Object.assign(search, { options, item, suggestion, missing, absent, report });
})((globalThis.siteSearch ??= {}));
