// The live view of the engine: what /metrics says, once a second, as numbers and lines; what /server_info says, once.
import { call } from "./api.js";

const historySeconds = 120; // in a line
const byId = (id) => document.getElementById(id);

// {"vllm:num_requests_running": 2, ...}: values of the same name are added up; buckets of histograms are left out.
function parse(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    const found = /^([A-Za-z_:][\w:]*)(\{[^}]*\})? (\S+)/.exec(line);
    if (!found || found[1].endsWith("_bucket")) continue;
    values.set(found[1], (values.get(found[1]) ?? 0) + Number(found[3]));
  }
  return values;
}

// `of(now, before, seconds)`: the number to show.
const rate = (name) => (now, before, seconds) => (now.get(name) - before.get(name)) / seconds;
const level = (name) => (now) => now.get(name);
const ratio = (above, below) => (now, before) => {
  const whole = now.get(below) - before.get(below);
  return whole > 0 ? (now.get(above) - before.get(above)) / whole : null;
};
const percent = (value) => `${(100 * value).toFixed(0)} %`;
const whole = (value) => Math.round(value).toLocaleString("en");

const gaugeDefinitions = [
  { name: "Tokens computed a second", of: rate("reckoner:computed_tokens_total"), text: whole },
  { name: "Requests being answered", of: level("vllm:num_requests_running"), text: whole },
  { name: "Requests waiting", of: level("vllm:num_requests_waiting"), text: whole },
  { name: "KV cache in use", of: level("vllm:kv_cache_usage_perc"), text: percent },
  { name: "Prompt tokens found in the cache", of: ratio("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"), text: percent },
  {
    name: "Milliseconds a step",
    of: (now, before) => {
      const mean = ratio("reckoner:step_seconds_sum", "reckoner:step_seconds_count")(now, before);
      return mean === null ? null : 1000 * mean;
    },
    text: (value) => value.toFixed(1),
  },
  { name: "Preemptions so far", of: level("vllm:num_preemptions_total"), text: whole },
  { name: "Rows that were not finite so far", of: level("reckoner:non_finite_rows_total"), text: whole, bad: (value) => value > 0 },
  { name: "Resident memory, MB", of: (now) => (now.get("process_resident_memory_bytes") ?? NaN) / 1e6, text: whole },
];

class Gauge {
  constructor(definition) {
    this.definition = definition;
    this.history = [];
    this.node = document.createElement("div");
    this.node.className = "gauge";
    this.node.innerHTML = '<div class="name"></div><div class="value">–</div><svg viewBox="0 0 120 40" preserveAspectRatio="none" aria-hidden="true"><polyline></polyline></svg>';
    this.node.querySelector(".name").textContent = definition.name;
  }
  show(now, before, seconds) {
    const value = this.definition.of(now, before, seconds);
    const known = value !== null && Number.isFinite(value);
    if (known) this.node.querySelector(".value").textContent = this.definition.text(value);
    this.node.classList.toggle("bad", known && (this.definition.bad?.(value) ?? false));
    this.history.push(known ? value : this.history.at(-1) ?? 0);
    if (this.history.length > historySeconds) this.history.shift();
    const top = Math.max(...this.history, 1e-9);
    const points = this.history.map((each, at) => `${historySeconds - this.history.length + at},${38 - (36 * each) / top}`);
    this.node.querySelector("polyline").setAttribute("points", points.join(" "));
  }
}

async function showSettings() {
  const info = await (await call("/server_info")).json();
  const rows = info.settings.map((setting) => {
    const row = document.createElement("tr");
    for (const text of [setting.name, setting.value, setting.why ?? setting.source ?? ""]) {
      row.append(Object.assign(document.createElement("td"), { textContent: text }));
    }
    return row;
  });
  byId("effective").tBodies[0].replaceChildren(...rows);
}

// One row a place: its name, where its range lies between the smallest and largest of all, and the range itself.
function layerRow(place, scale) {
  const row = document.createElement("tr");
  const cell = (text) => Object.assign(document.createElement("td"), { textContent: text });
  const bar = cell("");
  const known = place.rms_low !== null && place.rms_high !== null;
  bar.innerHTML = '<div class="track"><div class="range"></div></div>';
  const range = bar.querySelector(".range");
  range.hidden = !known;
  if (known) {
    range.style.left = `${97 * scale(place.rms_low)}%`;
    range.style.right = `${97 * (1 - scale(place.rms_high))}%`;
  }
  const short = (value) => Number(value.toPrecision(3)).toString();
  const numbers = cell(known ? `${short(place.rms_low)} – ${short(place.rms_high)}` : "not finite");
  numbers.classList.toggle("bad", !known);
  row.append(cell(place.place), bar, numbers);
  return row;
}

let layersAfterStep = 0;
async function showLayers() {
  const { steps, places } = await (await call("/layers")).json();
  if (steps === layersAfterStep) return;
  layersAfterStep = steps;
  const values = places.flatMap((place) => [place.rms_low, place.rms_high]).filter((value) => value > 0);
  const low = Math.log(Math.min(...values));
  const width = Math.max(Math.log(Math.max(...values)) - low, 1e-9);
  const scale = (value) => (value > 0 ? (Math.log(value) - low) / width : 0);
  byId("layers").tBodies[0].replaceChildren(...places.map((place) => layerRow(place, scale)));
}

export function startEngine(isShown) {
  const gauges = gaugeDefinitions.map((definition) => new Gauge(definition));
  byId("gauges").append(...gauges.map((gauge) => gauge.node));
  let before = null;
  let then = 0;
  setInterval(async () => {
    if (!isShown()) return;
    try {
      const now = parse(await (await call("/metrics")).text());
      const time = performance.now();
      if (before) gauges.forEach((gauge) => gauge.show(now, before, (time - then) / 1000));
      await showLayers();
      if (!byId("effective").tBodies[0].rows.length) await showSettings();
      before = now;
      then = time;
    } catch {
      before = null; // the header says that the server cannot be reached
    }
  }, 1000);
}
