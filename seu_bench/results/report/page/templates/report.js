"use strict";
// Sorts and filters the leaderboards, folds sections, saves figures. The page is whole without it.
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

// Sections fold; a link into one that is folded unfolds it, and paper has them all.
{
  const sections = Array.from(document.querySelectorAll("details"));
  const groups = sections.filter((each) => each.classList.contains("group"));
  const unfold = (element) => {
    for (let each = element; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  };
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    unfold(target);
    target.scrollIntoView();
  };
  for (const bar of document.querySelectorAll(".folding")) bar.hidden = groups.length < 2;
  for (const button of document.querySelectorAll("[data-fold]")) {
    button.addEventListener("click", () => groups.forEach((each) => (each.open = button.dataset.fold === "open")));
  }
  addEventListener("hashchange", follow);
  if (location.hash) follow();
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = folded.concat(sections.filter((each) => !each.open));
    folded.forEach((each) => (each.open = true));
  });
  addEventListener("afterprint", () => {
    folded.forEach((each) => (each.open = false));
    folded = [];
  });
}

// Figures: shown in full size where they are scaled down, and saved as they are in the files.
{
  const save = (content, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  // The file is as the picture of the page, but for the style that makes it light or dark.
  const drawing = (image) => {
    const bytes = Uint8Array.from(atob(image.src.slice(image.src.indexOf(",") + 1)), (letter) => letter.charCodeAt(0));
    return new TextDecoder().decode(bytes).replace(/\n<style>[^<]*<\/style>/, "");
  };
  const formats = {
    svg: async (image) => new Blob([drawing(image)], { type: "image/svg+xml" }),
    png: async (image) => {
      const picture = new Image();
      picture.src = "data:image/svg+xml," + encodeURIComponent(drawing(image));
      await picture.decode();
      const canvas = document.createElement("canvas");
      const scale = 300 / 96; // dots per inch of the file, and of the page
      canvas.width = Math.round(image.getAttribute("width") * scale);
      canvas.height = Math.round(image.getAttribute("height") * scale);
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    },
  };
  for (const figure of document.querySelectorAll("figure")) {
    const image = figure.querySelector(".picture img");
    for (const link of figure.querySelectorAll("[data-save]")) {
      link.addEventListener("click", async (event) => {
        event.preventDefault();
        save(await formats[link.dataset.save](image), link.download);
      });
    }
    const enlarge = figure.querySelector(".enlarge");
    enlarge.hidden = false;
    enlarge.addEventListener("click", () => {
      const full = figure.querySelector(".picture").classList.toggle("full");
      enlarge.setAttribute("aria-pressed", full);
    });
  }
}
