// Ranks pages whose titles hold more of the words that were searched for, and pages to
// read before lists of functions. Sphinx alone counts one such word as much as all.
var Scorer = {  // Sphinx declares it as a var too
  score: (result) => {
    const [page, title, , , score] = result;
    const query = new URLSearchParams(window.location.search).get("q") || "";
    const stem = (word) => word.replace(/(ing|ed|es|s)$/, "");
    const words = query.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];
    const held = new Set((title.toLowerCase().match(/[\p{L}\p{N}]+/gu) || []).map(stem));
    const hits = words.filter((word) => held.has(stem(word))).length;
    const places = { start: 4, tutorials: 4, concepts: 3, experiments: 2 };
    return score + 10 * hits + (places[page.split("/")[0]] || 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
