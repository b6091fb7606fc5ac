/* The search box beside each page: loads the search when somebody turns to it, and lists the first results while they type. */
"use strict";

((search) => {
  const STATIC = new URL("../", document.currentScript.src);
  const SITE = new URL("../", STATIC);
  const SCRIPTS = [
    "vendor/minisearch.js",
    "js/search-meanings.js",
    "js/search-words.js",
    "js/search-excerpt.js",
    "js/search-rank.js",
    "js/search-view.js",
    "search-index.js",
  ];
  const SHOWN = 6;
  const WAIT = 80; // milliseconds after a key

  const loadScript = (name) =>
    new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL(name, STATIC);
      script.async = false; // in this order
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${script.src} does not load`));
      document.head.append(script);
    });

  let loading;

  /** Load the search once. Script elements, since a page on a disk may not fetch. */
  function load() {
    loading ??= Promise.all(SCRIPTS.map(loadScript)).then(() => search.make(globalThis.searchIndex, globalThis.MiniSearch));
    loading.catch(() => (loading = undefined));
    return loading;
  }

  /** Return the address of a result, from wherever this page lies. */
  const addressOf = (address) => new URL(address, SITE).href;

  function addBox(input) {
    const form = input.form;
    const list = document.createElement("div");
    Object.assign(list, { id: "search-list", className: "search-list", hidden: true });
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Results");
    document.body.append(list);
    const attributes = { role: "combobox", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false" };
    Object.entries({ ...attributes, autocomplete: "off", spellcheck: "false" }).forEach(([name, value]) =>
      input.setAttribute(name, value)
    );
    form.querySelectorAll("input[type=hidden]").forEach((other) => other.remove()); // of Sphinx's own search
    let chosen = -1;
    let timer;

    function close() {
      list.hidden = true;
      choose(-1);
      input.setAttribute("aria-expanded", "false");
    }

    function choose(place) {
      chosen = place;
      [...list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === place)));
      if (place < 0) input.removeAttribute("aria-activedescendant");
      else {
        input.setAttribute("aria-activedescendant", list.children[place].id);
        list.children[place].scrollIntoView({ block: "nearest" });
      }
    }

    function place() {
      const box = input.getBoundingClientRect();
      list.style.top = `${box.bottom + 4}px`;
      list.style.left = `${Math.max(8, Math.min(box.left + 8, innerWidth - list.offsetWidth - 8))}px`;
      list.style.maxHeight = `${innerHeight - box.bottom - 16}px`;
    }

    async function show() {
      const query = input.value.trim();
      if (!query) return close();
      let find;
      try {
        find = await load();
      } catch {
        return close(); // Enter still leads to the page of results, which says why
      }
      if (query !== input.value.trim() || document.activeElement !== input) return undefined;
      const options = search.options(find(query, { limit: SHOWN, typing: true }), query, addressOf);
      const all = document.createElement("a");
      Object.assign(all, { href: `${form.action}?q=${encodeURIComponent(query)}`, textContent: "All results", className: "search-all" });
      list.replaceChildren(...options, all);
      [...list.children].forEach((option, index) => {
        Object.assign(option, { id: `search-option-${index}`, tabIndex: -1 });
        option.setAttribute("role", "option");
      });
      list.hidden = false;
      input.setAttribute("aria-expanded", "true");
      choose(-1);
      return place();
    }

    input.addEventListener("focus", () => {
      load().catch(() => {});
      show();
    });
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(show, WAIT);
    });
    input.addEventListener("blur", () => setTimeout(close, 200)); // a click on a result comes first
    input.addEventListener("keydown", (event) => {
      const count = list.hidden ? 0 : list.children.length;
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && count) {
        event.preventDefault();
        choose(((chosen + 1 + step + count + 1) % (count + 1)) - 1); // past both ends lies the box itself
      } else if (event.key === "Enter" && chosen >= 0) {
        event.preventDefault();
        list.children[chosen].click();
      } else if (event.key === "Escape" && count) {
        event.stopPropagation();
        close();
      }
    });
    addEventListener("resize", () => list.hidden || place());
  }

  document.addEventListener("keydown", (event) => {
    const input = document.querySelector("#search-query, .sidebar-search");
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey || !input) return;
    event.preventDefault();
    if (input.getBoundingClientRect().left < 0) location.href = document.querySelector(".sidebar-search-container").action;
    else input.focus();
  });

  document.querySelectorAll(".sidebar-search").forEach(addBox);
  Object.assign(search, { load, addressOf });
})((globalThis.siteSearch ??= {}));
