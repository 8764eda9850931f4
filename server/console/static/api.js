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

export function post(path, body) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}) });
}
