"use strict";
// Click on a column's head: sort the table by it, and at the next click the other way round.
document.addEventListener("click", (event) => {
  const head = event.target.closest && event.target.closest("th");
  if (!head || !head.querySelector("button")) return;
  const body = head.closest("table").tBodies[0];
  const down = head.getAttribute("aria-sort") !== "descending";
  const value = (row) => {
    const text = row.cells[head.cellIndex].textContent.replace(/[~,±[<]/g, "").trim();
    return text === "" || Number.isNaN(parseFloat(text)) ? text : parseFloat(text);
  };
  const order = (a, b) => {
    const [left, right] = [value(a), value(b)];
    if (typeof left === "number" && typeof right === "number") return left - right;
    if (typeof left !== typeof right) return typeof left === "number" ? 1 : -1;
    return left.localeCompare(right);
  };
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  [...body.rows].sort((a, b) => (down ? order(b, a) : order(a, b))).forEach((row) => body.append(row));
});
