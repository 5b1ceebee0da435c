"use strict";
// Sorts tables, and draws charts when they come into sight. The page is whole without it but for its charts.
const number = (text) => Number.parseFloat(text.replace(/^[^\d+-]*/, "").replaceAll(",", ""));
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
  let loaded = null;
  const seen = new IntersectionObserver(
    async (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        await (loaded ??= load());
        const { data, layout } = JSON.parse(target.closest("figure").querySelector("script").textContent);
        window.Plotly.newPlot(target, data, layout, { responsive: true, displaylogo: false });
      }
    },
    { rootMargin: "400px" }
  );
  for (const plot of document.querySelectorAll(".plot")) seen.observe(plot);
}
