// Makes the calls that post.ts does not, with types from /openapi.json: node calls.js URL IMAGE MASK LABELS

import { argv } from "node:process";
import createClient from "openapi-fetch";
import { file, form } from "./multipart.js";
import type { components, paths } from "./schema.js";

type Job = components["schemas"]["JobReply"];

const [url, image, mask, labels] = argv.slice(2) as [string, string, string, string];
const client = createClient<paths>({ baseUrl: url });
const as_json = { Accept: "application/json" };

/** Returns the data of a reply; throws if the call failed. */
function ok<T>(reply: { data?: T; error?: { code: string; detail: string } }): NonNullable<T> {
  if (reply.error !== undefined) throw new Error(`${reply.error.code}: ${reply.error.detail}`);
  return reply.data as NonNullable<T>;
}

const translated = ok(
  await client.POST("/v1/translate", {
    body: { image: await file(labels), format: "webp", quality: 80, save: false },
    bodySerializer: form,
    parseAs: "arrayBuffer",
  }),
) as unknown as ArrayBuffer;

const generated = ok(
  await client.POST("/v1/generate", {
    params: { header: { "X-Priority": "high", "Idempotency-Key": "calls.ts" } },
    body: { model: "faces", count: 3, seed: 7 },
    bodySerializer: form,
    headers: as_json,
  }),
) as components["schemas"]["ImagesReply"];

const submitted = ok(
  await client.POST("/v1/inpaint", {
    params: { header: { Prefer: "respond-async" } },
    body: { image: await file(image), mask: await file(mask), mask_mode: "white" },
    bodySerializer: form,
  }),
) as Job;
let job: Job = submitted;
while (job.status === "queued" || job.status === "running") {
  await new Promise((resolve) => setTimeout(resolve, 50));
  job = ok(await client.GET("/v1/jobs/{job_id}", { params: { path: { job_id: job.id } } }));
}
const after_its_end = ok(await client.DELETE("/v1/jobs/{job_id}", { params: { path: { job_id: job.id } } }));

const path = { result_id: job.result_url?.split("/").pop() ?? "" };
const stored = ok(await client.GET("/v1/results/{result_id}", { params: { path }, parseAs: "arrayBuffer" }));
const sidecar = ok(await client.GET("/v1/results/{result_id}", { params: { path }, headers: as_json }));
const missing = await client.GET("/v1/results/{result_id}", { params: { path: { result_id: "0".repeat(32) } } });

const { models } = ok(await client.GET("/v1/models"));
const ready = await client.GET("/readyz");

console.log(
  JSON.stringify({
    translated: new TextDecoder("latin1").decode(translated.slice(8, 12)),
    generated: generated.images.map((one) => one.image_base64.length > 0),
    seed: generated.seed,
    job: [submitted.status, job.status, after_its_end.status],
    stored: new TextDecoder("latin1").decode((stored as unknown as ArrayBuffer).slice(1, 4)),
    sidecar: (sidecar as Record<string, unknown>)["model"],
    missing: missing.error?.code,
    models: models.map((model) => `${model.name}: ${model.takes?.endpoint}`),
    ready: ready.data?.status,
  }),
);
