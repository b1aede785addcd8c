// Preferences stored between visits: brush, modes, models and theme; no key and no picture.

const PREFERENCES = "retouch-preferences";

/** @returns {{size: number, tool: string, instant: boolean, texture: boolean, models: Record<string, string>, theme: string | null}} */
export function preferences() {
  const standard = { size: 0, tool: "brush", instant: true, texture: true, models: {}, theme: null };
  try {
    return { ...standard, ...JSON.parse(localStorage.getItem(PREFERENCES) ?? "{}") };
  } catch {
    return standard; // storage is off, or holds something else
  }
}

export function prefer(changes) {
  try {
    localStorage.setItem(PREFERENCES, JSON.stringify({ ...preferences(), ...changes }));
  } catch {
    // without storage nothing is remembered
  }
}
