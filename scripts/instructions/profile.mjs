// Reads the profiles of callgrind.

/** The parts of a process whose instructions are told apart. */
const PARTS = {
  addon: /holdfast/,
  node: /\/node$/,
  compiled: /^\?\?\?$/,
  'C library': /libc|ld-linux/,
};

/**
 * The functions of V8's compilers, and of its collector of old objects. They are left out: when they run differs from run to
 * run, and a process that lives pays for them rarely. What new objects cost is counted.
 */
const RARE = [
  /v8::internal::(?:\(anonymous namespace\)::)?(?:compiler|maglev|baseline|turboshaft|interpreter|parsing)::/,
  /Compil|Optimiz|LinearScan|RegisterAlloc|IdentityMapBase|_Rb_tree/,
  /v8::internal::\w*(?:Marking|MarkCompact|Sweep|Evacuat)|ConcurrentMarkingVisitor/,
];

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
  const files = new Map();
  const functions = new Map();
  const totals = new Map();
  let total;
  let isCall = false;
  let isRare = false;
  for (const line of profile.split('\n')) {
    const name = /^c?(ob|fn)=\((\d+)\)(?: (.*))?$/.exec(line);
    if (name !== null) {
      const [, kind, id, text] = name;
      const names = kind === 'ob' ? files : functions;
      if (text !== undefined) names.set(id, text);
      if (line.startsWith('fn=')) isRare = RARE.some((each) => each.test(functions.get(id)));
      if (line.startsWith('ob=')) total = totalOf(totals, files.get(id));
    } else if (line.startsWith('calls=')) {
      isCall = true;
    } else if (/^[\d+*-]/.test(line)) {
      if (!isCall && !isRare) add(total, line);
      isCall = false;
    }
  }
  return totals;
}

function totalOf(totals, file) {
  if (!totals.has(file)) totals.set(file, Array(9).fill(0));
  return totals.get(file);
}

function add(total, line) {
  for (const [i, cost] of line.split(' ').slice(1).entries()) total[i] += Number(cost);
}
