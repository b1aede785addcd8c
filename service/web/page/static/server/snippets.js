// The current request as a command or a program that runs unchanged, with a variable in place of the key.

/** @typedef {{task: string, files: Record<string, string>, fields: Record<string, string>, key: boolean}} Call */

/** As a shell command. @param {Call} call @param {string} root address of the page */
export function curl(call, root) {
  const { task, fields, key } = call;
  const lines = [`curl --fail ${quoted(addressOf(task, root))}`];
  if (key) lines.push('-H "Authorization: Bearer $RETOUCH_API_KEY"');
  for (const [name, file] of filesOf(call)) lines.push(`-F ${quoted(name + '=@"' + file.replace(/["\\]/g, "\\$&") + '"')}`);
  for (const [name, value] of Object.entries(fields)) lines.push(`-F ${quoted(name + "=" + value)}`);
  return `${[...lines, severalOf(call) ? "-o results.json" : "-o result.png"].join(" \\\n  ")}\n`;
}

/** As a Python program. @param {Call} call @param {string} root address of the page */
export function python(call, root) {
  const { task, fields, key } = call;
  const several = severalOf(call);
  const imports = [...(several ? ["base64"] : []), ...(key ? ["os"] : [])].map((name) => `import ${name}`);
  const line = (name, value) => `        ${JSON.stringify(name)}: ${value},`;
  return [
    ...(imports.length ? [...imports, ""] : []),
    "import httpx",
    "",
    "reply = httpx.post(",
    `    ${JSON.stringify(addressOf(task, root))},`,
    "    files={", // fields too: without files httpx sends data= as another type of form
    ...filesOf(call).map(([name, file]) => line(name, `open(${JSON.stringify(file)}, "rb")`)),
    ...Object.entries(fields).map(([name, value]) => line(name, `(None, ${JSON.stringify(value)})`)),
    "    },",
    ...(key ? ["    headers={\"Authorization\": f\"Bearer {os.environ['RETOUCH_API_KEY']}\"},"] : []),
    "    timeout=600,",
    ")",
    "reply.raise_for_status()",
    ...(several
      ? ['for i, image in enumerate(reply.json()["images"]):', '    open(f"result-{i}.png", "wb").write(base64.b64decode(image["image_base64"]))']
      : ['open("result.png", "wb").write(reply.content)']),
    "",
  ].join("\n");
}

/** The files by field, without characters that a terminal would execute when the command is pasted. */
function filesOf({ files }) {
  return Object.entries(files).map(([name, file]) => [name, file.replace(/\p{Cc}/gu, "_")]);
}

/** Whether the reply is JSON with several pictures. */
function severalOf({ fields }) {
  return Number(fields.samples ?? fields.count ?? 1) > 1;
}

function addressOf(task, root) {
  return new URL(`v1/${task}`, root).href;
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
