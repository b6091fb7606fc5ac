/* Code, drawings and tables that scroll sideways can be reached, and scrolled, with the keyboard. */
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
