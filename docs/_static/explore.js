// Sliders over exact risk curves; the data are in explore_data.js.
document.addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("explore");
  if (!box || !window.exploreData) return;
  const rows = window.exploreData;
  const values = (name) => [...new Set(rows.map((row) => row[name]))];
  const words = {
    d: (v) => `input dimension d = ${v}`,
    noise: (v) => `noise variance = ${v}`,
    decay: (v) => (v ? `i-th input variance ~ 1 / i^${v}` : "all inputs alike"),
  };
  const colours = {
    "one layer of linear attention": "#E69F00",
    "three gradient steps": "#56B4E9",
    "least squares": "#0072B2",
    Bayes: "#D55E00",
  };
  const start = { d: 1, noise: 2, decay: 0, examples: 20 };
  const sliders = {};
  const form = document.createElement("form");
  form.className = "explore-controls";
  const slider = (name, most, value) => {
    const label = document.createElement("label");
    const text = document.createElement("span");
    const input = document.createElement("input");
    Object.assign(input, { type: "range", min: 0, max: most, step: 1, value });
    label.append(text, input);
    form.append(label);
    sliders[name] = { input, text };
  };
  for (const name of Object.keys(words)) {
    slider(name, values(name).length - 1, start[name]);
  }
  slider("examples", 60, start.examples);
  const table = document.createElement("table");
  const picture = document.createElement("div");
  box.replaceChildren(form, picture, table);
  const width = 640, height = 340, left = 48, bottom = 36, top = 10, right = 10;
  const show = () => {
    const chosen = {};
    for (const name of Object.keys(words)) {
      chosen[name] = values(name)[sliders[name].input.value];
      sliders[name].text.textContent = words[name](chosen[name]);
    }
    const n = Number(sliders.examples.input.value);
    sliders.examples.text.textContent = `examples in the prompt N = ${n}`;
    const row = rows.find((one) =>
      Object.keys(words).every((name) => one[name] === chosen[name]),
    );
    const low = 1e-3, high = 3;
    const x = (k) => left + ((width - left - right) * k) / 60;
    const y = (v) =>
      top + ((height - top - bottom) * Math.log(high / v)) / Math.log(high / low);
    const parts = [];
    for (const tick of [0.001, 0.01, 0.1, 1]) {
      parts.push(
        `<line x1="${left}" x2="${width - right}" y1="${y(tick)}" y2="${y(tick)}" class="grid"/>`,
        `<text x="${left - 6}" y="${y(tick) + 4}" text-anchor="end">${tick}</text>`,
      );
    }
    for (const tick of [0, 10, 20, 30, 40, 50, 60]) {
      parts.push(
        `<text x="${x(tick)}" y="${height - 18}" text-anchor="middle">${tick}</text>`,
      );
    }
    parts.push(
      `<text x="${(left + width) / 2}" y="${height - 2}" text-anchor="middle">examples in the prompt N</text>`,
      `<line x1="${x(n)}" x2="${x(n)}" y1="${top}" y2="${height - bottom}" class="mark"/>`,
    );
    const cells = [];
    for (const [name, curve] of Object.entries(row.curves)) {
      let path = "", pen = "M";
      curve.forEach((value, k) => {
        if (value === null) { pen = "M"; return; }
        path += `${pen}${x(k).toFixed(1)},${y(Math.max(value, 1e-9)).toFixed(1)}`;
        pen = "L";
      });
      parts.push(`<path d="${path}" stroke="${colours[name]}"/>`);
      const value = curve[n];
      const said = value === null ? "infinite or unknown" : value.toPrecision(3);
      cells.push(
        `<tr><td><span style="background:${colours[name]}"></span>${name}</td><td>${said}</td></tr>`,
      );
    }
    picture.innerHTML =
      `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="Risk against the number of examples">` +
      `<clipPath id="frame"><rect x="${left}" y="${top}" width="${width - left - right}" height="${height - top - bottom}"/></clipPath>` +
      `<g>${parts.filter((p) => !p.startsWith("<path")).join("")}</g>` +
      `<g clip-path="url(#frame)">${parts.filter((p) => p.startsWith("<path")).join("")}</g></svg>`;
    table.innerHTML = `<thead><tr><th>predictor</th><th>risk / d at N = ${n}</th></tr></thead><tbody>${cells.join("")}</tbody>`;
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
});
