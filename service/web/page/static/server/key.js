// The API key: kept for this tab alone, until it is closed; never in an address, a command or stored work.

const KEY_NAME = "retouch-api-key";

/** The key that was entered in this tab; empty if none was. */
export function currentKey() {
  return sessionStorage.getItem(KEY_NAME) ?? "";
}

export function rememberKey(key) {
  if (key) sessionStorage.setItem(KEY_NAME, key);
  else sessionStorage.removeItem(KEY_NAME);
}
