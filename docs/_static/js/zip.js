/**
 * The link to the zip of a guide: for a reader whose cluster is known, the zip holds job scripts that are fitted to it.
 *
 * Without that, the link is an ordinary one. What packs the zip comes with the click.
 */
import { fitted, load, onChange } from "./fit.js";

const links = [...document.querySelectorAll("a.guide-zip")].map((link) => {
  const status = document.createElement("span");
  status.setAttribute("role", "status");
  link.parentElement.append(status);
  link.addEventListener("click", (event) => {
    if (load() === null) return;
    event.preventDefault();
    download(link).catch((error) => {
      status.textContent = ` Not fitted to your cluster: ${error.message}. This is the zip with the original scripts.`;
      save(link.href, link.href);
    });
  });
  return status;
});

function tell() {
  const text = load() === null ? "" : " The job scripts in it are fitted to your cluster.";
  links.forEach((status) => {
    status.textContent = text;
  });
}

async function download(link) {
  const [{ fittedZip }, response] = await Promise.all([
    import("./zip-fitted.js"),
    fetch(link.href),
    import("../vendor/fflate.js"), // no module: it makes itself a global
  ]);
  if (!response.ok) throw Error(`${link.href}: ${response.status}`);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const zip = await fittedZip(bytes, (text) => fitted(text, load()), globalThis.fflate);
  const address = URL.createObjectURL(new Blob([zip], { type: "application/zip" }));
  save(address, link.href);
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // the browser has read it by then
}

function save(address, name) {
  const link = document.createElement("a");
  link.href = address;
  link.download = name.replace(/.*\//, "");
  link.click();
}

tell();
onChange(tell);
