"use strict";
(async () => {
  const unpack = async (name) => {
    const text = document.getElementById(`packed-${name}`).textContent.trim();
    const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const add = (kind, text) => {
    const element = document.createElement(kind);
    element.textContent = text;
    document.head.append(element);
  };

  // An anchor into a closed case opens it.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) reveal();
  });
  reveal();

  const data = JSON.parse(await unpack("data"));
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // Tables: those laid out are made sortable and filterable; those kept as rows are laid out page by page.
  add("style", await unpack("tables-style"));
  const source = new Blob([await unpack("tables")], { type: "text/javascript" });
  const { default: DataTable } = await import(URL.createObjectURL(source));
  const escaped = DataTable.render.text();
  const common = (rows) => ({
    order: [],
    paging: rows > 25,
    pageLength: 25,
    autoWidth: false,
    info: rows > 25,
    columnControl: rows > 5 ? { target: "thead:1", className: "", content: ["searchText"] } : [],
    layout: { topStart: rows > 25 ? "pageLength" : null, topEnd: rows > 5 ? "search" : null },
    language: { search: "Filter:", searchPlaceholder: "words" },
  });
  const make = (table, options) => {
    new DataTable(table, options);
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    for (const cell of table.tHead.rows[1]?.cells ?? [])
      for (const field of cell.querySelectorAll("input, select"))
        field.setAttribute("aria-label", `${field.tagName === "INPUT" ? "Filter" : "How to filter"}: ${names[cell.cellIndex]}`);
  };
  const sortable = (table) => {
    if (!DataTable.isDataTable(table)) make(table, common(table.tBodies[0].rows.length));
  };
  // A heading of class `number` is over a column of numbers. Where rows are linked, their first cell is the anchor of
  // a case, and the second its name.
  const link = (text, type, row) => type === "display" ? `<a href="#${row[0]}">${escaped.display(text)}</a>` : text;
  const column = (linked) => (heading, index) => ({
    data: index + linked,
    ...(heading.className === "number" ? { type: "num", className: "number" } : {}),
    render: linked && !index ? link : escaped,
  });
  const fill = (table) => {
    if (DataTable.isDataTable(table)) return;
    const rows = data.tables[table.dataset.rows];
    const linked = "linked" in table.dataset ? 1 : 0;
    const columns = [...table.tHead.rows[0].cells].map(column(linked));
    make(table, { ...common(rows.length), data: rows, columns, deferRender: true });
  };

  // Figures: drawn when they come into view, in the colours of the page.
  add("script", await unpack("plotly"));
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = (layout) => {
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line") };
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      ...layout,
      font: { color: colour("--ink"), size: 12, family: "system-ui, sans-serif" },
      xaxis: { ...axis, ...layout.xaxis },
      yaxis: { ...axis, ...layout.yaxis },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--quiet"), activecolor: colour("--ink") },
      hoverlabel: { align: "left", namelength: -1 },
    };
  };
  const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  const draw = (element) => {
    const figure = data.figures[element.dataset.figure];
    if (!figure) return;
    element.style.minWidth = `${figure.least_width || 0}px`;
    element.style.height = `${figure.layout.height}px`;
    window.Plotly.react(element, figure.data, themed(figure.layout), options);
    element.dataset.drawn = "yes";
  };
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      if (entry.target.classList.contains("plot")) draw(entry.target);
      else if (entry.target.dataset.rows) fill(entry.target);
      else sortable(entry.target);
    }
  }, { rootMargin: "200px" });

  // History: one series at a time, as a figure and as a table.
  const chooser = document.getElementById("series");
  if (chooser) {
    const show = () => {
      const { layout: layouts, series, spans } = data.timeline;
      const { platform, data: traces, rows, more } = series[chooser.value];
      const layout = layouts[platform];
      const yaxis = { ...layout.yaxis, range: spans[chooser.value] };
      data.figures.timeline = { data: traces, layout: { ...layout, yaxis } };
      const body = document.createElement("tbody");
      for (const cells of rows) {
        const row = body.insertRow();
        for (const cell of cells) row.insertCell().textContent = cell;
      }
      document.querySelector("#series-runs > tbody").replaceWith(body);
      document.getElementById("series-more").textContent = more;
    };
    chooser.addEventListener("change", () => {
      show();
      draw(document.querySelector('[data-figure="timeline"]'));
    });
    show();
  }

  const dress = () => {
    document.documentElement.classList.toggle("dark", dark.matches);
    document.querySelectorAll(".plot[data-drawn]").forEach(draw);
  };
  dark.addEventListener("change", dress);
  dress();
  document.querySelectorAll(".plot, table.sortable, table[data-rows]").forEach((element) => watch.observe(element));
  document.documentElement.dataset.ready = "yes";
})();
