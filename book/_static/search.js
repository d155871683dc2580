// Sphinx's search with chapters before other pages, and names of the API last.  On pages that are opened from a file it does not
// quote what it finds, since a browser fetches nothing there.
Scorer.score = ([page, , , , score]) =>
  score + (page.startsWith("notebooks/") ? 1000 : page.startsWith("book/api") ? -1000 : 0);
Search.status?.setAttribute("role", "status");
document.querySelector(".bd-search-container input").focus();
