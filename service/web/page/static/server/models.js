// The models of the server, as the page offers them.

/** @typedef {{key: string, label: string, task: string, first: boolean, draws: boolean, textures: boolean, parts: {name: string, required: boolean, description: string}[]}} Model */

/** The models that can be used now, by task. @param {any} reply of GET /v1/models @returns {Record<string, Model[]>} */
export function byTask(reply) {
  const found = { inpaint: [], translate: [], generate: [] };
  const usable = reply.models.filter(({ state, takes }) => state !== "refused" && takes && !takes.refused);
  const names = new Set(usable.map(({ name }) => name));
  for (const { name, version, takes, default: first } of usable) {
    const task = takes.endpoint.replace("/v1/", "");
    found[task]?.push({
      key: `${name}/${version}`,
      label: `${merit(name, names)}${name} ${version}`,
      task,
      first,
      draws: takes.fields.some((field) => field.name === "samples" || field.name === "seed"),
      textures: takes.fields.some((field) => field.name === "texture"),
      parts: takes.parts,
    });
  }
  for (const models of Object.values(found)) models.sort((a, b) => b.first - a.first); // the server's choice begins the list
  return found;
}

/** In plain words, how a model compares with its larger or smaller one, if the server has both. */
function merit(name, names) {
  if (names.has(`${name}-large`)) return "Fast: ";
  return names.has(/(.*)-large$/.exec(name)?.[1]) ? "Better, 2 to 4 times as long: " : "";
}
