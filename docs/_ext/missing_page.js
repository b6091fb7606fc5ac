/* Part of 404.html: names the folder of the site, the nearest one above this address that holds Sphinx's objects.inv.
   It waits for the answers, since the style sheets below need the folder. */
"use strict";

{
  const base = document.querySelector("base");
  const folders = location.pathname.split("/").slice(0, -1);
  const holdsSite = (folder) => {
    const request = new XMLHttpRequest();
    request.open("HEAD", `${folder}objects.inv`, false);
    request.send();
    // A host that answers every address with some page does not hold the file.
    return request.status === 200 && !(request.getResponseHeader("Content-Type") || "").startsWith("text/html");
  };
  if (location.protocol === "file:") {
    base.remove();
  } else {
    for (let depth = folders.length; depth > 0; depth -= 1) {
      const folder = `${folders.slice(0, depth).join("/")}/`;
      if (holdsSite(folder)) {
        base.href = folder;
        break;
      }
    }
    // The base also moves links within the page: lead them back.
    document.addEventListener("DOMContentLoaded", () => {
      document.querySelectorAll('a[href^="#"]').forEach((link) => {
        link.href = `${location.pathname}${location.search}${link.getAttribute("href")}`;
      });
    });
  }
}
