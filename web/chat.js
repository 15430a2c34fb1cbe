// The chat: a conversation kept in the page, answers streamed into it, tool calls that the user answers.
import { call, events } from "./api.js";

const byId = (id) => document.getElementById(id);
let conversation = []; // messages as the API takes them; a new chat is a new array, so that a late answer cannot get into it
let running = null; // AbortController of the answer that is being written

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Keeps the end in view while `change` adds to it, unless the reader has scrolled away from it.
function followEnd(change) {
  const messages = byId("messages");
  const atEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 40;
  change();
  if (atEnd) messages.scrollTop = messages.scrollHeight;
}

function add(node) {
  byId("hint")?.remove();
  byId("messages").append(node);
  node.scrollIntoView({ block: "end" });
}

// A sentence, and the way to ask the same again, perhaps with other settings.
function addError(message) {
  const again = element("button", { type: "button", textContent: "Try again" });
  const node = element("article", { className: "error", role: "alert" }, element("p", { textContent: message }), again);
  again.addEventListener("click", () => {
    if (running) return;
    node.remove();
    byId("prompt").focus();
    answer();
  });
  add(node);
}

function numberOf(id) {
  const value = byId(id).value.trim();
  return value === "" ? undefined : Number(value);
}

// The request's body; an Error when the tools are not JSON.
function body() {
  const system = byId("system").value.trim();
  const tools = byId("tools").value.trim();
  let parsed;
  try {
    parsed = tools ? JSON.parse(tools) : undefined;
  } catch (error) {
    throw new Error(`the tools are not valid JSON: ${error.message}`);
  }
  return JSON.stringify({
    messages: system ? [{ role: "system", content: system }, ...conversation] : conversation,
    stream: true,
    stream_options: { include_usage: true },
    temperature: numberOf("temperature"),
    top_p: numberOf("top_p"),
    max_tokens: numberOf("max_tokens"),
    seed: numberOf("seed"),
    tools: parsed,
    chat_template_kwargs: { enable_thinking: byId("thinking").checked, thinking: byId("thinking").checked },
  });
}

// One answer on the page, filled as its deltas come.
class Answer {
  message = { role: "assistant", content: "" };
  reasoning = element("div");
  thought = element("details", { open: true, hidden: true }, element("summary", { textContent: "Reasoning" }), this.reasoning);
  text = element("div", { className: "busy" });
  calls = element("div");
  figures = element("span", { className: "figures" });
  node = element("article", { className: "assistant" }, this.thought, this.text, this.calls, this.figures);

  take(delta) {
    if (delta.reasoning_content) {
      this.thought.hidden = false;
      this.reasoning.textContent += delta.reasoning_content;
      this.message.reasoning_content = (this.message.reasoning_content ?? "") + delta.reasoning_content;
    }
    if (delta.content) {
      if (!this.message.content) this.thought.open = false;
      this.message.content += delta.content;
      this.text.textContent = this.message.content;
    }
    for (const part of delta.tool_calls ?? []) this.takeCall(part);
  }

  takeCall(part) {
    const calls = (this.message.tool_calls ??= []);
    const known = (calls[part.index] ??= { id: part.id, type: "function", function: { name: "", arguments: "" } });
    known.function.name += part.function?.name ?? "";
    known.function.arguments += part.function?.arguments ?? "";
    this.calls.replaceChildren(...calls.map((one) => element("div", { className: "call", textContent: `${one.function.name}(${one.function.arguments})` })));
  }

  // Lets the user say what each call returned; the model goes on when all are answered.
  askForResults(go) {
    const calls = this.message.tool_calls;
    const results = new Map();
    calls.forEach((one, index) => {
      const input = element("input", { placeholder: "What does it return? (Enter)", ariaLabel: `Result of ${one.function.name}` });
      input.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || event.isComposing || running) return;
        event.preventDefault();
        input.disabled = true;
        results.set(index, input.value);
        const next = this.calls.querySelector("input:enabled") ?? byId("prompt");
        next.focus();
        if (results.size === calls.length) go(calls.map((each, at) => ({ role: "tool", tool_call_id: each.id, content: results.get(at) })));
      });
      this.calls.children[index].append(input);
    });
    this.calls.querySelector("input").focus();
  }
}

function setRunning(controller) {
  running = controller;
  byId("stop").hidden = controller === null;
  byId("send").disabled = controller !== null;
}

async function answer() {
  const asked = conversation;
  const shown = new Answer();
  const start = performance.now();
  const controller = new AbortController();
  let usage = null;
  let complete = false;
  setRunning(controller);
  try {
    const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: body(), signal: controller.signal };
    const response = await call("/v1/chat/completions", options);
    add(shown.node);
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage ?? usage;
      if (event.choices[0]) followEnd(() => shown.take(event.choices[0].delta));
    }
    complete = true;
  } catch (error) {
    if (error.name !== "AbortError" && asked === conversation) addError(error.message);
  } finally {
    setRunning(null);
    shown.text.classList.remove("busy");
  }
  if (asked !== conversation) {
    shown.node.remove();
    return;
  }
  finish(shown, complete, usage, (performance.now() - start) / 1000);
}

function finish(shown, complete, usage, seconds) {
  const message = shown.message;
  if (!complete) delete message.tool_calls; // the last one may be half a call, which no server takes back
  if (message.content || message.tool_calls) conversation.push(message);
  followEnd(() => {
    if (usage) {
      const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
      shown.figures.textContent = `${usage.prompt_tokens} tokens read (${cached} cached), ${usage.completion_tokens} written in ${seconds.toFixed(1)} s`;
    }
    if (message.tool_calls) {
      shown.askForResults((results) => {
        conversation.push(...results);
        answer();
      });
    }
  });
}

function send(event) {
  event?.preventDefault();
  const text = byId("prompt").value.trim();
  if (!text || running) return;
  byId("prompt").value = "";
  conversation.push({ role: "user", content: text });
  add(element("article", { className: "user" }, element("span", { className: "who", textContent: "You" }), text));
  answer();
}

export function startChat() {
  byId("composer").addEventListener("submit", send);
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  });
  byId("stop").addEventListener("click", () => {
    running?.abort();
    byId("prompt").focus(); // the button goes, and the focus must be somewhere
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
  });
  byId("clear").addEventListener("click", () => {
    running?.abort();
    conversation = [];
    byId("messages").replaceChildren();
    byId("prompt").focus();
  });
}
