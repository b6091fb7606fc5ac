/** The script beside the form: its lines with their reasons, the warning, the command, copy and download. */

import { make } from "./builder-form.js";

const FILE = "job.sbatch";

/** What the form made: a script with the command that makes the same. */
export class ScriptView {
  /** @param {(values: Object<string, any>) => void} fill Puts values into the form. */
  constructor(fill) {
    this.fill = fill;
    this.text = "";
    this.old = new Set();
    this.name = make("code", { textContent: FILE });
    this.reasons = make("input", { type: "checkbox", checked: true });
    this.reasons.addEventListener("change", () => this.lines.classList.toggle("bare", !this.reasons.checked));
    this.copy = button("Copy", () => this.say(copied(this.text)));
    this.download = button("Download", () => save(this.text));
    this.status = make("p", { className: "builder-status" });
    this.status.setAttribute("role", "status");
    this.lines = make("div", { className: "builder-lines", tabIndex: 0 });
    this.lines.setAttribute("role", "region");
    this.lines.setAttribute("aria-label", FILE);
    this.warning = make("p", { className: "builder-warning", hidden: true });
    this.command = make("code");
    this.copyCommand = button("Copy the command", () => this.say(copied(this.command.textContent)));
    const choice = make("label", { className: "builder-reasons" }, this.reasons, "Reasons");
    const bar = make("div", { className: "builder-bar" }, this.name, choice, this.copy, this.download);
    const command = make("div", { className: "builder-command" }, this.command, this.copyCommand);
    const told = make("p", { className: "builder-told", textContent: "This command writes the same script:" });
    const box = make("div", { className: "builder-box" }, bar, this.status, this.lines);
    this.element = make("section", { className: "builder-output", id: "your-script" }, box, this.warning, told, command);
    this.element.setAttribute("aria-label", "Your script");
  }

  /**
   * Show a script.
   *
   * @param {import("./job-template.js").Line[]} lines
   * @param {string} text
   * @param {string} command
   * @param {string | null} warning
   */
  show(lines, text, command, warning) {
    this.settle("");
    const fresh = this.old.size > 0;
    const rows = lines.map((line) => lineOf(line, fresh && line.text.trim() !== "" && !this.old.has(line.text)));
    this.lines.replaceChildren(...rows);
    this.old = new Set(lines.map((line) => line.text));
    this.text = text;
    this.command.textContent = command;
    this.warn(warning);
    const changed = rows.find((row) => row.classList.contains("changed"));
    if (changed) this.lines.scrollTop = Math.max(0, changed.offsetTop - this.lines.clientHeight / 3);
  }

  /** Show a warning, and a button that takes its advice. */
  warn(text) {
    this.warning.hidden = !text;
    if (!text) return;
    const parts = `Note: ${text}.`.split("`");
    this.warning.replaceChildren(...parts.map((part, index) => (index % 2 ? make("code", { textContent: part }) : part)));
    const devices = /devices_per_process=(\d+)/.exec(text)?.[1];
    if (devices) this.warning.append(button(`Take ${devices} devices`, () => this.fill({ devices_per_process: devices })));
  }

  /** Keep the last script, but hand it out to nobody, because a value is not allowed. */
  refuse(problems) {
    this.settle([...problems, "This is not your script yet: correct the marked field."].join(" "));
    this.element.classList.add("stale");
    for (const one of [this.copy, this.download, this.copyCommand]) one.disabled = true;
  }

  settle(text) {
    this.say(text);
    this.element.classList.remove("stale");
    for (const one of [this.copy, this.download, this.copyCommand]) one.disabled = false;
  }

  /** Mark the lines that depend on a field. */
  mark(field) {
    for (const row of this.lines.children) {
      row.classList.toggle("of-field", Boolean(field) && row.dataset.fields.split(" ").includes(field));
    }
  }

  async say(text) {
    this.status.textContent = await text;
  }
}

function button(text, act) {
  const made = make("button", { type: "button", textContent: text });
  made.addEventListener("click", act);
  return made;
}

/** Show a line under its reason; directives and comments are told apart. */
function lineOf({ text, reason, fields }, changed) {
  const [, code, comment] = /^(.*?)((?:^|\s{1,})#(?!SBATCH\b|!).*)?$/.exec(withoutQuotes(text));
  const shown = make("code", { className: text.startsWith("#SBATCH") ? "directive" : "" }, text.slice(0, code.length));
  if (comment) shown.append(make("span", { className: "comment", textContent: text.slice(code.length) }));
  const row = make("div", { className: changed ? "builder-line changed" : "builder-line" });
  row.dataset.fields = fields.join(" ");
  if (reason) row.append(make("span", { className: "reason", textContent: reason }));
  row.append(shown);
  return row;
}

/** Blank out what stands in quotes, where a # begins no comment. */
function withoutQuotes(text) {
  return text.startsWith("#") ? text : text.replace(/'[^']*'|"[^"]*"/g, (quoted) => "x".repeat(quoted.length));
}

/** Put a text on the clipboard, also where a page may not ask for it; return what to say. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied.";
  } catch {
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done ? "Copied." : "Your browser does not let this page copy: download the file.";
  }
}

function save(text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/x-shellscript" }));
  const link = make("a", { href: url, download: FILE });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
