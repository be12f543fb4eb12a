"use strict";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
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
// Frames take the place of the still picture and change once a second, unless the system asks for less motion.
function playing(button) {
  const article = button.closest(".artefact"), frames = all(".frame", article), calm = matchMedia("(prefers-reduced-motion: reduce)");
  let shown = 0, timer = 0;
  const show = () => frames.forEach((frame, place) => { frame.hidden = place !== shown; });
  const play = moving => {
    clearInterval(timer);
    timer = moving ? setInterval(() => { shown = (shown + 1) % frames.length; show(); }, 1000) : 0;
    button.textContent = moving ? "Pause" : "Play";
  };
  article.querySelector(".still").hidden = true;
  button.hidden = false;
  button.addEventListener("click", () => play(!timer));
  calm.addEventListener("change", () => play(!calm.matches));
  show();
  play(!calm.matches);
}
// A link to something folded opens it, and all that it is folded in.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const inner = target.matches("tr") ? target.querySelector("details") : target;
  for (let fold = inner; fold; fold = fold.parentElement) if (fold.matches("details")) fold.open = true;
  target.scrollIntoView();
}
// On paper everything is open; afterwards as it was.
function printing(paper) {
  all("main details").forEach(fold => {
    if (paper && !fold.open) fold.open = fold.dataset.opened = true;
    else if (!paper && fold.dataset.opened) { fold.open = false; delete fold.dataset.opened; }
  });
}
// The contents mark the place that is being read; on a narrow screen they are folded.
function contents(nav) {
  const fold = nav.querySelector("details"), narrow = matchMedia("(max-width: 60rem)");
  const places = all("a", nav).slice(0, -1).map(link => [link, document.getElementById(link.hash.slice(1))]);
  const mark = () => {
    const passed = places.filter(([, place]) => place.getBoundingClientRect().top < innerHeight / 5);
    const end = scrollY + innerHeight > document.documentElement.scrollHeight - 2;
    const current = end ? places[places.length - 1] : passed[passed.length - 1] || places[0];
    places.forEach(([link]) => link.toggleAttribute("aria-current", link === current[0]));
  };
  const fit = () => { fold.open = !narrow.matches; };
  nav.classList.add("live");
  nav.addEventListener("click", event => { if (event.target.matches("a")) fit(); });
  narrow.addEventListener("change", fit);
  addEventListener("scroll", mark, { passive: true });
  fit();
  mark();
}
const tip = document.getElementById("tip"), paper = matchMedia("print");
all(".sortable").forEach(sortable);
all(".picture").forEach(picture => hovering(picture, tip));
all(".player").forEach(playing);
contents(document.querySelector("nav"));
paper.addEventListener("change", () => printing(paper.matches));
addEventListener("beforeprint", () => printing(true));
addEventListener("afterprint", () => printing(false));
addEventListener("hashchange", reveal);
reveal();
