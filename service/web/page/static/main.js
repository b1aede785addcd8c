// The script's beginning. It is one for the page and for its workers, as the server joins all modules into one file.

import { serveExports } from "./files/export_worker.js";
import { startPage } from "./page.js";

if (globalThis.document) await startPage();
else serveExports();
