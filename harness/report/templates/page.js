"use strict";
// Tables sort by a click on a heading: numbers as numbers, what has none last; a second click turns the order.
function sortable(table) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const down = heading.getAttribute("aria-sort") === "ascending";
    headings.forEach(other => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[column].dataset.value;
    const compare = (a, b) => {
      if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1;
      const both = !isNaN(a) && !isNaN(b);
      return (down ? -1 : 1) * (both ? a - b : a.localeCompare(b));
    };
    const body = table.tBodies[0];
    [...body.rows].sort((a, b) => compare(key(a), key(b))).forEach(row => body.append(row));
    table.classList.add("sorted");
  }));
}
// Figures show the numbers of the point nearest to the pointer.
function hovering(picture, tip) {
  const points = JSON.parse(picture.dataset.points);
  if (!points.length) return;
  const dot = document.createElement("i");
  dot.hidden = true;
  picture.append(dot);
  const hide = () => { tip.hidden = dot.hidden = true; };
  picture.addEventListener("pointerleave", hide);
  picture.addEventListener("pointermove", event => {
    const box = picture.getBoundingClientRect();
    const far = ([x, y]) => Math.hypot(x * box.width + box.left - event.clientX, y * box.height + box.top - event.clientY);
    const nearest = points.reduce((best, point) => far(point) < far(best) ? point : best);
    if (far(nearest) > 24) return hide();
    dot.style.left = 100 * nearest[0] + "%";
    dot.style.top = 100 * nearest[1] + "%";
    tip.textContent = nearest[2];
    tip.hidden = dot.hidden = false;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + "px";
  });
}
document.querySelectorAll("table").forEach(sortable);
document.querySelectorAll(".picture").forEach(picture => hovering(picture, document.getElementById("tip")));
