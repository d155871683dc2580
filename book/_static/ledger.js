// The two lists above the ledger, which hide the rows of other verdicts and chapters; an address chooses, too.
document.addEventListener("DOMContentLoaded", () => {
  const box = document.querySelector(".ledger-filter"), lists = [...box.querySelectorAll("select")];
  const rows = [...document.querySelectorAll("table.claims-ledger tbody tr")];
  const show = () => {
    const chosen = lists.map((list) => list.value).filter(Boolean);
    rows.forEach((row) => { row.hidden = !chosen.every((name) => row.classList.contains(name)); });
    box.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
  };
  const follow = () => {
    const name = "is-" + location.hash.slice(1);
    if ([...lists[0].options].some((option) => option.value === name)) lists[0].value = name;
    else if (location.hash) lists.forEach((list) => { list.value = ""; });
    show();
    document.getElementById(location.hash.slice(1))?.scrollIntoView();  // it may have been hidden until now
  };
  lists.forEach((list) => list.addEventListener("change", show));
  addEventListener("hashchange", follow);
  box.hidden = false;
  follow();
});
