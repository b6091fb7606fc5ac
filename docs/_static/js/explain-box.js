/* The paste box: takes a pasted log, or the log files of several ranks, and shows what `srunbook explain` would say. */
"use strict";

((explain) => {
  const STATIC = new URL("../", document.currentScript.src);
  const NAMES = ["reading", "rules", "lines", "scan", "diagnosis", "redact", "report", "files", "view"];
  const SCRIPTS = [...NAMES.map((name) => `js/explain-${name}.js`), "explain-data.js"];
  const WAIT = 400; // milliseconds after a key
  const LONG = 200_000; // characters that a browser shows in a field without a pause
  const PASTED = "pasted text";
  const MEGABYTE = 1e6;

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

  /** Load once what the box needs. Script elements, since a page on a disk may not fetch. */
  function load() {
    loading ??= Promise.all(SCRIPTS.map(loadScript)).then(() => explain.ready(globalThis.explainData));
    loading.catch(() => (loading = undefined));
    return loading;
  }

  async function unpacking() {
    if (!globalThis.fflate) await loadScript("vendor/fflate.js");
    return globalThis.fflate;
  }

  const pageOf = (slug) => new URL(`../troubleshooting/${slug}.html`, STATIC).href;
  const sizeOf = (bytes) => (bytes < MEGABYTE ? `${Math.ceil(bytes / 1000)} kB` : `${(bytes / MEGABYTE).toFixed(1)} MB`);

  /** Put a text on the clipboard, also where a page may not ask for it; return whether it is there. */
  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  class Stopped extends Error {}

  /** @param {HTMLElement} root */
  function build(root) {
    root.innerHTML = `
      <form class="paste-form">
        <label for="paste-text">Paste your log</label>
        <textarea id="paste-text" rows="6" spellcheck="false" autocomplete="off" aria-describedby="paste-help"
          placeholder="0: Traceback (most recent call last): …"></textarea>
        <p id="paste-help">Or drop the log files of all ranks here. Nothing is sent: your browser reads them.</p>
        <p class="paste-logs" hidden></p>
        <div class="paste-actions">
          <button type="submit" class="paste-main">Find the cause</button>
          <label class="paste-choose"><input type="file" multiple> Choose log files</label>
          <button type="reset">Clear</button>
        </div>
      </form>
      <p class="paste-status" role="status"></p>
      <ul class="paste-problems" hidden></ul>
      <div class="paste-result" role="region" aria-label="What the logs say" hidden></div>`;
    const find = (selector) => root.querySelector(selector);
    const [form, area, input] = [find("form"), find("textarea"), find("input[type=file]")];
    const [named, status, complaints, result] = [find(".paste-logs"), find(".paste-status"), find(".paste-problems"), find(".paste-result")];
    /** @type {{name: string, file: File}[]} */
    let files = [];
    let folders = [];
    let run = 0;
    let timer;

    const isSame = (one, other) => ["size", "lastModified"].every((key) => one.file[key] === other.file[key]) && one.name === other.name;

    function add(more) {
      const fresh = more.map((file) => ({ name: file.webkitRelativePath || file.name, file }));
      files.push(...fresh.filter((log) => !files.some((other) => isSame(log, other))));
      list();
      start();
    }

    function list() {
      const names = files.map(({ name }) => name);
      const more = names.length > 3 ? ` and ${names.length - 2} more` : "";
      const size = files.reduce((sum, { file }) => sum + file.size, 0);
      named.textContent = `${names.slice(0, more ? 2 : 3).join(", ")}${more} (${sizeOf(size)})`;
      named.hidden = !files.length;
    }

    function say(text, problems = []) {
      status.textContent = text;
      complaints.replaceChildren(...problems.map((problem) => Object.assign(document.createElement("li"), { textContent: problem })));
      complaints.hidden = !problems.length;
    }

    async function start() {
      clearTimeout(timer);
      run += 1;
      const own = run;
      const stopIfOld = () => {
        if (own !== run) throw new Stopped();
      };
      const text = area.value.trim() ? [{ name: PASTED, file: new Blob([area.value]) }] : [];
      const logs = [...text, ...files];
      result.hidden = true;
      if (!logs.length) return say("Nothing to read: paste the log, or choose its files.", folders);
      const total = logs.reduce((sum, { file }) => sum + file.size, 0);
      let read = 0;
      say("Reading …");
      try {
        const rules = await load();
        stopIfOld();
        const told = (bytes) => {
          stopIfOld();
          read += bytes;
          if (bytes && total > MEGABYTE) status.textContent = `Reading … ${Math.floor((100 * read) / total)} %`;
        };
        const { scans, diagnosis, problems } = await explain.explainFiles(logs, rules, unpacking, told);
        stopIfOld();
        show(scans, diagnosis, rules);
        const count = scans.filter(({ size }) => size).length;
        say(`Read ${count} log${count === 1 ? "" : "s"}, ${sizeOf(total)}.`, [...folders, ...problems]);
      } catch (error) {
        if (!(error instanceof Stopped)) say(`This does not work here: ${error.message}. In a terminal, srunbook explain does the same.`);
      }
      return undefined;
    }

    function show(scans, diagnosis, rules) {
      if (!scans.some(({ size }) => size)) return;
      const plain = new explain.Report(diagnosis, scans, rules);
      const redactor = explain.redactor(diagnosis, scans, rules);
      const masked = new explain.Report(diagnosis, scans, rules, (text) => redactor.mask(text));
      result.replaceChildren(...explain.view(plain, pageOf), copying(plain, masked));
      result.hidden = false;
    }

    /** Make the button that copies a report, and the choice whether names are masked. */
    function copying(plain, masked) {
      const { make } = explain;
      const mask = make("input", { type: "checkbox", checked: true });
      const said = make("span", { className: "paste-copied" });
      said.setAttribute("role", "status");
      const button = make("button", { type: "button", textContent: "Copy the report" });
      button.addEventListener("click", async () => {
        const done = await copied((mask.checked ? masked : plain).text());
        const check = mask.checked ? "Copied. Read it before you post it: a name that only you know can remain." : "Copied, with all names.";
        said.textContent = done ? check : "Your browser does not let this page copy.";
      });
      const choice = make("label", {}, mask, " Mask users, hosts, addresses, tokens and keys");
      return make("div", { className: "paste-copy" }, button, choice, said);
    }

    area.addEventListener("focus", () => load().catch(() => {}));
    area.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(start, WAIT);
    });
    area.addEventListener("paste", (event) => {
      const text = event.clipboardData.getData("text");
      const pasted = [...event.clipboardData.files];
      if (!pasted.length && text.length < LONG) return;
      event.preventDefault();
      folders = [];
      add(pasted.length ? pasted : [new File([text], PASTED)]);
    });
    input.addEventListener("change", () => {
      const chosen = [...input.files];
      input.value = ""; // so that the same file can be chosen again
      folders = [];
      if (chosen.length) add(chosen);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      start();
    });
    form.addEventListener("reset", () => {
      clearTimeout(timer);
      run += 1;
      [files, folders] = [[], []];
      list();
      say("");
      result.hidden = true;
      area.focus();
    });
    const dragged = (event) => event.dataTransfer.types.includes("Files");
    root.addEventListener("dragover", (event) => {
      if (!dragged(event)) return;
      event.preventDefault();
      root.classList.add("paste-over");
    });
    root.addEventListener("dragleave", (event) => root.contains(event.relatedTarget) || root.classList.remove("paste-over"));
    root.addEventListener("drop", (event) => {
      root.classList.remove("paste-over");
      if (!dragged(event)) return;
      event.preventDefault();
      const items = [...event.dataTransfer.items].filter(({ kind }) => kind === "file");
      const isFolder = items.map((item) => item.webkitGetAsEntry?.()?.isDirectory);
      const dropped = items.map((item) => item.getAsFile());
      folders = dropped.filter((_, place) => isFolder[place]).map(({ name }) => `${name}: a folder: drop the logs in it`);
      add(dropped.filter((file, place) => file && !isFolder[place]));
    });
  }

  document.querySelectorAll(".paste-box").forEach(build);
})((globalThis.logExplainer ??= {}));
