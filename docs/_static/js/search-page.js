/* The page of results: asks again with each key, and keeps the query in the address. */
"use strict";

((search) => {
  const field = document.getElementById("search-query");
  const list = document.getElementById("search-results");
  const status = document.getElementById("search-status");
  const WAIT = 120;
  const MESSAGE = /(?:Error|Exception)\b|\b(?:error|fatal|failed|warning)\b ?:|[\])]:? /i;

  function remember(query) {
    try {
      history.replaceState(null, "", query ? `?q=${encodeURIComponent(query)}` : location.pathname);
    } catch {
      // a page on a disk may not change its address
    }
  }

  function grow() {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  }

  function summary(results, suggestions, absent) {
    const count = results.filter((result) => result.matched).length;
    if (count) return count === 1 ? "One entry explains this message." : `${count} entries explain this message.`;
    if (MESSAGE.test(field.value)) return search.absent(results);
    if (results.length && absent.length) return `No page has “${absent.join("”, “")}”. The nearest pages first.`;
    if (results.length) return results.length === 1 ? "One page has these words." : "The best pages first.";
    return suggestions.length ? "Nothing has these words. One of these may lead on:" : "";
  }

  async function show() {
    const query = field.value.trim();
    grow();
    if (!query) {
      list.replaceChildren();
      status.textContent = "";
      return;
    }
    status.textContent = "Searching …";
    try {
      const find = await search.load();
      if (query !== field.value.trim()) return;
      const { results, suggestions, absent } = find(query);
      list.replaceChildren(
        ...results.map((result) => search.item(result, search.addressOf)),
        ...suggestions.map((page) => search.suggestion(page, search.addressOf))
      );
      const unknown = MESSAGE.test(query) && !results.some((result) => result.matched);
      status.replaceChildren(summary(results, suggestions, absent), ...(unknown ? [" ", search.report(query)] : []));
    } catch (error) {
      status.textContent = `The search does not work here: ${error.message}. Load the page again, or use the contents.`;
    }
  }

  let timer;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      remember(field.value.trim());
      show();
    }, WAIT);
  });

  /** Arrow keys lead from the field to the results and back. */
  document.addEventListener("keydown", (event) => {
    const links = [field, ...list.querySelectorAll(".search-title a")];
    const place = links.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (place < 0) return;
    if (event.key === "Enter" && place === 0 && !event.shiftKey) {
      event.preventDefault();
      clearTimeout(timer);
      remember(field.value.trim());
      show();
    } else if (step && (place > 0 || field.selectionEnd === field.value.length) && links[place + step]) {
      event.preventDefault();
      links[place + step].focus();
    }
  });

  field.value = new URLSearchParams(location.search).get("q") ?? "";
  if (!field.value) field.focus();
  show();
})((globalThis.siteSearch ??= {}));
