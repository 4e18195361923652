// Conveniences on top of a page that is whole without them: filter and sort the timings, read and zoom a history.
(() => {
  "use strict";

  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const factors = { n: 1e-9, "µ": 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };

  // "15.0 µs" is 1.5e-5, "− 3.1 %" is -3.1; what holds no number comes last.
  function amount(text) {
    const found = text.replaceAll("−", "-").match(/([+-]?\d[\d.]*)\s*([^\s\d]*)/);
    if (!found) return Infinity;
    const [, number, unit] = found;
    return parseFloat(number) * (unit.length > 1 && factors[unit[0]] || 1);
  }

  function timings(table) {
    const body = make("tbody", {});
    let name = "";
    const rows = [...table.querySelectorAll("tbody tr")].map((row) => {
      const head = row.querySelector("th");
      name = head ? head.textContent : name;
      if (head) head.remove();
      row.prepend(make("th", { scope: "row", textContent: name }));
      body.append(row);
      return { row, name, text: `${row.textContent} ${row.querySelector("[title]")?.title ?? ""}`.toLowerCase() };
    });
    table.querySelectorAll("tbody").forEach((old) => old.remove());
    table.append(body);

    const field = make("input", { type: "search", placeholder: "Filter, such as: float32 slower", className: "filter" });
    const told = make("span", { className: "small" });
    field.setAttribute("aria-label", "Filter the timings by words");
    table.closest(".scroll").before(field, " ", told);

    function show() {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0, before = "";
      for (const one of rows) {
        one.row.hidden = !words.every((word) => one.text.includes(word));
        if (one.row.hidden) continue;
        shown += 1;
        one.row.cells[0].classList.toggle("again", one.name === before);
        one.row.classList.toggle("first", one.name !== before);
        before = one.name;
      }
      told.textContent = words.length ? `${shown} of ${rows.length}` : "";
    }

    [...table.tHead.rows[0].cells].forEach((head, place) => {
      if (["history", "peers"].includes(head.textContent)) return;
      const button = make("button", { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        [...head.parentNode.cells].forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (one) => one.row.cells[place].textContent;
        const compare = place < 2
          ? (a, b) => value(a).localeCompare(value(b), "en", { numeric: true })
          : (a, b) => amount(value(a)) - amount(value(b)) || 0;
        rows.sort((a, b) => (down ? -1 : 1) * compare(a, b));
        body.append(...rows.map((one) => one.row));
        show();
      });
    });
    field.addEventListener("input", show);
    show();
  }

  function history(plot) {
    const wide = plot.viewBox.baseVal.width;
    const told = make("p", { className: "small reading", textContent: "Point at a run; drag to zoom, double-click to go back." });
    plot.after(told);
    const dots = [...plot.querySelectorAll("circle")].map((dot) => ({ dot, x: +dot.getAttribute("cx") }));
    const lines = [...plot.querySelectorAll("line")].map((line) => ({ line, x: [+line.getAttribute("x1"), +line.getAttribute("x2")] }));
    const bands = [...plot.querySelectorAll("polygon")].map((band) => ({ band, points: band.getAttribute("points") }));
    let low = 0, high = wide, start = null;

    const at = (event) => {
      const box = plot.getBoundingClientRect();
      return low + ((event.clientX - box.left) / box.width) * (high - low);
    };
    const moved = (x) => (((x - low) / (high - low)) * wide).toFixed(1);
    function zoom(from, to) {
      [low, high] = [from, to];
      dots.forEach(({ dot, x }) => dot.setAttribute("cx", moved(x)));
      lines.forEach(({ line, x }) => { line.setAttribute("x1", moved(x[0])); line.setAttribute("x2", moved(x[1])); });
      bands.forEach(({ band, points }) => band.setAttribute("points", points.replace(/([\d.]+),/g, (_, x) => `${moved(+x)},`)));
    }

    plot.addEventListener("pointermove", (event) => {
      const x = at(event);
      const near = dots.reduce((best, one) => (Math.abs(one.x - x) < Math.abs(best.x - x) ? one : best));
      plot.querySelector(".on")?.classList.remove("on");
      near.dot.classList.add("on");
      told.textContent = near.dot.textContent;
    });
    plot.addEventListener("pointerdown", (event) => { start = at(event); });
    plot.addEventListener("pointerup", (event) => {
      const end = at(event);
      if (start !== null && Math.abs(end - start) > (high - low) / 40) zoom(Math.min(start, end), Math.max(start, end));
      start = null;
    });
    plot.addEventListener("dblclick", () => zoom(0, wide));
  }

  document.querySelectorAll("table.timings").forEach(timings);
  document.querySelectorAll("svg.history").forEach(history);
})();
