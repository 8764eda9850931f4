// The JSON below /ui/api/. Errors have etcd's text.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// pauses are the milliseconds between attempts of a question that did not reach the server, or
// whose connection broke: a busy server or network loses one now and then.
const pauses = [300, 1500];

async function ask(path, init) {
  const { response, text } = await reach(`api/${path}`, { credentials: "same-origin", cache: "no-store", ...init });
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // A proxy's answer, perhaps.
  }
  if (!response.ok || body === null) {
    throw new ApiError(response.status, body?.error ?? `The server answered ${response.status} ${response.statusText}`);
  }
  return body;
}

// reach fetches. Only questions are repeated: it is not known what became of the rest.
async function reach(url, init) {
  for (let attempt = 0; ; attempt++) {
    try {
      const response = await fetch(url, init);
      return { response, text: await response.text() };
    } catch (error) {
      if (error.name === "AbortError") throw error;
      if (init.method === "POST" || attempt === pauses.length) throw new ApiError(0, "The server cannot be reached.");
    }
    await new Promise((resume) => setTimeout(resume, pauses[attempt]));
    init.signal?.throwIfAborted();
  }
}

// get asks with parameters; those that are undefined or null are left out.
export function get(path, params, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  return ask(query.size > 0 ? `${path}?${query}` : path, { signal });
}

// lines asks for lines of JSON, and calls take with each as it comes. It returns when the server ends the answer.
export async function lines(path, params, signal, take) {
  let response;
  try {
    response = await fetch(`api/${path}?${new URLSearchParams(params)}`, { credentials: "same-origin", cache: "no-store", signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (!response.ok) throw new ApiError(response.status, (await response.json().catch(() => ({}))).error ?? `The server answered ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const line of parts) take(JSON.parse(line));
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have ended
  }
}

export function post(path, body) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}) });
}
