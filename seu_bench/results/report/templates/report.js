"use strict";
// Sorts, narrows and saves tables, and draws charts when they come into sight. The page is whole without it but for its charts.
const number = (text) => Number.parseFloat(text.replace(/^[^\d+-]*/, "").replaceAll(",", ""));
const element = (tag, fields, ...children) => {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
};
for (const table of document.querySelectorAll("table")) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) =>
    head.firstElementChild.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      const rows = Array.from(table.tBodies[0].rows, (row) => [row.cells[column].textContent, row]);
      rows.sort(([a], [b]) => {
        const [left, right] = [number(a), number(b)];
        if (Number.isNaN(left) && Number.isNaN(right)) return sign * a.localeCompare(b, "en", { numeric: true });
        if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right); // not measured: last
        return sign * (left - right);
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    })
  );
  const frame = table.parentElement;
  if (heads.some((head) => "more" in head.dataset)) {
    const choices = element("fieldset", { className: "columns" }, element("legend", { className: "hidden", textContent: "Columns shown" }));
    heads.slice(2).forEach((head, place) => {
      const box = element("input", { type: "checkbox", checked: !("more" in head.dataset) });
      const show = () => {
        for (const row of table.rows) row.cells[place + 2].hidden = !box.checked;
      };
      box.addEventListener("change", show);
      show();
      choices.append(element("label", {}, box, ` ${head.textContent}`));
    });
    frame.before(element("details", {}, element("summary", { textContent: "Choose columns" }), choices));
  }
  const save = frame.nextElementSibling?.matches(".save") ? frame.nextElementSibling : frame.parentElement.querySelector(".save");
  if (save?.dataset.name) {
    const button = element("button", { type: "button", textContent: "CSV", ariaLabel: `CSV of ${frame.getAttribute("aria-label")}` });
    button.addEventListener("click", () => {
      // A mean and its deviation are two columns; a number has no comma; and no spreadsheet takes a text for a formula.
      const cell = (text) => (/^[-+]?\d[\d.,]*$/.test(text) ? text.replaceAll(",", "") : `"${text.replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`);
      const rows = Array.from(table.rows, (row) => Array.from(row.cells, (it) => it.textContent.trim().split("\u00a0±\u00a0")));
      const widths = heads.map((_, column) => Math.max(...rows.map((row) => row[column].length)));
      const lines = rows.map((row, place) =>
        row.flatMap((parts, column) => {
          const end = place === 0 && widths[column] === 2 ? [`${parts[0]} deviation`] : Array(widths[column] - parts.length).fill("");
          return [...parts, ...end].map((text) => (text === "-" ? "" : cell(text)));
        }).join(",")
      );
      const href = `data:text/csv;charset=utf-8,${encodeURIComponent(`${lines.join("\n")}\n`)}`;
      element("a", { href, download: `${save.dataset.name}.csv` }).click();
    });
    save.append("Save this table:", button);
  }
}

const packed = document.getElementById("plotly");
if (packed) {
  const load = async () => {
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // The page's own typeface and colours, and room for the legend below.
  const styled = ({ data, layout }, width) => {
    const [ink, soft, line, clear] = [color("--ink"), color("--soft"), color("--line"), "rgba(0,0,0,0)"];
    const text = JSON.stringify(data).replaceAll('"#1b1f24"', JSON.stringify(ink)); // black is not seen on black
    for (const name of Object.keys(layout)) if (/^[xy]axis/.test(name)) Object.assign(layout[name], { gridcolor: line, linecolor: line });
    if (layout.xaxis.type === "log") {
      const known = data.flatMap((it) => it.x).filter((value) => value > 0);
      const [low, high] = [Math.min(...known), Math.max(...known)];
      const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
      const decades = Array.from({ length: last - first + 1 }, (_, place) => 10 ** (first + place));
      const steps = high / low < 8 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : high / low < 60 ? [1, 2, 5] : [1];
      layout.xaxis.tickvals = decades.flatMap((it) => steps.map((step) => step * it));
      layout.xaxis.ticktext = layout.xaxis.tickvals.map((it) => it.toLocaleString("en", { maximumSignificantDigits: 2 }));
    }
    const names = data.filter((it) => it.showlegend).map((it) => it.name.split("<br>"));
    const longest = Math.max(1, ...names.flat().map((it) => it.length)); // all columns of a legend are as wide
    const lines = Math.max(1, ...names.map((it) => it.length)) * Math.ceil(names.length / Math.max(1, Math.floor((width - 80) / (7 * longest + 45))));
    const fonts = { family: getComputedStyle(document.body).fontFamily, color: ink, size: 13 };
    const height = layout.height + 20 * lines;
    return [JSON.parse(text), { ...layout, height, font: fonts, modebar: { bgcolor: clear, color: soft, activecolor: ink }, paper_bgcolor: clear, plot_bgcolor: clear }];
  };
  let loaded = null;
  const seen = new IntersectionObserver(
    async (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        await (loaded ??= load());
        const chart = JSON.parse(target.closest("figure").querySelector("script").textContent);
        const buttons = { modeBarButtons: [["toImage", "resetScale2d"]], toImageButtonOptions: { format: "svg", filename: target.dataset.name } };
        window.Plotly.newPlot(target, ...styled(chart, target.clientWidth), { responsive: true, displaylogo: false, ...buttons });
      }
    },
    { rootMargin: "400px" }
  );
  for (const plot of document.querySelectorAll(".plot")) seen.observe(plot);
}
