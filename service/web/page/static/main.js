// Entry point, both of the page and of its workers, as the server joins all modules into one script.

import { serveExports } from "./files/export_worker.js";
import { startPage } from "./page.js";

if (globalThis.document) await startPage();
else serveExports();
