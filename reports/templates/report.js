"use strict";
// Everything can be read without this script; it adds sorting, filters, permalinks and downloads.

const made = (tag, text = "", attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const button = (text, action) => {
  const one = made("button", text, { type: "button" });
  one.addEventListener("click", action);
  return one;
};

// ---------------------------------------------------------------- numbers in cells

// The number at the start of a text, as the report writes numbers; the page leaves out sort keys that say the same.
const NUMBER = /^[+\u2212-]?\d[\d\u202f]*(?:\.\d+)?(?:e[\u2212-]?\d{1,2})?(?![0-9A-Za-z])/;
const plain = (text) => text.replaceAll("\u202f", "").replaceAll("\u2212", "-").replace(/^\+/, "");
const SHARE = /^(\d+) \/ (\d+)$/;
const leading = (text) => {
  const share = SHARE.exec(text.trim());
  if (share) return share[1] / share[2];
  const found = NUMBER.exec(text.trim());
  return found ? Number(plain(found[0])) : NaN;
};
const isNumeric = (head) => !head.classList.contains("t");
const sortKey = (row, column, numeric) => {
  const cell = row.cells[column];
  if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
  return numeric ? leading(cell.textContent) : NaN;
};

// ---------------------------------------------------------------- sort

const sortBy = (table, head, column) => {
  const body = table.tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  const numeric = isNumeric(head);
  const order = (a, b) => {
    const x = sortKey(a, column, numeric), y = sortKey(b, column, numeric);
    if (!Number.isNaN(x) && !Number.isNaN(y)) return up ? x - y : y - x;
    if (!Number.isNaN(x)) return -1; // unknown numbers stay last in both directions
    if (!Number.isNaN(y)) return 1;
    const words = a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true });
    return up ? words : -words;
  };
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  body.append(...[...body.rows].sort(order));
};

// ---------------------------------------------------------------- CSV

// A spreadsheet takes text that begins so for a formula and runs it.
const quoted = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
const SPAN = new RegExp(`^(${NUMBER.source.slice(1)}) \\[(${NUMBER.source.slice(1)}), (${NUMBER.source.slice(1)})\\]$`);
const NAMES = new Map([[SPAN, ["", " low", " high"]], [SHARE, ["", " of"]]]);

// Numbers stay numbers: an interval becomes three columns, a count of samples two.
const csvOf = (table) => {
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
  const columns = heads.map((head, i) => {
    const texts = rows.map((row) => row.cells[i].textContent.trim());
    const pattern = isNumeric(head) ? [...NAMES.keys()].find((one) => texts.some((text) => one.test(text))) : undefined;
    const names = pattern ? NAMES.get(pattern) : [""];
    const cells = texts.map((text) => {
      const parts = pattern && pattern.exec(text);
      if (parts) return parts.slice(1).map(plain);
      const whole = isNumeric(head) && NUMBER.exec(text);
      const value = whole && whole[0] === text ? plain(text) : text === "\u2013" ? "" : quoted(text);
      return [value, ...names.slice(1).map(() => "")];
    });
    return { names: names.map((name) => quoted(head.textContent.trim() + name)), cells };
  });
  const lines = rows.map((_, j) => columns.flatMap((column) => column.cells[j]).join(","));
  return [columns.flatMap((column) => column.names).join(","), ...lines, ""].join("\r\n");
};
const save = (name, parts, type) => {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = made("a", "", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};
const fileName = (text) => `${text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")}.csv`;

// ---------------------------------------------------------------- filter

const addFilter = (table, region) => {
  const rows = [...table.tBodies[0].rows];
  const states = [...new Set(rows.flatMap((row) => row.dataset.state.split(" ")))];
  const words = made("input", "", { type: "search", placeholder: "text or id", "aria-label": "Show problems that contain" });
  const choice = made("select", "", { "aria-label": "Show problems that" });
  choice.append(made("option", "all", { value: "" }), ...states.map((state) => made("option", state, { value: state })));
  const count = made("output");
  const apply = () => {
    const wanted = words.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = !choice.value || row.dataset.state.split(" ").includes(choice.value);
      row.hidden = !(fits && row.textContent.toLowerCase().includes(wanted));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} shown`;
  };
  words.addEventListener("input", apply);
  choice.addEventListener("change", apply);
  apply();
  const controls = made("div", "", { class: "controls", role: "search" });
  controls.append(words, choice, count);
  region.before(controls);
};

for (const table of document.querySelectorAll("table.data")) {
  const region = table.parentElement;
  const heads = [...table.tHead.rows[0].cells];
  const count = table.tBodies[0].rows.length;
  if (count > 1) {
    heads.forEach((head, column) => {
      if (head.textContent) head.replaceChildren(button(head.textContent, () => sortBy(table, head, column)));
    });
  }
  if (table.hasAttribute("data-filter")) addFilter(table, region);
  if (count) {
    const title = region.getAttribute("aria-label");
    const csv = button("CSV", () => save(fileName(title), [csvOf(table)], "text/csv;charset=utf-8"));
    csv.className = "tool";
    csv.setAttribute("aria-label", `Download as CSV: ${title}`);
    region.after(csv);
  }
}

// The findings lie in the page as gzip: unpacked where the browser can, else the link gives the packed file.
for (const link of document.querySelectorAll('a[href^="data:application/gzip"]')) {
  if (!("DecompressionStream" in window)) continue;
  link.textContent = link.download.replace(/\.gz$/, "");
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const bytes = Uint8Array.from(atob(link.href.split(",")[1]), (letter) => letter.charCodeAt(0));
    const text = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    new Response(text).blob().then((blob) => save(link.textContent, [blob], "text/csv;charset=utf-8"));
  });
}

// ---------------------------------------------------------------- permalinks

const unfold = (element) => {
  for (let one = element; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
};
const follow = () => {
  let id = location.hash.slice(1);
  try { id = decodeURIComponent(id); } catch { return; } // a link that was cut in the middle of a character
  const target = document.getElementById(id);
  if (!target) return;
  unfold(target);
  target.scrollIntoView();
};
addEventListener("hashchange", follow);
const linkTo = (id, title) => {
  const link = made("a", "#", { href: `#${id}`, class: "tool permalink", "aria-label": `Copy the link to: ${title}` });
  link.addEventListener("click", (event) => {
    event.preventDefault();
    if (location.hash === `#${id}`) follow();
    else location.hash = id;
    const copied = navigator.clipboard ? navigator.clipboard.writeText(location.href) : Promise.reject();
    copied.then(() => (link.textContent = "copied"), () => (link.textContent = "in the address bar"));
    setTimeout(() => (link.textContent = "#"), 1500);
  });
  return link;
};
for (const part of document.querySelectorAll("section[id], figure[id]")) {
  const head = part.querySelector("h2, h3");
  if (head) head.append(" ", linkTo(part.id, head.textContent));
}
for (const one of document.querySelectorAll("details.case[id]")) {
  const head = one.querySelector("h4");
  head.append(" ", linkTo(one.id, one.querySelector("summary").textContent.trim()));
}

// ---------------------------------------------------------------- fold and unfold

for (const group of document.querySelectorAll(".cases")) {
  const cases = [...group.querySelectorAll("details.case")];
  if (cases.length < 2) continue;
  const all = button("Open all", () => {
    const open = cases.some((one) => !one.open);
    for (const one of cases) one.open = open;
    all.textContent = open ? "Close all" : "Open all";
  });
  all.className = "tool";
  group.querySelector("h3").after(all);
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
follow();
