// Requests to the server that this page came from.

// The response, or an Error with the sentence that the server gives.
export async function call(path, options = {}) {
  const key = document.getElementById("key").value;
  const headers = { ...(options.headers ?? {}) };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server cannot be reached");
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = `${response.status} ${response.statusText}`;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // Not one of the server's own errors: something stands between.
  }
  throw new Error(message);
}

// The data of each event of a server-sent stream, as objects, until [DONE]; an Error when it breaks off before.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      return { done: true };
    });
    if (done) throw new Error("the connection ended before the answer did");
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      const lines = event.split("\n").filter((line) => line.startsWith("data:"));
      const data = lines.map((line) => line.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}
