/* Tables with the class "board" can be filtered and sorted. Without this script they are plain tables.

   A heading with data-filter gets a list of the values of its column, one with data-presence (its value is the word for it) a choice
   between rows with and without a value. The choice is part of the address: scoreboard.html?paper=pfedsim.
   The dots of the plot in data-plot are links to rows. */
"use strict";

function board(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  const rows = Array.from(table.tBodies[0].rows);
  const value = (row, k) => row.cells[k].dataset.v || row.cells[k].textContent.trim();
  const form = document.createElement("form");
  form.className = "filters";
  form.setAttribute("role", "search");
  form.setAttribute("aria-label", "Filter the table");
  form.setAttribute("aria-controls", table.id);
  const tests = [];
  const dots = Array.from(document.querySelectorAll(`#${table.dataset.plot} a`));

  function field(text, control, name) {
    const label = document.createElement("label");
    label.append(text, control);
    control.name = name;
    form.append(label);
    return control;
  }

  function choice(text, name, options) {
    const select = document.createElement("select");
    options.forEach(([key, shown]) => select.add(new Option(shown, key)));
    return field(text, select, name);
  }

  heads.forEach((head, k) => {
    const name = head.dataset.name;
    if ("filter" in head.dataset) {
      const found = new Map(rows.map((row) => [value(row, k), row.cells[k].textContent.trim()]));
      rows.forEach((row) => { // for variants of a method, the name of the method itself
        const shown = row.cells[k].textContent.trim();
        if (shown.length < found.get(value(row, k)).length) found.set(value(row, k), shown);
      });
      const select = choice(head.textContent, name, [["", "all"], ...found]);
      tests.push((row) => !select.value || value(row, k) === select.value);
    }
    if ("presence" in head.dataset) {
      const word = head.dataset.presence;
      const select = choice(word, word, [["", "all"], ["yes", word], ["no", "not " + word]]);
      tests.push((row) => !select.value || (select.value === "yes") === Boolean(value(row, k)));
    }
  });
  const words = field("words", Object.assign(document.createElement("input"), { type: "search" }), "words");
  tests.push((row) => words.value.toLowerCase().split(/\s+/).every((word) => row.textContent.toLowerCase().includes(word)));
  const reset = Object.assign(document.createElement("button"), { type: "button", textContent: "Show all" });
  const save = Object.assign(document.createElement("button"), { type: "button", textContent: "CSV of what is shown" });
  form.append(reset, save);
  const count = document.createElement("p");
  count.className = "small";
  count.setAttribute("role", "status");

  function apply(remember) {
    const shown = rows.filter((row) => {
      row.hidden = !tests.every((test) => test(row));
      return !row.hidden;
    });
    dots.forEach((dot) => dot.classList.toggle("out", document.getElementById(dot.getAttribute("href").slice(1)).hidden));
    count.textContent = shown.length + " of " + rows.length + " rows shown.";
    if (!remember) return;
    const chosen = new URLSearchParams(Array.from(new FormData(form)).filter((pair) => pair[1]));
    try {
      history.replaceState(null, "", location.pathname + (String(chosen) ? "?" + chosen : "") + location.hash);
    } catch (error) { /* a page that was opened as a file may not change its address */ }
  }

  heads.forEach((head, k) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: head.textContent });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const last = down ? -Infinity : Infinity; // rows without a number
      const number = (row) => { const n = parseFloat(value(row, k)); return Number.isNaN(n) ? last : n; };
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const compare = "number" in head.dataset
        ? (a, b) => number(a) - number(b) || 0
        : (a, b) => value(a, k).localeCompare(value(b, k), "en", { numeric: true });
      const sorted = rows.slice().sort((a, b) => (down ? -compare(a, b) : compare(a, b)));
      table.tBodies[0].append(...sorted);
    });
  });

  const text = (cell) => '"' + cell.textContent.trim().replace(/\s+/g, " ").replace(/"/g, '""') + '"';
  save.addEventListener("click", () => {
    const shown = [table.tHead.rows[0], ...Array.from(table.tBodies[0].rows).filter((row) => !row.hidden)];
    const lines = shown.map((row) => Array.from(row.cells, text).join(",") + "\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
    link.download = table.id + ".csv";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  dots.forEach((dot) => dot.addEventListener("click", () => { // show its table; the browser then goes to its row
    const row = document.getElementById(dot.getAttribute("href").slice(1));
    form.reset();
    ["paper", "item"].forEach((name, k) => { form.elements.namedItem(name).value = value(row, k); });
    apply(true);
  }));

  form.addEventListener("input", () => apply(true));
  form.addEventListener("submit", (event) => event.preventDefault());
  reset.addEventListener("click", () => { form.reset(); apply(true); });
  const box = table.parentElement;
  box.before(form, count);
  new URLSearchParams(location.search).forEach((chosen, name) => {
    const control = form.elements.namedItem(name);
    if (control) control.value = chosen;
  });
  apply(false);
}

document.querySelectorAll("table.board").forEach(board);

/* The theme opens its side bars with labels, which the Tab key does not reach: a button in each of them does the same. */
document.querySelectorAll("label.nav-overlay-icon, label.toc-overlay-icon").forEach((label) => {
  const box = document.getElementById(label.htmlFor);
  const button = Object.assign(document.createElement("button"), { type: "button", className: "open" });
  button.setAttribute("aria-label", label.htmlFor === "__toc" ? "On this page" : "All pages");
  button.append(...label.childNodes);
  button.addEventListener("click", () => { box.checked = !box.checked; });
  label.append(button);
});

/* What Sphinx and its theme leave out for screen readers and keyboards. */
document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Site");
document.querySelectorAll("p.caption[role=heading]").forEach((heading) => heading.setAttribute("aria-level", "2"));
document.querySelectorAll("dl:not(:has(> dt))").forEach((list) => list.setAttribute("role", "presentation"));
document.querySelectorAll("th").forEach((head) => {
  if (!head.textContent.trim()) head.replaceWith(Object.assign(document.createElement("td"), { className: head.className }));
});
document.querySelectorAll("pre, .table-wrapper").forEach((box) => {
  if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
});
