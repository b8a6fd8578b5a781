// Writes which mistakes a process reaches into the file that a variable names, each at once: a process may be killed.

const { appendFileSync } = require('node:fs');

const file = process.env.MUTANTS_REACHED;
globalThis.__stryker__ ??= {};
const stryker = globalThis.__stryker__;
if (file !== undefined && stryker.mutantCoverage === undefined) {
  // Only what is not there yet is looked for in the prototype.
  const unknown = new Proxy(
    {},
    {
      get: () => 0,
      set: (_target, id, value, counts) => {
        record(`${id}\n`);
        return Reflect.defineProperty(counts, id, { value, writable: true });
      },
    },
  );
  stryker.mutantCoverage = { static: Object.create(unknown), perTest: {} };
}

/** A test may forbid a process to write files of this size. */
function record(text) {
  try {
    appendFileSync(file, text);
  } catch (error) {
    if (error.code !== 'EFBIG') throw error;
  }
}
