// Checks the specification in `spec/` with SPIN, in every state: npm run spec. Needs `spin` and a C compiler.
//
// Then each rule is left out in turn, and SPIN must find what breaks.

import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const spec = join(import.meta.dirname, '..', 'spec');
const HOLDS = /errors: 0/;

/** The models, and what SPIN says of each: nothing, or the promise that breaks. */
const RUNS = [
  ['line', [], HOLDS],
  ['line', ['RELEASE_OF_ANOTHER'], /believers==1/],
  ['line', ['REUSED_TOKEN', 'CALLERS=2', 'TRIES=2'], /believers==1/],
  ['line', ['SAME_FENCE'], /mail\[token\]>greatest/],
  ['line', ['JUMP_QUEUE'], /waits\[token\]/],
  ['line', ['NO_POLL'], /invalid end state/],
  ['quorum', ['RESTARTS=1', 'PROPOSAL=1'], HOLDS],
  ['quorum', ['RESTARTS=1', 'PROPOSAL=1', 'VOTE_AT_ONCE'], /believers==1/],
  ['quorum', ['NO_SEAL'], />greatest/],
  ['quorum', ['MAJORITY=1'], /assertion violated/],
];

if (spawnSync('spin', ['-V']).error !== undefined) {
  console.error('this needs SPIN (Debian: apt-get install spin; macOS: brew install spin)');
  process.exit(1);
}
const folder = mkdtempSync(join(tmpdir(), 'holdfast-spec-'));
let failures = 0;
try {
  cpSync(spec, folder, { recursive: true });
  for (const [model, flags, expected] of RUNS) {
    const said = check(model, flags);
    const states = /(\d+) states, stored/.exec(said)?.[1];
    const [found = 'errors: 0'] = /assertion violated.*|invalid end state \(.*/.exec(said) ?? [];
    // A search that was cut off has proved nothing.
    const right =
      expected.test(said) && states !== undefined && !/max search depth too small/.test(said);
    if (!right) failures += 1;
    console.log(`${right ? '✓' : '✗'} ${model} ${flags.join(' ')}: ${states} states, ${found}`);
  }
} finally {
  rmSync(folder, { recursive: true });
}
process.exit(failures === 0 ? 0 : 1);

function check(model, flags) {
  const options = { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'], encoding: 'utf8' };
  execFileSync('spin', [...flags.map((flag) => `-D${flag}`), '-a', `${model}.pml`], options);
  const cc = ['-O2', '-w', '-DSAFETY', '-DMEMLIM=3000', '-o', 'pan', 'pan.c'];
  execFileSync('cc', cc, options);
  return spawnSync('./pan', ['-m500000', '-w24'], options).stdout;
}
