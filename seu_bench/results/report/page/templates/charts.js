"use strict";
// Draws the charts that stand in place of figures, each when it comes into sight. Without this there are the figures.
{
  const packed = document.getElementById("plotly");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  const drawn = [];
  let library = null;

  function load() {
    library ??= (async () => {
      const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
      packed.remove();
      return window.Plotly ?? window.moduleName;
    })();
    return library;
  }

  const number = (value, digits) => (Math.round(value * 10 ** digits) / 10 ** digits || 0).toFixed(digits);

  function words(chart, view, series, points, place) {
    const value = points.y[place];
    const deviation = points.up[place];
    const own = points.text[place] ??
      `${chart.place} ${points.x[place]}: ${number(value, 1)}` +
      `${deviation === null || deviation === undefined ? "" : ` ± ${number(deviation, 1)}`} ${view.unit}`;
    return `${series.label}<br>${own}<br>${series.seeds}`;
  }

  const bars = (deviations, color) =>
    deviations.some((each) => each !== null)
      ? { type: "data", array: deviations, color: color + "99", thickness: 1, width: 3 }
      : { visible: false };

  function traces(chart, state) {
    const view = chart.views[state.view];
    return chart.series.map((series, place) => {
      const points = series.views[state.view];
      const color = series.colors[dark.matches ? 1 : 0];
      return {
        type: "scatter",
        x: points.x,
        y: points.y,
        mode: !series.line ? "markers" : series.hollow ? "lines" : "lines+markers",
        visible: !state.hidden.has(place),
        line: { color, dash: series.dash, width: series.hollow ? 1.4 : 2 },
        marker: { color, symbol: series.symbol + (series.hollow ? "-open" : ""), size: series.line ? 8 : 12 },
        error_y: bars(points.up, color),
        error_x: bars(points.across, color),
        customdata: points.y.map((value, index) => (value === null ? "" : words(chart, view, series, points, index))),
        hovertemplate: "%{customdata}<extra></extra>",
        hoverlabel: { bordercolor: color },
      };
    });
  }

  function layout(chart, state) {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { gridcolor: color("line"), linecolor: color("muted"), zeroline: false, automargin: true };
    const small = narrow.matches;
    const places = chart.series.flatMap((series) => series.views[state.view].x);
    const counts = Math.max(1, ...places) - Math.min(0, ...places) <= (small ? 10 : 20) ? { dtick: 1 } : {};
    const title = (text) => ({ text, font: { size: small ? 11 : 13 }, standoff: 8 });
    return {
      autosize: true,
      showlegend: false,
      hovermode: "closest",
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      margin: { l: 48, r: 12, t: 12, b: 44 },
      paper_bgcolor: color("card"),
      plot_bgcolor: color("card"),
      font: { family: style.getPropertyValue("font-family") || "sans-serif", size: small ? 11 : 12, color: color("ink") },
      hoverlabel: { bgcolor: color("card"), font: { color: color("ink"), size: 13 }, align: "left" },
      xaxis: { ...axis, title: title(chart.x), ...(chart.place ? counts : { type: "log", dtick: small ? 1 : "D2" }) },
      yaxis: { ...axis, title: title(chart.views[state.view].y) },
    };
  }

  const SHAPES = {
    circle: "M7 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
    square: "M7.5 -3.5h7v7h-7z",
    "triangle-up": "M11 -4.5l4.5 8h-9z",
    "triangle-down": "M11 4.5l4.5 -8h-9z",
    diamond: "M11 -5l5 5l-5 5l-5 -5z",
    cross: "M9.5 -5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    star: "M11 -5l1.5 3.5l3.8 .3l-2.9 2.5l.9 3.7l-3.3 -2l-3.3 2l.9 -3.7l-2.9 -2.5l3.8 -.3z",
    x: "M7 -2l2 -2l2 2l2 -2l2 2l-2 2l2 2l-2 2l-2 -2l-2 2l-2 -2l2 -2z",
  };

  function sample(series) {
    const space = "http://www.w3.org/2000/svg";
    const color = series.colors[dark.matches ? 1 : 0];
    const svg = document.createElementNS(space, "svg");
    const set = (element, values) => Object.entries(values).forEach(([name, value]) => element.setAttribute(name, value));
    const draw = (d, look) => {
      const path = document.createElementNS(space, "path");
      set(path, { d, ...look });
      svg.append(path);
    };
    set(svg, { viewBox: "0 -6 22 12", width: 22, height: 12, "aria-hidden": "true" });
    const dash = series.dash === "solid" ? {} : { "stroke-dasharray": series.dash.replaceAll("px", "") };
    if (series.line) draw("M0 0h22", { stroke: color, "stroke-width": 1.8, ...dash });
    const marker = series.hollow ? { fill: "none", stroke: color, "stroke-width": 1.4 } : { fill: color };
    if (!(series.line && series.hollow)) draw(SHAPES[series.symbol], marker);
    return svg;
  }

  async function draw(figure) {
    const chart = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
    const box = figure.querySelector(".chart");
    const plot = box.querySelector(".plot");
    const legend = box.querySelector(".legend");
    const choice = box.querySelector("select.view");
    const state = { view: 0, hidden: new Set() };
    const Plotly = await load();
    const settings = { displayModeBar: false, responsive: true, doubleClick: "reset", showTips: false };
    const show = () => Plotly.react(plot, traces(chart, state), layout(chart, state), settings);

    const buttons = chart.series.map((series, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(sample(series), document.createTextNode(series.name));
      button.addEventListener("click", () => {
        if (!state.hidden.delete(place)) state.hidden.add(place);
        mark();
        show();
      });
      const entry = document.createElement("li");
      entry.append(button);
      legend.append(entry);
      return button;
    });
    const everything = document.createElement("button");
    everything.type = "button";
    everything.className = "everything";
    everything.addEventListener("click", () => {
      if (state.hidden.size) state.hidden.clear();
      else buttons.forEach((_, place) => state.hidden.add(place));
      mark();
      show();
    });
    const still = document.createElement("button");
    still.type = "button";
    still.className = "still-button";
    still.textContent = "Still figure";
    still.setAttribute("aria-pressed", "false");
    still.addEventListener("click", () => {
      still.setAttribute("aria-pressed", figure.classList.toggle("still"));
      if (!figure.classList.contains("still")) Plotly.Plots.resize(plot);
    });
    box.querySelector(".tools").append(everything, still);
    function mark() {
      buttons.forEach((button, place) => button.setAttribute("aria-pressed", !state.hidden.has(place)));
      everything.textContent = state.hidden.size ? "Show all" : "Hide all";
    }
    mark();
    if (choice) {
      choice.addEventListener("change", () => {
        state.view = Number(choice.value);
        show();
      });
    }
    figure.classList.add("drawn");
    box.hidden = false;
    await show();
    new ResizeObserver(() => {
      if (plot.clientWidth) Plotly.Plots.resize(plot);
    }).observe(plot);
    const colors = () => {
      chart.series.forEach((series, place) => buttons[place].firstChild.replaceWith(sample(series)));
      show();
    };
    dark.addEventListener("change", colors);
    narrow.addEventListener("change", show);
    drawn.push(figure);
  }

  if (packed && "DecompressionStream" in window && "IntersectionObserver" in window) {
    const seen = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries) {
          if (!isIntersecting) continue;
          seen.unobserve(target);
          draw(target).catch(() => target.classList.remove("drawn")); // the figure stays
        }
      },
      { rootMargin: "400px" }
    );
    for (const figure of document.querySelectorAll("figure[data-chart]")) seen.observe(figure);
  }
}
