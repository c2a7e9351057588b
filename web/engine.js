// The live view: reads /metrics once a second while it is shown and draws the last ten minutes.
import { headers } from "./chat.js";

const $ = (id) => document.getElementById(id);
const kept = 600;
const rows = { requests: [], tokens: [], cache: [], latency: [] };
const labels = {
  requests: ["time", "running", "waiting"],
  tokens: ["time", "generated", "prompt"],
  cache: ["time", "in use", "hit rate"],
  latency: ["time", "first token", "between tokens"],
};
const graphs = {};
let timer = null, last = null;

// Prometheus text to sums by name over all label sets; buckets are left out.
function parse(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    const name = line.slice(0, space).split("{")[0];
    if (!name.endsWith("_bucket")) sums.set(name, (sums.get(name) ?? 0) + Number(line.slice(space + 1)));
  }
  return (name) => sums.get(name) ?? 0;
}

function rate(now, before, name, seconds) {
  return before ? Math.max(0, (now(name) - before(name)) / seconds) : 0;
}

// Mean of the observations that came since the last reading, in milliseconds; null without any.
function mean(now, before, name) {
  const n = before ? now(name + "_count") - before(name + "_count") : 0;
  return n > 0 ? (1000 * (now(name + "_sum") - before(name + "_sum"))) / n : null;
}

function push(name, ...values) {
  rows[name].push([new Date(), ...values]);
  if (rows[name].length > kept) rows[name].shift();
  if (graphs[name]) {
    graphs[name].updateOptions({ file: rows[name] });
  } else {
    graphs[name] = new Dygraph($("plot-" + name), rows[name], { labels: labels[name], colors: ["#1590b8", "#d98324"], strokeWidth: 1.5, legend: "follow", axisLabelFontSize: 11, includeZero: true, connectSeparatedPoints: true });
  }
}

function figures(entries) {
  $("figures").replaceChildren(...entries.map(([term, value]) => {
    const box = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = term;
    dd.textContent = value;
    box.append(dt, dd);
    return box;
  }));
}

async function read() {
  try {
    const response = await fetch("/metrics", { headers: headers() });
    if (!response.ok) throw new Error(response.status === 401 ? "the server asks for an API key" : `the server answered ${response.status}`);
    const now = parse(await response.text()), at = performance.now();
    const before = last?.now, seconds = last ? (at - last.at) / 1000 : 1;
    const queries = before ? now("vllm:prefix_cache_queries_total") - before("vllm:prefix_cache_queries_total") : 0;
    const hits = before ? now("vllm:prefix_cache_hits_total") - before("vllm:prefix_cache_hits_total") : 0;
    const running = now("vllm:num_requests_running"), waiting = now("vllm:num_requests_waiting");
    const generated = rate(now, before, "vllm:generation_tokens_total", seconds), prompted = rate(now, before, "vllm:prompt_tokens_total", seconds);
    const used = 100 * now("vllm:kv_cache_usage_perc");
    push("requests", running, waiting);
    push("tokens", generated, prompted);
    push("cache", used, queries > 0 ? (100 * hits) / queries : null);
    push("latency", mean(now, before, "vllm:time_to_first_token_seconds"), mean(now, before, "vllm:inter_token_latency_seconds"));
    const total = now("vllm:prefix_cache_queries_total");
    figures([
      ["running", running], ["waiting", waiting], ["tokens/s", generated.toFixed(1)], ["cache in use", used.toFixed(1) + " %"],
      ["hit rate since start", total ? ((100 * now("vllm:prefix_cache_hits_total")) / total).toFixed(1) + " %" : "-"],
      ["tokens generated", now("vllm:generation_tokens_total").toLocaleString("en")],
    ]);
    last = { now, at };
    $("status").textContent = "";
  } catch (error) {
    $("status").textContent = error.message;
  }
}

document.addEventListener("view", (event) => {
  clearInterval(timer);
  if (event.detail === "engine") {
    read();
    timer = setInterval(read, 1000);
  }
});
