"use strict";
// Tables sort by a click on their head; without this script they are simply tables.
for (const table of document.querySelectorAll("table.data")) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  table.querySelectorAll("thead th").forEach((head, column) => {
    if (!head.textContent) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const known = (row) => row.cells[column].dataset.sort;
      const order = (a, b) => {
        const x = known(a), y = known(b);
        if (x !== undefined && y !== undefined) return up ? x - y : y - x;
        if (x !== undefined) return -1; // unknown numbers stay last in both directions
        if (y !== undefined) return 1;
        const words = a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true });
        return up ? words : -words;
      };
      const rows = [...body.rows].sort(order);
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...rows);
    });
  });
}
// Data shown beside a figure has no place beside it on a narrow screen: there it is folded like any other.
if (!matchMedia("(min-width: 860px)").matches) {
  for (const details of document.querySelectorAll(".figure.lone > details")) details.open = false;
}
// Paper cannot unfold: print shows every table.
const folded = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    folded.push(details);
  }
});
addEventListener("afterprint", () => {
  for (const details of folded.splice(0)) details.open = false;
});
