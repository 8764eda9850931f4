// The JSON below /ui/api/. Errors have etcd's text.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, init) {
  let response;
  try {
    response = await fetch(`api/${path}`, { credentials: "same-origin", cache: "no-store", ...init });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!response.ok || body === null) {
    throw new ApiError(response.status, body?.error ?? `The server answered ${response.status} ${response.statusText}`);
  }
  return body;
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
