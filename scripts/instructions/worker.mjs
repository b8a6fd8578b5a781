// Runs a scenario under valgrind, and prints how many units were counted: worker.mjs SCENARIO URL UNITS

import { execFileSync } from 'node:child_process';
import { SCENARIOS } from './scenarios.mjs';

/** Units before the counted ones, per counted unit: until V8 has compiled what it runs. */
const WARM_UP = 3;

const [, , scenario, url, usual] = process.argv;
const { open, units: part = 1 } = SCENARIOS[scenario];
const units = Math.ceil(Number(usual) * part);
const run = await open(url);
await run(WARM_UP * units);
instrument('on');
const counted = await run(units);
instrument('off');
process.stdout.write(String(counted), () => process.exit());

function instrument(on) {
  execFileSync('callgrind_control', ['-i', on, String(process.pid)]);
}
