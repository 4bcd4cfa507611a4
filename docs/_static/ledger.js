// The tables of the ledger as cards, with a search field and three choices above them.
document.addEventListener("DOMContentLoaded", () => {
  const anchor = document.getElementById("the-ledger");
  if (!anchor) return;
  const element = (tag, name, ...parts) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.append(...parts);
    return made;
  };
  const inner = (cell) => {
    const part = element("span", "");
    // MathJax keeps these nodes to fill them later: copies would stay empty.
    part.append(...cell.childNodes);
    return part;
  };
  const card = (row) => {
    const [label, says, status, evidence, right, functions, tests, measured] = row.cells;
    const word = status.textContent.trim();
    const kind = evidence.textContent.trim().split(":")[0];
    const badge = element("span", "ledger-status", word);
    badge.dataset.status = word;
    const head = element("div", "ledger-head", element("strong", "", inner(label)), badge);
    const made = element("article", "ledger-card", head, element("p", "", inner(says)));
    if (right.textContent.trim()) {
      made.append(element("p", "ledger-right", inner(right)));
    }
    const list = element("dl", "");
    for (const [name, cell] of Object.entries({ evidence, functions, tests, measured })) {
      if (!cell.textContent.trim()) continue;
      list.append(element("dt", "", name), element("dd", "", inner(cell)));
    }
    made.append(element("details", "", element("summary", "", kind), list));
    return made;
  };
  const sections = [...anchor.querySelectorAll("section")];
  const rows = [];
  for (const section of sections) {
    const grid = element("div", "ledger-grid");
    for (const row of section.querySelectorAll("tbody tr")) {
      const found = {
        section,
        text: row.textContent.toLowerCase(),
        status: row.cells[2].textContent.trim(),
        evidence: row.cells[3].textContent.trim().split(":")[0],
        paper: section.querySelector("h2").firstChild.textContent.trim(),
      };
      found.row = card(row); // takes the cells' content
      grid.append(found.row);
      rows.push(found);
    }
    for (const table of section.querySelectorAll("table")) {
      const wrapper = table.closest(".table-wrapper") || table;
      wrapper.replaceWith(grid);
    }
  }
  const box = element("form", "ledger-filter");
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Search statements, functions, tests";
  field.setAttribute("aria-label", field.placeholder);
  const choice = (label, values) => {
    const select = document.createElement("select");
    select.setAttribute("aria-label", label);
    for (const value of ["", ...new Set(values)]) {
      select.add(new Option(value || label, value));
    }
    return select;
  };
  const papers = choice("All papers", rows.map((one) => one.paper));
  const statuses = choice("All statuses", rows.map((one) => one.status));
  const kinds = choice("All evidence", rows.map((one) => one.evidence));
  const count = document.createElement("output");
  box.append(field, papers, statuses, kinds, count);
  box.addEventListener("submit", (event) => event.preventDefault());
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const one of rows) {
      const fits =
        words.every((word) => one.text.includes(word)) &&
        (!papers.value || one.paper === papers.value) &&
        (!statuses.value || one.status === statuses.value) &&
        (!kinds.value || one.evidence === kinds.value);
      one.row.hidden = !fits;
      shown += fits;
    }
    for (const section of sections) {
      section.hidden = !rows.some((one) => one.section === section && !one.row.hidden);
    }
    count.textContent = `${shown} of ${rows.length}`;
  };
  box.addEventListener("input", show);
  // The explanation of the columns is long: it opens on demand, below the filter.
  const about = [...sections[0].parentElement.children].filter(
    (one) => one.tagName === "P",
  );
  const words = element("details", "more", element("summary", "", "What the words mean"));
  words.append(...about.slice(1));
  sections[0].before(box, words);
  show();
});
