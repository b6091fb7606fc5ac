/** The job scripts of a page as they fit the reader's cluster: shown, copied, downloaded; the original a click away. */
import { adaptedText, clusterConfig } from "./fit.js";
import { hunks, placeOf } from "./panel-lines.js";

/** The markup of each block as the page came. @type {WeakMap<Element, string>} */
const originals = new WeakMap();

/** Fit every job script of the page, or show the originals where no configuration is kept. */
export async function fitAll() {
  const boxes = [...document.querySelectorAll("article .code-file")];
  await Promise.all(boxes.map((box) => fit(box)));
  window.dispatchEvent(new Event("resize")); // other lines may be wider than the window
}

async function fit(box) {
  const path = ownName(box);
  if (!path?.endsWith(".sbatch")) return;
  let made;
  try {
    made = await adaptedText(path);
  } catch (error) {
    restore(box);
    bar(box, `Not fitted to your cluster: ${error.message}`, []);
    return;
  }
  restore(box);
  if (made.refusal) {
    const { line, problem } = made.refusal;
    bar(box, `Not fitted to your cluster. Line ${line}: ${problem}. This is the original.`, []);
    return;
  }
  const told = [
    ...made.changes.map(({ line, text }) => `Line ${line}: ${text}`),
    ...made.notes.map(([line, text]) => `Line ${line} stays as it is: ${text}`),
  ];
  const count = made.changes.length;
  if (!count) {
    if (clusterConfig()) bar(box, "Fits your cluster as it is.", told);
    return;
  }
  show(box, made);
  const toggle = document.createElement("button");
  toggle.type = "button";
  toggle.className = "fit-toggle";
  toggle.textContent = "Show the original";
  toggle.addEventListener("click", () => {
    const fitted = toggle.textContent === "Show the original";
    if (fitted) restore(box, false);
    else show(box, made);
    toggle.textContent = fitted ? "Show it fitted" : "Show the original";
  });
  bar(box, `Fitted to your cluster: ${count} ${count === 1 ? "change" : "changes"}.`, told, toggle);
}

/** The path of the script that a box shows; null where it has no caption of its own. */
function ownName(box) {
  return box.querySelector(":scope > .code-file-caption .code-file-name")?.textContent ?? null;
}

const ownBlocks = (box) => [...box.querySelectorAll("pre")].filter((pre) => pre.closest(".code-file") === box);
const ownLink = (box) => box.querySelector(":scope > .code-file-caption a.download");
const ownStamp = (box) => box.querySelector(":scope > .badge-line");

function show(box, made) {
  const found = hunks(made.original, made.text);
  for (const pre of ownBlocks(box)) {
    if (!originals.has(pre)) originals.set(pre, pre.innerHTML);
    replaceLines(pre, made.original, found);
  }
  const link = ownLink(box);
  if (link) {
    link.dataset.original ??= link.getAttribute("href");
    link.href = URL.createObjectURL(new Blob([made.text], { type: "text/x-shellscript" }));
    link.download = ownName(box).replace(/.*\//, "");
  }
  const stamp = ownStamp(box);
  if (stamp && !stamp.querySelector(".fit-stamp")) {
    const said = document.createElement("span");
    said.className = "fit-stamp";
    const ran = stamp.classList.contains("badge-ran");
    said.textContent = ran ? " That was the original; your version has not run here." : "";
    stamp.append(said);
  }
}

/** Show the original again. @param {Element} box @param {boolean} whole whether the bar goes, too */
function restore(box, whole = true) {
  for (const pre of ownBlocks(box)) {
    if (originals.has(pre)) pre.innerHTML = originals.get(pre);
  }
  const link = ownLink(box);
  if (link?.dataset.original) {
    URL.revokeObjectURL(link.href);
    link.setAttribute("href", link.dataset.original);
    link.setAttribute("download", "");
    delete link.dataset.original;
  }
  ownStamp(box)?.querySelector(".fit-stamp")?.remove();
  if (whole) box.querySelector(":scope > .fit-bar")?.remove();
}

/** Say above a script what was changed and why. */
function bar(box, text, told, ...more) {
  const made = document.createElement("div");
  made.className = "fit-bar";
  const said = document.createElement(told.length ? "details" : "span");
  if (told.length) {
    const summary = document.createElement("summary");
    summary.textContent = text;
    const list = document.createElement("ul");
    list.append(...told.map((line) => Object.assign(document.createElement("li"), { textContent: line })));
    said.append(summary, list);
  } else said.textContent = text;
  made.append(said, ...more);
  box.querySelector(":scope > .code-file-caption").after(made);
}

/** Put the lines that a script has instead into a block that shows it, whole or in part, also as a difference. */
function replaceLines(pre, original, found) {
  let next = 0;
  for (const lines of runsOf(pre)) {
    const first = placeOf(original, lines.map((line) => line.text), next);
    if (first < 0) continue;
    next = first + lines.length;
    replaceRun(lines, first, found);
  }
  for (const element of pre.querySelectorAll("span, ins")) {
    const [mark] = element.children;
    if (!element.textContent && element !== pre.firstElementChild) element.remove();
    else if (mark?.matches("mark") && mark.textContent === element.textContent) element.replaceWith(mark);
  }
}

/** Put them into some lines that follow each other; `first` is the place of the first in the script. */
function replaceRun(lines, first, found) {
  const last = first + lines.length;
  for (const { from, to, lines: fresh } of [...found].reverse()) {
    const [start, end] = [Math.max(from, first), Math.min(to, last)]; // a gap may be in the middle of what is replaced
    const added = from === to && from > first && from <= last; // behind the line before it
    if (start >= end && !added) continue;
    const range = document.createRange();
    range.setStart(...(start < last ? lines[start - first].start : lines.at(-1).end));
    if (end > start) range.setEnd(...lines[end - 1 - first].end);
    range.deleteContents();
    if (fresh.length && from >= first) range.insertNode(marked(fresh));
  }
}

function marked(lines) {
  const mark = document.createElement("mark");
  mark.className = "fitted";
  mark.title = "fitted to your cluster";
  mark.textContent = lines.map((line) => `${line}\n`).join("");
  return mark;
}

/**
 * The lines of a file in a block, without what a difference removed, in runs between its gaps: the text of each line,
 * and where it begins and ends.
 * @param {Element} pre
 * @returns {{text: string, start: [Text, number], end: [Text, number]}[][]}
 */
function runsOf(pre) {
  const walker = document.createTreeWalker(pre, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) => {
    const skipped = node instanceof Element && node.matches("del, .linenos");
    return skipped || node.parentElement.matches(".diff-gap") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT;
  });
  const runs = [[]];
  let line = null;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node instanceof Element && node.matches(".diff-gap")) runs.push([]);
    if (!(node instanceof Text)) continue;
    let place = 0;
    while (place < node.data.length) {
      const newline = node.data.indexOf("\n", place);
      const end = newline < 0 ? node.data.length : newline + 1;
      if (!line) runs.at(-1).push((line = { text: "", start: [node, place], end: [node, end] }));
      line.text += node.data.slice(place, newline < 0 ? end : newline);
      line.end = [node, end];
      if (newline >= 0) line = null;
      place = end;
    }
  }
  return runs.filter((run) => run.length);
}
