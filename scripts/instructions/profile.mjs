// Reads the profiles of callgrind.

/** The parts of a process whose instructions are told apart. */
const PARTS = {
  addon: /holdfast/,
  node: /\/node$/,
  compiled: /^\?\?\?$/,
  'C library': /libc|ld-linux/,
};

/** The counts of a profile, per unit of work: all instructions, those of each part, and cache misses. */
export function countsOf(profile, units) {
  const totals = costs(profile);
  const sum = (index, wanted = () => true) =>
    [...totals].reduce((all, [file, cost]) => all + (wanted(file) ? cost[index] : 0), 0) / units;
  const parts = Object.entries(PARTS).map(([part, pattern]) => [
    part,
    sum(0, (file) => pattern.test(file)),
  ]);
  const [all, codeMisses, readMisses, writeMisses] = [0, 3, 4, 5].map((index) => sum(index));
  return {
    all,
    ...Object.fromEntries(parts),
    'L1i miss': codeMisses,
    'L1d miss': readMisses + writeMisses,
  };
}

/**
 * The costs of each file's own code. A line of numbers after `calls=` is what a call cost, which its callee has counted.
 *
 * Source: <https://valgrind.org/docs/manual/cl-format.html>
 */
function costs(profile) {
  const names = new Map();
  const totals = new Map();
  let total;
  let isCall = false;
  for (const line of profile.split('\n')) {
    const object = /^c?ob=\((\d+)\)(?: (.*))?$/.exec(line);
    if (object !== null) {
      const [, id, name] = object;
      if (name !== undefined) names.set(id, name);
      const file = names.get(id);
      if (!totals.has(file)) totals.set(file, Array(9).fill(0));
      if (line.startsWith('ob=')) total = totals.get(file);
    } else if (line.startsWith('calls=')) {
      isCall = true;
    } else if (/^[\d+*-]/.test(line)) {
      if (!isCall)
        for (const [i, cost] of line.split(' ').slice(1).entries()) total[i] += Number(cost);
      isCall = false;
    }
  }
  return totals;
}
