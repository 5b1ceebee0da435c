"use strict";
// Sorts and filters the leaderboards. The page is whole without it.
for (const table of document.querySelectorAll("table.board")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  const form = document.querySelector(`form[data-for="${table.id}"]`);
  const status = document.getElementById(table.dataset.status);

  function key(row, column, kind) {
    const cell = row.cells[column];
    if (kind === "text") return cell.textContent;
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  }

  function sortBy(column) {
    const head = heads[column];
    const kind = head.firstElementChild.dataset.kind;
    const now = head.getAttribute("aria-sort");
    // Figures are looked at from the largest on, names and ranks from the first.
    const first = kind === "text" || column === 0 ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const next = now === first ? other : first;
    for (const each of heads) each.setAttribute("aria-sort", each === head ? next : "none");
    const sign = next === "ascending" ? 1 : -1;
    const keyed = rows.map((row) => [key(row, column, kind), row]);
    const isReference = (row) => row.classList.contains("reference");
    keyed.sort(([a, one], [b, other]) => {
      if (isReference(one) !== isReference(other)) return isReference(one) - isReference(other); // they compete with nobody
      if (a === null || b === null) return (a === null) - (b === null); // what was not measured comes last
      return sign * (kind === "text" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    });
    body.append(...keyed.map(([, row]) => row));
  }

  function filter() {
    const asked = Object.fromEntries(
      Array.from(form.querySelectorAll("[data-filter]"), (field) => [field.dataset.filter, field.value])
    );
    const words = asked.text.toLowerCase().split(/\s+/).filter(Boolean);
    const most = asked.size === "" ? Infinity : Number(asked.size) * 1e6;
    let shown = 0;
    for (const row of rows) {
      const text = row.cells[1].textContent.toLowerCase();
      const size = row.dataset.size === undefined ? null : Number(row.dataset.size);
      row.hidden = !(
        words.every((word) => text.includes(word)) &&
        (asked.strategy === "" || row.dataset.strategy === asked.strategy) &&
        (most === Infinity || (size !== null && size <= most))
      );
      shown += row.hidden ? 0 : 1;
    }
    status.textContent = `${shown} of ${rows.length} rows`;
  }

  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => sortBy(column)));
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  filter(); // a browser may have kept what was entered before
}
