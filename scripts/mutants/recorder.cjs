// Writes which mistakes a process reaches into the file that a variable names, each at once: a process may be killed.

const { appendFileSync } = require('node:fs');

const file = process.env.MUTANTS_REACHED;
globalThis.__stryker__ ??= {};
const stryker = globalThis.__stryker__;
if (file !== undefined && stryker.mutantCoverage === undefined) {
  const reached = new Set();
  const written = new Proxy(
    {},
    {
      get: () => 0,
      set: (_target, id) => {
        if (!reached.has(id)) appendFileSync(file, `${id}\n`);
        reached.add(id);
        return true;
      },
    },
  );
  stryker.mutantCoverage = { static: written, perTest: {} };
}
