// The chat: one conversation, kept in this page only. Talks to /v1/chat/completions of the server that served the page.
const $ = (id) => document.getElementById(id);
const log = $("log"), prompt = $("prompt"), stop = $("stop"), send = $("send"), status = $("status");
const messages = [];
let running = null;  // AbortController of the answer that is being made

export function headers() {
  const key = $("key").value.trim();
  return key ? { Authorization: "Bearer " + key } : {};
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function markdown(text) {
  return DOMPurify.sanitize(marked.parse(text), { FORBID_TAGS: ["style", "form", "img", "video", "audio", "iframe"], FORBID_ATTR: ["style"] });
}

function turn(role) {
  const made = element("article", "turn " + role);
  made.setAttribute("aria-label", role === "user" ? "You" : "Model");
  log.append(made);
  return made;
}

function follow() {
  if (log.scrollHeight - log.scrollTop - log.clientHeight < 160) log.scrollTop = log.scrollHeight;
}

class Answer {
  constructor() {
    this.root = turn("assistant");
    this.content = "";
    this.reasoning = "";
    this.calls = [];
    this.began = performance.now();
    this.drawn = false;
  }
  add(delta) {
    if (delta.reasoning_content) this.reasoning += delta.reasoning_content;
    if (delta.content) this.content += delta.content;
    for (const part of delta.tool_calls ?? []) {
      const call = (this.calls[part.index] ??= { id: part.id, name: "", arguments: "" });
      if (part.id) call.id = part.id;
      call.name += part.function?.name ?? "";
      call.arguments += part.function?.arguments ?? "";
    }
    if (!this.drawn) {
      this.drawn = true;
      requestAnimationFrame(() => { this.drawn = false; this.draw(); });
    }
  }
  draw() {
    if (this.reasoning) {
      if (!this.think) {
        this.think = element("details", "thinking");
        this.think.open = true;
        this.think.append(element("summary", "", "Thinking"), element("pre"));
        this.root.append(this.think);
      }
      this.think.lastChild.textContent = this.reasoning;
      if (this.content && !this.folded) { this.think.open = false; this.folded = true; }
    }
    if (this.content) {
      this.body ??= this.root.appendChild(element("div", "body"));
      this.body.innerHTML = markdown(this.content);
    }
    this.calls.forEach((call, index) => {
      call.node ??= this.root.appendChild(element("div", "tool"));
      call.node.textContent = `tool ${index + 1}: ${call.name}\n${call.arguments}`;
    });
    follow();
  }
  note(text, className = "note") {
    this.draw();
    this.root.append(element("p", className, text));
    follow();
  }
  message() {
    const made = { role: "assistant", content: this.content };
    if (this.reasoning) made.reasoning_content = this.reasoning;
    if (this.calls.length) made.tool_calls = this.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
    return made;
  }
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    for (let end; (end = buffer.indexOf("\n\n")) >= 0; buffer = buffer.slice(end + 2)) {
      const data = buffer.slice(0, end).split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

function body() {
  const made = { model: $("model").value || undefined, stream: true, stream_options: { include_usage: true } };
  made.messages = $("system").value.trim() ? [{ role: "system", content: $("system").value }, ...messages] : messages;
  made.thinking = { type: $("thinking").value };
  if (made.thinking.type === "enabled") made.reasoning_effort = $("effort").value;
  made.temperature = Number($("temperature").value);
  if ($("seed").value !== "") made.seed = Number($("seed").value);
  if ($("max-tokens").value !== "") made.max_tokens = Number($("max-tokens").value);
  return made;
}

async function ask(text) {
  messages.push({ role: "user", content: text });
  turn("user").append(element("div", "body", text));
  log.scrollTop = log.scrollHeight;
  const answer = new Answer();
  running = new AbortController();
  stop.hidden = false;
  send.hidden = true;
  let first = 0, usage = null, finish = null;
  try {
    const response = await fetch("/v1/chat/completions", { method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(body()), signal: running.signal });
    if (!response.ok) {
      const error = await response.json().catch(() => null);
      throw new Error(error?.error?.message ?? `the server answered ${response.status}`);
    }
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage ?? usage;
      const choice = event.choices?.[0];
      if (!choice) continue;
      if (!first && (choice.delta.content || choice.delta.reasoning_content || choice.delta.tool_calls)) first = performance.now();
      answer.add(choice.delta);
      finish = choice.finish_reason ?? finish;
    }
    const seconds = (performance.now() - answer.began) / 1000;
    const parts = [];
    if (usage) {
      parts.push(`${usage.completion_tokens} tokens`, `${(usage.completion_tokens / seconds).toFixed(1)} a second`);
      if (usage.prompt_cache_hit_tokens) parts.push(`${usage.prompt_cache_hit_tokens} of ${usage.prompt_tokens} prompt tokens from the cache`);
    }
    if (first) parts.push(`first after ${((first - answer.began) / 1000).toFixed(2)} s`);
    if (finish && finish !== "stop") parts.push(`ended: ${finish}`);
    answer.note(parts.join(", "));
    messages.push(answer.message());
  } catch (error) {
    if (error.name === "AbortError") {
      answer.note("stopped");
      if (answer.content || answer.reasoning) messages.push(answer.message()); else messages.pop();
    } else {
      answer.note(error.message, "error");
      messages.pop();
      prompt.value ||= text;
    }
  } finally {
    running = null;
    stop.hidden = true;
    send.hidden = false;
    prompt.focus();
  }
}

function clearChat() {
  running?.abort();
  messages.length = 0;
  log.replaceChildren();
  prompt.focus();
}

export function show(view) {
  for (const name of ["chat", "engine"]) {
    $("view-" + name).hidden = name !== view;
    $("tab-" + name).setAttribute("aria-selected", String(name === view));
    $("tab-" + name).tabIndex = name === view ? 0 : -1;
  }
  document.dispatchEvent(new CustomEvent("view", { detail: view }));
  if (view === "chat") prompt.focus();
}

function theme(next) {
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value.trim();
  if (!text || running) return;
  prompt.value = "";
  ask(text);
});
prompt.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  } else if (event.key === "ArrowUp" && prompt.value === "") {
    const last = messages.findLast((message) => message.role === "user");
    if (last) { event.preventDefault(); prompt.value = last.content; }
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  if (!event.altKey || event.ctrlKey || event.metaKey) return;
  const actions = { n: clearChat, e: () => show("engine"), c: () => show("chat"), d: () => $("theme").click() };
  const action = actions[event.key.toLowerCase()];
  if (action) { event.preventDefault(); action(); }
});
stop.addEventListener("click", () => running?.abort());
$("clear").addEventListener("click", clearChat);
$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
$("tab-chat").addEventListener("click", () => show("chat"));
$("tab-engine").addEventListener("click", () => show("engine"));
document.querySelector("nav").addEventListener("keydown", (event) => {
  if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    show($("view-chat").hidden ? "chat" : "engine");
    document.querySelector('[aria-selected="true"]').focus();
  }
});

async function models() {
  const select = $("model");
  try {
    const response = await fetch("/v1/models", { headers: headers() });
    if (!response.ok) throw new Error(response.status === 401 ? "the server asks for an API key" : `the server answered ${response.status}`);
    select.replaceChildren(...(await response.json()).data.map((model) => element("option", "", model.id)));
    status.textContent = "";
  } catch (error) {
    status.textContent = error.message;
  }
}
$("key").addEventListener("change", models);
theme(localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
models();
