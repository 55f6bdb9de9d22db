"use strict";

// What the other scripts share: the page's data, and its colours in plotly's words.

const page = JSON.parse(document.getElementById("page-data").textContent);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const buttons = (...names) => ({ responsive: true, displaylogo: false, modeBarButtons: [names] });
const FLAT = buttons("toImage", "zoom2d", "pan2d", "resetScale2d");
const SPACE = buttons("toImage", "zoom3d", "tableRotation");
const root = document.documentElement;

// A colour of the style sheet, in the scheme that is in use.
const probe = document.body.appendChild(document.createElement("span"));
probe.hidden = true;
function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

// What a chart's own layout does not say: inks and papers.
function template() {
  const [ink, faint, line, paper] = ["ink", "faint", "line", "page"].map(colour);
  const axis = { color: ink, linecolor: ink, tickcolor: ink, gridcolor: line, zerolinecolor: line };
  const space = { ...axis, linecolor: line };
  return {
    layout: {
      font: { color: ink }, paper_bgcolor: paper, plot_bgcolor: paper, xaxis: axis, yaxis: axis,
      scene: { xaxis: space, yaxis: space, zaxis: space },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: faint, activecolor: ink },
    },
  };
}
