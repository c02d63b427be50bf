// Draws the charts of a page, and fetches the parts of it that take longer. Charts are Apache ECharts'.
"use strict";

(function () {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const palette = () => [0, 1, 2, 3, 4, 5, 6, 7].map((i) => color("--c" + i));
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  function bytes(n) {
    if (n == null) return "";
    if (Math.abs(n) < 1024) return Math.round(n) + " B";
    let unit = -1;
    do { n /= 1024; unit++; } while (Math.abs(n) >= 1024 && unit < 5);
    return Number(n.toPrecision(3)) + " " + ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit];
  }

  function short(n) {
    if (n == null) return "";
    if (Number.isInteger(n) && Math.abs(n) < 1e6) return String(n);
    return String(Number(n.toPrecision(4)));
  }

  // An axis of bytes is divided where people divide: at 1, 2 or 5 of a unit.
  function divide(axis, values) {
    const most = values.reduce((a, b) => Math.max(a, b), 1);
    let unit = 1;
    while (most / 5 / unit > 512) unit *= 1024;
    axis.interval = unit * ([1, 2, 5, 10, 20, 50, 100, 200, 500].find((n) => n * unit >= most / 5) || 1024);
    axis.max = Math.ceil(most / axis.interval) * axis.interval;
  }

  const PIN = 42; // pixels from the tip of the pin of a best value to its top
  const unit = (d) => (d.bytes ? bytes : short);

  // What all charts have. Texts are drawn on the canvas: no name in a store becomes part of the document.
  function frame(d) {
    return {
      animation: !still.matches,
      color: palette(),
      textStyle: { color: color("--front"), fontFamily: "system-ui, sans-serif" },
      grid: { left: 8, right: 36, top: 32, bottom: 8, containLabel: true },
      tooltip: {
        trigger: "axis", renderMode: "richText", confine: true,
        backgroundColor: color("--panel"), borderColor: color("--line"), textStyle: { color: color("--front") },
        valueFormatter: unit(d),
      },
      legend: { show: false, top: 0, type: "scroll", textStyle: { color: color("--front") } },
    };
  }

  function axis(extra) {
    return Object.assign({
      axisLine: { lineStyle: { color: color("--soft") } }, axisLabel: { color: color("--soft"), hideOverlap: true },
      splitLine: { lineStyle: { color: color("--line") } },
    }, extra);
  }

  const draw = {
    lines(d) {
      const o = frame(d);
      o.legend.show = d.series.length > 1;
      o.legend.top = "bottom"; // the pins of the best stand above the curves
      if (o.legend.show) o.grid.bottom = 32;
      if (d.series.some((s) => s.best)) o.grid.top = PIN + 4;
      o.xAxis = axis({ type: d.x === "time" ? "time" : "value", scale: true, name: "", splitLine: { show: false } });
      if (d.x === "step") o.xAxis.minInterval = 1; // there is no step 0.4
      o.yAxis = axis({ type: "value", scale: !d.bytes });
      o.yAxis.axisLabel.formatter = unit(d);
      if (d.bytes) divide(o.yAxis, d.series.flatMap((s) => (s.points || []).map((p) => p[1])));
      o.dataZoom = [{ type: "inside", filterMode: "none" }];
      o.series = d.series.map((s, i) => ({
        name: s.name, type: "line", data: (s.points || []).map((p) => ({ value: [p[0], p[1]], name: p[2] })),
        showSymbol: (s.points || []).length < 60, symbolSize: 5, lineStyle: { width: 1.5 }, href: s.href,
        markPoint: s.best ? {
          symbolSize: PIN, label: { formatter: () => "best", fontSize: 11, color: color("--back") },
          data: [{ coord: [s.best[0], s.best[1]], name: s.best[2] }],
        } : undefined,
        markLine: i === 0 && d.torn ? {
          silent: true, symbol: "none", label: { formatter: () => "torn", color: color("--warn") },
          lineStyle: { color: color("--warn"), type: "dashed" }, data: d.torn.map((x) => ({ xAxis: Number(x) })),
        } : undefined,
      }));
      return o;
    },

    bars(d) {
      const o = frame(d);
      o.legend.show = d.series.length > 1;
      o.tooltip.axisPointer = { type: "shadow" };
      const names = axis({ type: "category", data: d.categories });
      names.axisLabel.width = 140;
      names.axisLabel.overflow = "truncate";
      const values = axis({ type: "value" });
      values.axisLabel.formatter = unit(d);
      if (d.bytes) divide(values, d.categories.map((_, i) => d.series.reduce((sum, s) => sum + s.values[i], 0)));
      o.xAxis = d.horizontal ? values : names;
      o.yAxis = d.horizontal ? names : values;
      o.series = d.series.map((s) => ({ name: s.name, type: "bar", stack: d.series.length > 1 ? "all" : undefined, data: s.values }));
      return o;
    },

    histogram(d) {
      const o = frame(d);
      o.tooltip.formatter = (all) => {
        const i = all[0].dataIndex;
        return short(d.low + i * d.width) + " to " + short(d.low + (i + 1) * d.width) + ": " + d.counts[i].toLocaleString("en");
      };
      o.xAxis = axis({ type: "category", data: d.counts.map((_, i) => short(d.low + (i + 0.5) * d.width)) });
      o.yAxis = axis({ type: "value" });
      o.series = [{ type: "bar", data: d.counts, barCategoryGap: "5%" }];
      return o;
    },

    heat(d) {
      const o = frame(d);
      // orders of magnitude are what tells layers apart
      let low = Infinity, high = -Infinity;
      const cells = d.cells.map(([step, layer, far]) => {
        const q = new URLSearchParams({ a: "runs/" + d.run + "/" + (step ? d.steps[step - 1] : d.before), b: "runs/" + d.run + "/" + d.steps[step] });
        if (!(far > 0)) { // it changed, and not in the sample
          q.set("full", "1");
          return { value: [step, layer, 0, 0], visualMap: false, itemStyle: { color: color("--soft") }, href: "/diff?" + q };
        }
        const order = Math.log10(far);
        low = Math.min(low, order); high = Math.max(high, order);
        return { value: [step, layer, order, far], href: "/diff?" + q };
      });
      if (low > high) { low = -6; high = 0; }
      o.grid = { left: 8, right: 8, top: 8, bottom: 64, containLabel: true };
      o.tooltip.trigger = "item";
      o.tooltip.formatter = (p) => d.layers[p.value[1]] + "\nstep " + d.steps[p.value[0]] + ": " + (p.value[3] > 0 ? short(p.value[3]) : "none in the sample");
      o.xAxis = axis({ type: "category", data: d.steps, splitArea: { show: false } });
      o.yAxis = axis({ type: "category", data: d.layers, inverse: true });
      o.yAxis.axisLabel.width = 140;
      o.yAxis.axisLabel.overflow = "truncate";
      o.visualMap = {
        min: low, max: high, dimension: 2, calculable: false, orient: "horizontal", left: "center", bottom: 8, itemHeight: 160,
        text: [short(Math.pow(10, high)), short(Math.pow(10, low))], textStyle: { color: color("--front") },
        inRange: { color: [0, 1, 2, 3].map((i) => color("--h" + i)) },
      };
      o.series = [{ type: "heatmap", data: cells, progressive: 5000 }];
      return o;
    },

    // Each run has a lane, and each step a column that is wide enough for its name: a long graph is scrolled.
    graph(d, box) {
      const o = frame(d);
      const colors = palette();
      const columns = 1 + d.nodes.reduce((a, n) => Math.max(a, n.column), 0);
      const few = d.nodes.length < 200;
      const wide = Math.max(box.parentElement.clientWidth, few ? columns * 110 : 0);
      const lane = few ? 64 : 24;
      box.style.width = wide + "px";
      box.style.height = Math.max(d.runs.length, 2) * lane + 20 + "px";
      const step = wide / columns;
      o.tooltip.trigger = "item";
      o.tooltip.formatter = (p) => (p.dataType !== "edge" ? p.data.path + (p.data.href ? "" : ", removed")
        : p.data.what ? p.data.how + ": " + p.data.what : p.data.how);
      o.series = [{
        type: "graph", layout: "none", roam: !few, edgeSymbol: ["none", "arrow"], edgeSymbolSize: 7, symbolSize: 14,
        left: step / 2, right: step / 2, top: 16, bottom: lane + 4, // what is left has the shape of the steps: they stay round
        label: { show: few, position: "bottom", color: color("--front"), width: step - 12, overflow: "truncate" },
        data: d.nodes.map((n, i) => ({
          id: String(i), name: String(i), path: n.path, x: n.column * step, y: n.run * lane,
          itemStyle: n.retired ? { color: color("--line"), borderColor: color("--soft"), borderWidth: 1 } : { color: colors[n.run % colors.length] },
          label: { formatter: () => n.path.replace(/^runs\//, "") },
          href: n.retired ? "" : "/path?path=" + encodeURIComponent(n.path),
        })).concat([[0, 0], [Math.max(columns - 1, 1) * step, Math.max(d.runs.length - 1, 1) * lane]].map(([x, y], i) => ({
          // The nodes are stretched over the box: two corners that are not drawn keep a single run, or step, in its place.
          id: "corner" + i, name: "corner" + i, x, y, symbol: "none", symbolSize: 0, label: { show: false }, tooltip: { show: false },
        }))),
        edges: d.edges.map((e) => ({
          source: String(e.from), target: String(e.to), how: e.how, what: e.what,
          label: { show: few && !!e.label, formatter: () => e.label, color: color("--front"), fontSize: 11 },
          lineStyle: { opacity: 0.9, type: e.how === "step" ? "solid" : "dashed", color: e.how === "step" ? color("--soft") : color("--c1"), curveness: e.how === "step" ? 0 : 0.15 },
        })),
      }];
      return o;
    },
  };

  // What a chart shows, as the rows of a table: for those who do not see it, and the links of its points for those
  // who have no mouse. A cell is a text, or a link.
  const rows = {
    lines(d) {
      const at = new Map(); // rows by where they stand
      d.series.forEach((s, i) => (s.points || []).forEach((p) => {
        if (!at.has(p[0])) at.set(p[0], [{ text: d.x === "time" ? new Date(p[0]).toISOString().slice(0, 19).replace("T", " ") : p[2] || short(p[0]) }]);
        at.get(p[0])[i + 1] = { text: p[1] == null ? "" : unit(d)(p[1]), href: s.href && p[2] && p[1] != null ? s.href + encodeURIComponent(p[2]) : "" };
      }));
      return { head: [d.x === "time" ? "Time" : "Step"].concat(d.series.map((s) => s.name)), rows: [...at].sort((a, b) => a[0] - b[0]).map((r) => r[1]) };
    },
    bars: (d) => ({
      head: ["Name"].concat(d.series.map((s) => s.name)),
      rows: d.categories.map((c, i) => [{ text: c }].concat(d.series.map((s) => ({ text: unit(d)(s.values[i]) })))),
    }),
    histogram: (d) => ({
      head: ["From", "to", "elements"],
      rows: d.counts.map((n, i) => [{ text: short(d.low + i * d.width) }, { text: short(d.low + (i + 1) * d.width) }, { text: n.toLocaleString("en") }]),
    }),
    heat: (d) => ({
      head: ["Step", "layer", "|Δ|/|A|"],
      rows: draw.heat(d).series[0].data.map((c) => [{ text: d.steps[c.value[0]] }, { text: d.layers[c.value[1]] },
        { text: c.value[3] > 0 ? short(c.value[3]) : "none in the sample", href: c.href }]),
    }),
    graph: (d) => ({
      head: ["Run", "step", "comes from"],
      rows: d.nodes.map((n, i) => [{ text: d.runs[n.run] }, { text: n.step + (n.retired ? ", removed" : ""), href: n.retired ? "" : "/path?path=" + encodeURIComponent(n.path) },
        { text: d.edges.filter((e) => e.to === i).map((e) => d.nodes[e.from].path).join(", ") }]),
    }),
  };
  const mostRows = 2000;

  // The table unfolds, and is made then. All texts are set as text.
  function listed(figure, d) {
    let box = figure.querySelector("details");
    if (!box) {
      box = document.createElement("details");
      box.append(document.createElement("summary"));
      box.firstChild.textContent = "As a table";
      box.addEventListener("toggle", () => { if (box.open) fill(figure, box, charts.get(figure).data); });
      figure.append(box);
    } else if (box.open && !box.contains(document.activeElement)) fill(figure, box, d);
  }

  function fill(figure, box, d) {
    const of = rows[figure.dataset.kind](d);
    const make = (name, into, text) => {
      const e = document.createElement(name);
      if (text !== undefined) e.textContent = text;
      into.append(e);
      return e;
    };
    while (box.children.length > 1) box.lastChild.remove();
    const scroll = make("div", box);
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    const table = make("table", scroll);
    make("caption", table, "Data of the chart: " + figure.querySelector("figcaption").textContent).className = "hidden";
    const head = make("tr", make("thead", table));
    of.head.forEach((h, i) => {
      const th = make("th", head, h);
      th.scope = "col";
      if (i) th.className = "num";
    });
    const body = make("tbody", table);
    for (const r of of.rows.slice(0, mostRows)) {
      const tr = make("tr", body);
      for (let i = 0; i < of.head.length; i++) {
        const c = r[i] || { text: "" };
        const cell = make(i ? "td" : "th", tr);
        if (i) cell.className = "num"; else cell.scope = "row";
        if (c.href) make("a", cell, c.text).href = c.href;
        else cell.textContent = c.text;
      }
    }
    if (of.rows.length > mostRows) make("p", box, "and " + (of.rows.length - mostRows).toLocaleString("en") + " more");
  }

  const charts = new Map(); // figures to what draws them
  const seen = new IntersectionObserver((entries) => {
    for (const e of entries) {
      if (e.isIntersecting) { seen.unobserve(e.target); show(e.target); }
    }
  }, { rootMargin: "300px" });

  function show(figure) {
    if (figure.dataset.src) { poll(figure); return; }
    const data = figure.querySelector('script[type="application/json"]');
    if (data) put(figure, JSON.parse(data.textContent));
  }

  function put(figure, d) {
    const box = figure.querySelector(".canvas");
    let c = charts.get(figure);
    if (!c) {
      if (figure.dataset.kind === "graph") draw.graph(d, box); // it says how large the box is
      c = { chart: echarts.init(box, null, { renderer: "canvas" }) };
      c.chart.on("click", (p) => {
        const name = p.data && p.data.name;
        const s = c.data.series && c.data.series[p.seriesIndex];
        if (p.data && p.data.href) location.href = p.data.href;
        else if (s && s.href && name) location.href = s.href + encodeURIComponent(name);
      });
      charts.set(figure, c);
    }
    c.data = d;
    const o = draw[figure.dataset.kind](d, box);
    c.chart.resize();
    c.chart.setOption(o, true);
    listed(figure, d);
    figure.dataset.drawn = "1";
  }

  // A chart that is made while one looks is asked for until it is whole.
  async function poll(figure) {
    const says = figure.querySelector(".progress");
    while (figure.isConnected) {
      let d;
      try {
        const r = await fetch(figure.dataset.src);
        d = await r.json();
        if (!r.ok) throw new Error(d.error.message);
      } catch (e) {
        says.textContent = e.message;
        return;
      }
      if (!d.steps.length) {
        says.textContent = "There are not two complete steps yet.";
        figure.querySelector(".canvas").hidden = true;
        figure.dataset.drawn = "1";
        return;
      }
      put(figure, d);
      const some = d.every ? "" : " Of more steps than are drawn, some are compared.";
      if (d.done >= d.steps.length) {
        says.textContent = (d.cells.length ? "" : "No layer changed.") + some + (d.problem ? " " + d.problem : "");
        return;
      }
      says.textContent = d.done + " of " + d.steps.length + " steps were compared." + some;
      await new Promise((then) => setTimeout(then, 1000));
    }
  }

  // A part that is not whole yet is asked for until it is.
  async function part(where, url) {
    where.ariaBusy = "true";
    for (let had = "", again = 1; again;) {
      try {
        const r = await fetch(url, { headers: { "Ckptfs-Part": "main" } });
        const now = await r.text(); // the program's own page, with all names escaped
        again = r.ok ? Number(r.headers.get("Ckptfs-Refresh")) : 0;
        if (!where.isConnected) return;
        // what a person does there goes before what is not whole
        if (now !== had && !(again && where.contains(document.activeElement))) {
          where.innerHTML = had = now;
          tidy();
          begin(where);
        }
      } catch (e) {
        where.textContent = "It could not be fetched: " + e.message;
        again = 0;
      }
      if (again) await new Promise((then) => setTimeout(then, again * 1000));
    }
    where.removeAttribute("data-load");
    where.ariaBusy = "false";
  }

  function begin(root) {
    for (const p of root.querySelectorAll("[data-load]")) part(p, p.dataset.load);
    for (const f of root.querySelectorAll("figure.chart")) seen.observe(f);
  }

  function tidy() {
    for (const [figure, c] of charts) {
      if (!figure.isConnected) { c.chart.dispose(); charts.delete(figure); }
    }
  }

  const main = document.getElementById("main");
  begin(main);

  async function refresh() {
    const wait = Number(main.dataset.refresh);
    if (!wait) return;
    await new Promise((then) => setTimeout(then, wait * 1000));
    let r, now;
    try {
      r = await fetch(location.href, { headers: { "Ckptfs-Part": "main" } });
      now = await r.text();
    } catch (e) {
      return; // nobody answers there any more
    }
    main.dataset.refresh = r.headers.get("Ckptfs-Refresh") || "";
    document.title = decodeURIComponent(r.headers.get("Ckptfs-Title")) + " · ckptfs";
    // what a person does there goes before
    if (!main.contains(document.activeElement) || main === document.activeElement) {
      main.innerHTML = now;
      tidy();
      begin(main);
    }
    refresh();
  }
  refresh();

  addEventListener("resize", () => {
    for (const [figure, c] of charts) {
      if (figure.dataset.kind === "graph") put(figure, c.data);
      else c.chart.resize();
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const [figure, c] of charts) put(figure, c.data);
  });
})();
