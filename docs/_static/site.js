/* What every page needs: code, drawings and tables that scroll sideways can be reached with the keyboard. */
"use strict";

function reach(element, label) {
  if (element.scrollWidth > element.clientWidth) {
    element.tabIndex = 0;
    element.setAttribute("role", "region");
    element.setAttribute("aria-label", label);
  } else {
    element.removeAttribute("tabindex");
    element.removeAttribute("role");
    element.removeAttribute("aria-label");
  }
}

function reachAll() {
  document.querySelectorAll("article pre").forEach((pre, index) => {
    const box = pre.closest(".code-file, .recorded");
    const name = box && box.querySelector("code");
    reach(pre, `${name ? name.textContent : "code"} (block ${index + 1})`);
  });
  document.querySelectorAll("article .drawing").forEach((box, index) => reach(box, `drawing ${index + 1}`));
  document.querySelectorAll("article .table-wrapper").forEach((table, index) => reach(table, `table ${index + 1}`));
}

reachAll();
window.addEventListener("resize", reachAll);
// What a closed tab or dropdown holds has no width until it opens.
document.addEventListener("change", reachAll);
document.addEventListener("toggle", reachAll, true);

/* The index of failures: show the entries of one framework and one symptom. Each item's classes name its own. */
function filterFailures() {
  const items = [...document.querySelectorAll("ul.failure-index > li")];
  if (!items.length) return;
  const bar = document.createElement("p");
  bar.className = "failure-filter";
  const asked = new URLSearchParams(location.search);
  const selects = ["framework", "symptom"].map((kind) => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    const names = new Map();
    items.forEach((item) => {
      const words = item.querySelector(".failure-where").textContent.split(" · ");
      const named = kind === "symptom" ? words.slice(0, 1) : words.slice(1);
      named.forEach((word) => names.set(`${kind}-${word.toLowerCase().replaceAll(" ", "-")}`, word));
    });
    select.add(new Option(`any ${kind}`, ""));
    [...names].sort().forEach(([name, word]) => select.add(new Option(word, name)));
    select.name = kind;
    select.value = [...names.keys()].find((name) => name === `${kind}-${asked.get(kind)}`) ?? "";
    select.addEventListener("change", show);
    label.append(`${kind === "symptom" ? "What you see" : "With"} `, select);
    bar.append(label);
    return select;
  });
  function show() {
    const wanted = selects.map((select) => select.value).filter(Boolean);
    selects.forEach(({ name, value }) => (value ? asked.set(name, value.replace(`${name}-`, "")) : asked.delete(name)));
    const address = `${location.pathname}${asked.size ? `?${asked}` : ""}${location.hash}`;
    if (location.protocol !== "file:") history.replaceState(null, "", address);
    items.forEach((item) => {
      item.hidden = !wanted.every((name) => item.classList.contains(name));
    });
    document.querySelectorAll("ul.failure-index").forEach((list) => {
      list.closest("section").hidden = ![...list.children].some((item) => !item.hidden);
    });
  }
  document.querySelector("article h1").parentElement.querySelector("section").before(bar);
  if (asked.size) show();
}

filterFailures();
