// The current request as a command or a program, to be repeated elsewhere. The key is a variable there, never itself.

import { safeName } from "../files/bytes.js";

/** @typedef {{task: string, files: Record<string, string>, fields: Record<string, string>, key: boolean}} Call */

/** As a shell command. @param {Call} call @param {string} root address of the page */
export function curl({ task, files, fields, key }, root) {
  const lines = [`curl ${quoted(new URL(`v1/${task}`, root).href)}`];
  if (key) lines.push('-H "Authorization: Bearer $RETOUCH_API_KEY"');
  for (const [name, file] of Object.entries(files)) lines.push(`-F ${quoted(`${name}=@${safeName(file)}`)}`);
  for (const [name, value] of Object.entries(fields)) lines.push(`-F ${quoted(`${name}=${value}`)}`);
  if (!Object.keys(files).length && !Object.keys(fields).length) lines.push("-X POST");
  return `${[...lines, "-o result.png"].join(" \\\n  ")}\n`;
}

/** As a Python program. @param {Call} call @param {string} root address of the page */
export function python({ task, files, fields, key }, root) {
  const parts = Object.entries(files).map(([name, file]) => `    ${JSON.stringify(name)}: open(${JSON.stringify(safeName(file))}, "rb"),`);
  const values = Object.entries(fields).map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  return [
    ...(key ? ["import os", ""] : []),
    "import httpx",
    "",
    "reply = httpx.post(",
    `    ${JSON.stringify(new URL(`v1/${task}`, root).href)},`,
    ...(parts.length ? ["    files={", ...parts.map((line) => `    ${line}`), "    },"] : []),
    ...(values.length ? ["    data={", ...values.map((line) => `    ${line}`), "    },"] : []),
    ...(key ? ["    headers={\"Authorization\": f\"Bearer {os.environ['RETOUCH_API_KEY']}\"},"] : []),
    "    timeout=600,",
    ")",
    "reply.raise_for_status()",
    'open("result.png", "wb").write(reply.content)',
    "",
  ].join("\n");
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
