// The search page: sections that hold every word of the question, chapters first, each with the place that matches.
// SEARCH_TEXTS, of search_texts.js, holds pages: [address, title, kind, sections], a section: [id, heading, text].

const KINDS = ["Chapters", "Pages", "Solutions", "API"];
const FIRST = 8;                         // sections of a kind that are shown at once
const AROUND = 110;                      // characters before and after what is quoted

const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
// A word begins where it stands, or anywhere in a name with underscores and dots.
const word = (text) => new RegExp(`(?<![\\p{L}\\p{N}])${escape(text)}`, "giu");

// The sections that hold all words, or else as many of them as any does, best first within their kind.
function find(question, pages) {
  const phrase = question.replace(/["“”]/g, " ").trim().replace(/\s+/g, " ");
  const words = [...new Set(phrase.toLowerCase().split(" ").filter(Boolean))];
  if (!words.length) return [];
  const marks = [word(phrase), ...words.map(word)], found = [];
  for (const [address, title, kind, sections] of pages) {
    for (const [id, heading, text] of sections) {
      const has = (mark, where) => where.search(mark) >= 0, whole = `${title} ${heading} ${text}`;
      const held = marks.slice(1).filter((mark) => has(mark, whole)).length;
      const here = marks.slice(1).filter((mark) => has(mark, `${heading} ${text}`)).length;
      if (!here) continue;
      const score = 8 * has(marks[0], heading) + 4 * has(marks[0], text)
        + marks.slice(1).filter((mark) => has(mark, heading)).length / words.length;
      found.push({ address: `${address}#${id}`, title, heading, text, kind, held, score, marks });
    }
  }
  const most = Math.max(...found.map(({ held }) => held));
  return found.filter(({ held }) => held === most).sort((a, b) => a.kind - b.kind || b.score - a.score);
}

// A stretch of the text around the phrase, or else around the first word that stands in it, cut between words.
function excerpt({ text, marks }) {
  const at = marks.map((mark) => text.search(mark)).find((place) => place >= 0) ?? 0;
  const before = text.slice(0, at), from = at > AROUND ? before.indexOf(" ", at - AROUND) + 1 : 0;
  const cut = text.indexOf(" ", at + AROUND), to = cut < 0 ? text.length : cut;
  return `${from ? "… " : ""}${text.slice(from, to)}${to < text.length ? " …" : ""}`;
}

// Write a text into a node, what was searched for in <mark>: the phrase where it stands, or else its words.
function write(node, text, [phrase, ...words]) {
  const mark = text.search(phrase) >= 0 ? phrase : new RegExp(words.map((w) => w.source).join("|"), "giu");
  let last = 0;
  for (const match of text.matchAll(mark)) {
    node.append(text.slice(last, match.index));
    node.appendChild(document.createElement("mark")).textContent = match[0];
    last = match.index + match[0].length;
  }
  node.append(text.slice(last));
}

function entry(list, result) {
  const item = list.appendChild(document.createElement("li")), link = item.appendChild(document.createElement("a"));
  link.href = result.address;
  const first = !result.heading || result.title.endsWith(result.heading);       // the page itself
  write(link, first ? result.title : result.heading, result.marks);
  if (!first) {
    const page = item.appendChild(document.createElement("span"));
    page.className = "search-page";
    page.textContent = result.title;
  }
  write(item.appendChild(document.createElement("p")), excerpt(result), result.marks);
}

function show(question, status, room) {
  const results = find(question, SEARCH_TEXTS);
  status.textContent = !results.length ? `Nothing was found for “${question}”.`
    : `${results.length} ${results.length === 1 ? "place" : "places"} for “${question}”.`;
  KINDS.forEach((name, kind) => {
    const mine = results.filter((result) => result.kind === kind);
    if (!mine.length) return;
    room.appendChild(document.createElement("h2")).textContent = name;
    const list = room.appendChild(document.createElement("ul"));
    mine.slice(0, FIRST).forEach((result) => entry(list, result));
    if (mine.length <= FIRST) return;
    const more = room.appendChild(document.createElement("details"));
    more.appendChild(document.createElement("summary")).textContent = `${mine.length - FIRST} more`;
    const rest = more.appendChild(document.createElement("ul"));
    mine.slice(FIRST).forEach((result) => entry(rest, result));
  });
}

const question = (new URLSearchParams(location.search).get("q") ?? "").trim();
const field = document.querySelector(".book-search input");
field.value = question;
if (question) show(question, document.querySelector(".search-count"), document.querySelector(".search-results"));
else field.focus();
