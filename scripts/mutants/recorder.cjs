// Writes which mistakes a process reaches into the file that a variable names, each at once: a process may be killed.

const { openSync, writeSync } = require('node:fs');

const file = process.env.MUTANTS_REACHED;
globalThis.__stryker__ ??= {};
const stryker = globalThis.__stryker__;
if (file !== undefined && stryker.reached === undefined) {
  // At once: a test may leave its process no other file to open.
  const told = openSync(file, 'a');
  const known = new Set();
  // The same ones are always reached together.
  stryker.reached = (ids) => {
    if (known.has(ids[0])) return;
    known.add(ids[0]);
    record(told, `${[...ids].join('\n')}\n`);
  };
}

/** A test may forbid a process to write files of this size. */
function record(told, text) {
  try {
    writeSync(told, text);
  } catch (error) {
    if (error.code !== 'EFBIG') throw error;
  }
}
