"use strict";

// Planes: one camera and one scale for both sides, over all methods and rounds.

const LIGHT = { ambient: 0.85, diffuse: 0.3, specular: 0.03, roughness: 0.9, fresnel: 0 };

class Plane {
  constructor(box) {
    this.box = box;
    this.scene = page.planes[box.dataset.plane];
    this.sides = all("figure", box);
    // labels are of one size in pixels: on a phone they need the surface further away, and one title less
    const width = this.sides[0].clientWidth;
    this.narrow = width < 400;
    this.home = this.scene.eye.map((part) => part * Math.min(1.45, Math.max(1.08, 520 / width)));
    this.eye = this.home;
    this.slider = box.querySelector("[data-rounds]");
    for (const select of all("select", box)) select.addEventListener("change", () => this.draw());
    this.slider?.addEventListener("input", () => goTo(this.round()));
    for (const button of all("[data-turn]", box)) button.addEventListener("click", () => this.turn(button.dataset.turn));
  }

  round() {
    return this.scene.rounds[this.slider ? this.slider.value : 0];
  }

  // Move to the newest of the own rounds up to this one, or to the first.
  follow(round) {
    if (!this.slider) return;
    this.slider.value = Math.max(0, this.scene.rounds.findLastIndex((own) => own <= round));
    return this.draw();
  }

  quantity() {
    return this.box.querySelector("[data-quantity]")?.value ?? "loss";
  }

  // The newest view up to the round, or the oldest one after it.
  view(subject) {
    const until = subject.views.filter(([round]) => round <= this.round());
    return this.scene.views[(until.at(-1) ?? subject.views[0])[1]];
  }

  async draw() {
    if (this.slider) {
      this.slider.setAttribute("aria-valuetext", `round ${this.round()}`);
      this.box.querySelector("output").textContent = `round ${this.round()}`;
    }
    for (const side of this.sides) {
      const chosen = this.box.querySelector(`select[data-side="${side.dataset.side}"]`).value;
      side.hidden = chosen === "";
      if (!side.hidden) await this.drawSide(side, this.scene.subjects[chosen]);
    }
  }

  async drawSide(side, subject) {
    const view = this.view(subject), quantity = this.quantity(), scale = this.scene.quantities[quantity];
    const [space, flat] = [side.querySelector(".space"), side.querySelector(".flat")];
    side.querySelector(".name").textContent = subject.name;
    side.querySelector("figcaption").textContent = `${view.caption} ${scale.note}`;
    space.setAttribute("aria-label", `Surface of the ${quantity} in space. ${view.caption}`);
    flat.setAttribute("aria-label", `Contours of the ${quantity}. ${view.caption}`);
    if (webgl) await this.drawSpace(space, view, quantity, scale);
    await Plotly.react(flat, this.contours(view, quantity, scale), this.flatLayout(view), FLAT);
  }

  async drawSpace(space, view, quantity, scale) {
    const fresh = !space.data;
    const axis = (text) => ({ title: { text }, showspikes: false });
    const short = (name) => name.replace(/ \(.*\)$/, ""); // the contours below say the norm
    const layout = {
      ...this.common(), height: 420, margin: { l: 0, r: 0, t: 0, b: 0 },
      scene: {
        xaxis: axis(short(view.axes[0])), yaxis: axis(short(view.axes[1])),
        zaxis: { ...axis(this.narrow ? "" : quantity), range: [scale.low, scale.high], tickvals: scale.ticks, ticktext: scale.words },
        aspectmode: "manual", aspectratio: { x: 1, y: 1, z: 0.82 }, camera: this.camera(), dragmode: "turntable",
      },
    };
    await Plotly.react(space, [{ ...this.grid(view, quantity, scale), type: "surface", showscale: false, lighting: LIGHT }], layout, SPACE);
    if (fresh) space.on("plotly_relayout", (event) => event["scene.camera"] && this.look(event["scene.camera"].eye));
  }

  grid(view, quantity, scale) {
    const height = (value) => (value === null || !scale.log ? value : value > 0 ? Math.log10(value) : null);
    return {
      x: view.x, y: view.y, z: view.z[quantity].map((row) => row.map(height)),
      text: view.z[quantity].map((row, i) => row.map((value, j) => this.words(view, quantity, value, i, j))),
      hoverinfo: "text", colorscale: this.scene.colorscale, cmin: scale.low, cmax: scale.high,
    };
  }

  words(view, quantity, value, i, j) {
    const error = quantity === "loss" && view.stderr?.[i][j] != null ? ` ± ${view.stderr[i][j].toPrecision(2)}` : "";
    const guessed = view.computed && !view.computed[i][j] ? " (interpolated)" : "";
    return `${quantity} ${value === null ? "not finite" : value.toPrecision(4)}${error}${guessed}<br>at (${view.x[j]}, ${view.y[i]})`;
  }

  contours(view, quantity, scale) {
    const { cmin, cmax, ...grid } = this.grid(view, quantity, scale);
    const bar = { title: { text: scale.label, side: "right" }, tickvals: scale.ticks, ticktext: scale.words, thickness: 12, outlinewidth: 0 };
    const levels = { coloring: "heatmap", start: scale.low + scale.step, end: scale.high - scale.step / 2, size: scale.step };
    const line = { color: "rgba(255,255,255,0.55)", width: 0.7, smoothing: 1 };
    const filled = { ...grid, type: "contour", zmin: cmin, zmax: cmax, contours: levels, line, colorbar: bar };
    return view.marks.length ? [filled, this.marks(view)] : [filled];
  }

  marks(view) {
    const place = (axis) => view.marks.map((mark) => mark.at[axis]);
    const size = { size: 9, color: "white", line: { color: "#262626", width: 1.5 } };
    return {
      type: "scatter", mode: (view.path ? "lines+" : "") + "markers", x: place(0), y: place(1), marker: size,
      line: { color: "white", width: 2 }, showlegend: false, hoverinfo: "text",
      text: view.marks.map((mark) => `${mark.label}<br>${mark.distance} from the plane`),
    };
  }

  common() {
    return { font: { family: "system-ui, sans-serif", size: 12 }, template: template() };
  }

  flatLayout(view) {
    const [x, y] = [view.x, view.y].map((values) => [values[0], values.at(-1)]);
    const axis = (text, range) => ({ title: { text }, range, showline: true, ticks: "outside", showgrid: false, zeroline: false });
    return {
      ...this.common(), height: 380, margin: { l: 60, r: 10, t: 34, b: 55 }, plot_bgcolor: colour("missing"),
      xaxis: { ...axis(view.axes[0], x), constrain: "domain" },
      yaxis: { ...axis(view.axes[1], y), scaleanchor: "x", constrain: "domain" },
    };
  }

  camera() {
    const [x, y, z] = this.eye;
    return { eye: { x, y, z }, center: { x: 0, y: 0, z: -0.2 }, up: { x: 0, y: 0, z: 1 } };
  }

  look({ x, y, z }) {
    if (Math.hypot(x - this.eye[0], y - this.eye[1], z - this.eye[2]) < 1e-6) return;
    this.eye = [x, y, z];
    for (const space of all(".space", this.box)) {
      if (space.data) Plotly.relayout(space, { "scene.camera": this.camera() });
    }
  }

  turn(how) {
    let [x, y, z] = this.eye;
    let reach = Math.hypot(x, y, z), around = Math.atan2(y, x), up = Math.asin(z / reach);
    around += { left: -0.26, right: 0.26 }[how] ?? 0;
    up = Math.min(1.5, Math.max(-1.5, up + ({ up: 0.17, down: -0.17 }[how] ?? 0)));
    reach *= { in: 0.87, out: 1.15 }[how] ?? 1;
    [x, y, z] = [reach * Math.cos(up) * Math.cos(around), reach * Math.cos(up) * Math.sin(around), reach * Math.sin(up)];
    if (how === "reset") [x, y, z] = this.home;
    this.look({ x, y, z });
  }
}
