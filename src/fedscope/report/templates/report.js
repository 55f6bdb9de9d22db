"use strict";

// Tables: a head's button sorts by its column, what has no value comes last.

function sort(table, column) {
  const heads = [...table.tHead.rows[0].cells];
  const sign = heads[column].getAttribute("aria-sort") === "ascending" ? -1 : 1;
  heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : sign > 0 ? "ascending" : "descending"));
  const value = (row) => row.cells[column].dataset.value;
  const order = (a, b) => {
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    const gap = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
    return sign * gap;
  };
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort((a, b) => order(value(a), value(b))));
}

for (const table of all("table.sortable")) {
  all("thead button", table).forEach((button, column) => button.addEventListener("click", () => sort(table, column)));
}

const LEGEND_ENTRY = 160, LEGEND_ROW = 20; // pixels

// Charts: a check box, or the legend, shows and hides a method in all of them.

function show(subject, shown) {
  for (const box of all(`input[data-subject="${subject}"]`)) box.checked = shown;
  for (const chart of all("[data-chart]")) {
    const own = chart.data.map((trace, i) => (trace.legendgroup === `s${subject}` ? i : -1)).filter((i) => i >= 0);
    if (own.length) Plotly.restyle(chart, { visible: shown ? true : "legendonly" }, own);
  }
}

// Beside check boxes the first chart names the methods for all.
function named(box, data) {
  const groups = all("input[data-subject]", box.closest("section")).map((input) => `s${input.dataset.subject}`);
  const first = box.closest(".charts")?.querySelector("[data-chart]");
  return box !== first && data.every((trace) => groups.includes(trace.legendgroup));
}

async function drawChart(box) {
  const { data, layout } = page.charts[box.dataset.chart];
  const showlegend = layout.showlegend && !named(box, data);
  // a legend of several rows must not take the curves' room
  const names = showlegend ? data.filter((trace) => trace.showlegend !== false).length : 0;
  const rows = Math.ceil(names / Math.max(1, Math.floor(box.clientWidth / LEGEND_ENTRY)));
  const height = layout.height + LEGEND_ROW * Math.max(0, rows - 1);
  await Plotly.newPlot(box, data, { ...layout, height, showlegend, template: template() }, FLAT);
  box.on("plotly_legenddoubleclick", () => false);
  box.on("plotly_legendclick", (event) => {
    const subject = event.data[event.curveNumber].legendgroup.slice(1);
    show(subject, !all(`input[data-subject="${subject}"]`)[0]?.checked);
    return false;
  });
}

for (const box of all("input[data-subject]")) {
  box.addEventListener("change", () => show(box.dataset.subject, box.checked));
}

// The round of one slider is shown in all planes, and marked in every curve.

function goTo(round) {
  for (const chart of charts.filter((box) => box.dataset.chart.startsWith("curve-"))) {
    const own = page.charts[chart.dataset.chart].layout.shapes ?? [];
    const mark = { type: "line", yref: "paper", x0: round, x1: round, y0: 0, y1: 1, line: { color: colour("faint"), width: 1 } };
    Plotly.relayout(chart, { shapes: [...own, mark] });
  }
  return Promise.all(planes.map((plane) => plane.follow(round)));
}

// Rounds to a target accuracy.

function count(target) {
  const items = page.curves.map(({ name, accuracy }) => {
    const found = accuracy.find(([, value]) => 100 * value >= target - 1e-9);
    const item = document.createElement("li");
    item.textContent = found ? `${name}: ${found[0]} rounds` : `${name}: not reached`;
    return item;
  });
  document.getElementById("reached").replaceChildren(...items);
}

const target = document.getElementById("target");
if (target) {
  target.addEventListener("input", () => target.value !== "" && count(Number(target.value)));
  count(Number(target.value));
}

const webgl = Boolean(document.createElement("canvas").getContext("webgl"));
root.classList.remove("no-script"); // from here on what needs scripts has its place
const charts = all("[data-chart]");
const planes = all("[data-plane]").map((box) => new Plane(box));
for (const note of all(".no-webgl")) note.hidden = webgl;
for (const still of all(".still")) still.open = !webgl; // the planes below show the same

// Colours: as the system has them or as chosen here, and light on paper. The choice ends with the page.

const scheme = document.getElementById("scheme");
const system = matchMedia("(prefers-color-scheme: dark)");

async function repaint(chosen, size = {}) {
  root.style.colorScheme = chosen;
  await Promise.all(charts.map((chart) => Plotly.relayout(chart, { template: template(), ...size })));
  if (chosen === scheme.value) for (const plane of planes) await plane.draw(); // which paper does not show
}

scheme.addEventListener("change", () => repaint(scheme.value));
system.addEventListener("change", () => repaint(scheme.value));

// On paper all provenance stands open, and charts have the page's width.

addEventListener("beforeprint", () => {
  for (const details of all("details")) {
    details.dataset.was = details.open;
    details.open = true;
  }
  repaint("light", { autosize: false, width: 660 });
});

addEventListener("afterprint", () => {
  for (const details of all("details")) details.open = details.dataset.was === "true";
  repaint(scheme.value, { autosize: true, width: null });
});

async function start() {
  for (const box of charts) await drawChart(box);
  for (const plane of planes) await plane.draw();
  root.dataset.ready = "yes";
}

start();
