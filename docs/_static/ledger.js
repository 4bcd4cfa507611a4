// A search field and three choices above the tables of the ledger.
document.addEventListener("DOMContentLoaded", () => {
  const anchor = document.getElementById("the-ledger");
  if (!anchor) return;
  const sections = [...anchor.querySelectorAll("section")];
  const rows = sections.flatMap((section) =>
    [...section.querySelectorAll("tbody tr")].map((row) => ({
      row,
      section,
      text: row.textContent.toLowerCase(),
      status: row.cells[2].textContent.trim(),
      evidence: row.cells[3].textContent.trim().split(":")[0],
      paper: section.querySelector("h2").firstChild.textContent.trim(),
    })),
  );
  const box = document.createElement("form");
  box.className = "ledger-filter";
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
      section.hidden = ![...section.querySelectorAll("tbody tr")].some(
        (row) => !row.hidden,
      );
    }
    count.textContent = `${shown} of ${rows.length}`;
  };
  box.addEventListener("input", show);
  sections[0].before(box);
  show();
});
