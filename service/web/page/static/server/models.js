// The models of the server, as the page offers them.

/** @typedef {{key: string, label: string, task: string, first: boolean, draws: boolean, textures: boolean, parts: {name: string, required: boolean, description: string}[]}} Model */

/** The models that can be used now, by task. @param {any} reply of GET /v1/models @returns {Record<string, Model[]>} */
export function byTask(reply) {
  const found = { inpaint: [], translate: [], generate: [] };
  for (const { name, version, state, takes, default: first } of reply.models) {
    if (state === "refused" || !takes || takes.refused) continue;
    const task = takes.endpoint.replace("/v1/", "");
    found[task]?.push({
      key: `${name}/${version}`,
      label: `${name} ${version}`,
      task,
      first,
      draws: takes.fields.some((field) => field.name === "samples" || field.name === "seed"),
      textures: takes.fields.some((field) => field.name === "texture"),
      parts: takes.parts,
    });
  }
  return found;
}
