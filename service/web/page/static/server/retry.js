// Automatic retries while the server is busy or restarts, after the time that its reply names.

import { Refusal, Unreachable } from "./api.js";

const LONGEST_WAIT_S = 900; // a longer wait is shown, and the person decides
const BACKOFF_S = [1, 2, 3, 5, 8, 10];

/**
 * Seconds until a failed call is worth repeating; null if it never is.
 * @param {Error} error @param {number} attempt 0 for the first
 */
export function retryDelay(error, attempt) {
  const backoff = BACKOFF_S[Math.min(attempt, BACKOFF_S.length - 1)];
  if (error instanceof Unreachable) return backoff;
  if (!(error instanceof Refusal)) return null;
  const repeatable = [429, 502, 503].includes(error.status) || (error.status === 504 && error.retryAfter !== null);
  if (!repeatable) return null;
  // while a server starts, Retry-After is a guess from the time it has taken, and up to twice as long as the start
  const seconds = (error.code !== "not_ready" && error.retryAfter) || backoff;
  return seconds <= LONGEST_WAIT_S ? seconds : null;
}

/**
 * Repeats a call until it succeeds, fails permanently or is cancelled.
 * @template T
 * @param {(requestId: string | null) => Promise<T>} call gets the id of the preceding refusal
 * @param {AbortSignal} signal
 * @param {(seconds: number, error: Error) => void} onWait called before each wait
 * @returns {Promise<T>}
 */
export async function withRetries(call, signal, onWait) {
  let requestId = null;
  for (let attempt = 0; ; attempt++) {
    try {
      return await call(requestId);
    } catch (error) {
      const seconds = retryDelay(error, attempt);
      if (seconds === null) throw error;
      requestId = error.requestId ?? null;
      onWait(seconds, error);
      await pause(seconds * 1000, signal);
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal.addEventListener("abort", abort, { once: true });
  });
}
