// Work in IndexedDB, so that a reload loses nothing: files, masks and fills of the open photographs. No key is in it.

const STORES = ["pictures", "files", "masks", "patches"];

/** @returns {Promise<IDBDatabase>} */
function opened() {
  const request = indexedDB.open("retouch", 2);
  request.addEventListener("upgradeneeded", () => {
    for (const name of [...request.result.objectStoreNames]) request.result.deleteObjectStore(name);
    for (const name of STORES) request.result.createObjectStore(name, { keyPath: "id" });
  });
  return settled(request);
}

function settled(request) {
  return new Promise((resolve, reject) => {
    request.addEventListener("success", () => resolve(request.result));
    request.addEventListener("error", () => reject(request.error));
  });
}

/** Opened once for a page. */
export class WorkStore {
  #database = null;

  async #transaction(mode, work) {
    this.#database ??= opened();
    const transaction = (await this.#database).transaction(STORES, mode);
    const done = new Promise((resolve, reject) => {
      transaction.addEventListener("complete", resolve);
      for (const type of ["abort", "error"]) transaction.addEventListener(type, () => reject(transaction.error));
    });
    const result = work((name) => transaction.objectStore(name));
    transaction.commit(); // it would otherwise wait for the page, and be lost with a page that is left
    await done;
    return result;
  }

  /** Writes records. @param {Record<string, object[]>} records by store */
  put(records) {
    return this.#transaction("readwrite", (store) => {
      for (const [name, values] of Object.entries(records)) for (const value of values) store(name).put(value);
    });
  }

  /** Removes all that is not in the set of ids; patches have ids of their own. @param {Set<string>} ids */
  async keep(ids) {
    const keys = await Promise.all(STORES.map((name) => this.#read((store) => store(name).getAllKeys())));
    await this.#transaction("readwrite", (store) => {
      STORES.forEach((name, i) => keys[i].filter((key) => !ids.has(key)).forEach((key) => store(name).delete(key)));
    });
  }

  /** Everything stored. */
  async all() {
    const [pictures, files, masks, patches] = await Promise.all(STORES.map((name) => this.#read((store) => store(name).getAll())));
    return { pictures, files, masks, patches };
  }

  async #read(ask) {
    let answer;
    await this.#transaction("readonly", (store) => (answer = ask(store)));
    return answer.result;
  }
}
