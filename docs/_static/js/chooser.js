/* The chooser of the first page: its table of cases, asked as questions. The last column is the answer, each other
   column a question. Without this script the table stays as it is. */

/**
 * The rows that agree with all answers given so far.
 * @param {string[][]} rows the cells of each row, one for each question
 * @param {(string|undefined)[]} answers one for each question; undefined where none is given
 * @returns {number[]} the numbers of the rows
 */
export function matching(rows, answers) {
  return rows.flatMap((row, number) => (answers.every((answer, at) => !answer || row[at] === answer) ? [number] : []));
}

/**
 * The answers that a question still allows, given those to the others.
 * @param {string[][]} rows as for `matching`
 * @param {(string|undefined)[]} answers as for `matching`
 * @param {number} question the number of the question
 * @returns {Set<string>} the answers that leave at least one row
 */
export function possible(rows, answers, question) {
  const others = answers.map((answer, at) => (at === question ? undefined : answer));
  return new Set(matching(rows, others).map((number) => rows[number][question]));
}

/**
 * The answers after one was chosen: those to other questions that no row has together with it are dropped.
 * @param {string[][]} rows as for `matching`
 * @param {(string|undefined)[]} answers as for `matching`
 * @param {number} question the number of the question
 * @param {string} answer what was chosen
 * @returns {(string|undefined)[]} the new answers
 */
export function choose(rows, answers, question, answer) {
  const chosen = answers.map((_, at) => (at === question ? answer : undefined));
  answers.forEach((other, at) => {
    if (at === question || !other) return;
    chosen[at] = other;
    if (!matching(rows, chosen).length) chosen[at] = undefined;
  });
  return chosen;
}

/**
 * Puts the questions before a table and shows the answers in its place.
 * @param {HTMLTableElement} table
 */
function build(table) {
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim()).slice(0, -1);
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
  const items = [...table.tBodies[0].rows].map((row) => {
    const item = document.createElement("li");
    item.append(...[...row.cells].at(-1).cloneNode(true).childNodes);
    return item;
  });
  let answers = heads.map(() => undefined);

  const box = document.createElement("div");
  box.className = "chooser-box";
  const groups = heads.map((head, question) => {
    const group = document.createElement("fieldset");
    const legend = document.createElement("legend");
    legend.textContent = head;
    group.append(legend);
    [...new Set(rows.map((row) => row[question]))].forEach((answer) => {
      const label = document.createElement("label");
      const input = Object.assign(document.createElement("input"), { type: "radio", name: `chooser-${question}`, value: answer });
      input.addEventListener("change", () => {
        answers = choose(rows, answers, question, answer);
        show();
      });
      const text = document.createElement("span");
      text.textContent = answer;
      label.append(input, text);
      group.append(label);
    });
    box.append(group);
    return group;
  });
  const list = document.createElement("ul");
  list.className = "chooser-answers";
  list.setAttribute("aria-live", "polite");
  const again = Object.assign(document.createElement("button"), { type: "button", textContent: "Start again" });
  again.className = "chooser-again";
  again.addEventListener("click", () => {
    answers = heads.map(() => undefined);
    show();
    groups[0].querySelector("input").focus();
  });
  box.append(list, again);

  function show() {
    groups.forEach((group, question) => {
      const left = possible(rows, answers, question);
      group.querySelectorAll("input").forEach((input) => {
        input.checked = answers[question] === input.value;
        input.parentElement.classList.toggle("chooser-other", !left.has(input.value));
      });
    });
    const any = answers.some(Boolean);
    const shown = any ? matching(rows, answers) : [];
    list.replaceChildren(...shown.map((number) => items[number]));
    again.hidden = !any;
  }

  const place = table.closest(".table-wrapper") || table;
  place.before(box);
  place.hidden = true;
  show();
}

if (typeof document !== "undefined") document.querySelectorAll("table.chooser").forEach(build);
