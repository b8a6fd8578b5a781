// Acquire + release of distinct names: holdfast beside what people use today, in one run.
//
//   npm run bench -- [--rounds N] [--ms N] [--only name,name] [--levels 1,64,1000]
//
// Ends with code 0 also when a target is missed: it is a report. Not when a participant fails or
// cannot be loaded, for then the comparison is incomplete.

import { readFileSync } from 'node:fs';
import { cpus, loadavg, release } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Admin } from './admin.mjs';
import { NAMES } from './measure.mjs';
import { PEERS } from './peers.mjs';
import { report } from './report.mjs';
import { openAll, runRounds } from './rounds.mjs';
import { startServer } from './server.mjs';

const { rounds, ms, peers, levels } = readFlags();
const server = await startServer();
const admin = await Admin.connect(server.url);
const failures = new Map();
console.log(await heading());
const children = await openAll(peers, { url: server.url, admin, failures });
try {
  const runs = await runRounds(children, { levels, rounds, ms, admin, failures, onRound });
  console.log(report({ peers, levels, runs, failures }));
  // Fence counters outlive their locks; a server that belongs to somebody else gets rid of them.
  if (!server.own) await admin.deleteAll(`*${NAMES}*`);
} finally {
  for (const child of children) child.end();
  admin.close();
  await server.stop();
}
process.exitCode = failures.size === 0 ? 0 : 1;

function readFlags() {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '5' },
      ms: { type: 'string', default: '400' },
      only: { type: 'string' },
      levels: { type: 'string', default: '1,64,1000' },
    },
  });
  return {
    rounds: count(values.rounds, '--rounds'),
    ms: count(values.ms, '--ms'),
    levels: values.levels.split(',').map((level) => count(level, '--levels')),
    peers: values.only === undefined ? PEERS : values.only.split(',').map(peerCalled),
  };
}

function count(text, flag) {
  if (!/^[1-9]\d*$/.test(text)) throw new Error(`${flag} takes whole numbers from 1, got ${text}`);
  return Number(text);
}

function peerCalled(name) {
  const peer = PEERS.find(({ id }) => id === name.trim());
  if (peer !== undefined) return peer;
  throw new Error(`--only takes ${PEERS.map(({ id }) => `"${id}"`).join(', ')}; got "${name}"`);
}

async function heading() {
  const [cpu] = cpus();
  const load = loadavg().map((average) => average.toFixed(2));
  const packages = [...new Set(peers.flatMap((peer) => peer.packages))];
  const versions = packages.map((name) => `${name} ${version('node_modules', name)}`);
  return [
    `Acquire + release of distinct names, ${levels.join(', ')} in flight, one server`,
    `machine   ${cpus().length} x ${cpu?.model}, ${process.platform} ${release()}, load ${load.join(' ')}`,
    `Node      ${process.version}`,
    `server    ${await admin.version()}${server.own ? ', persistence off' : ''}`,
    `versions  holdfast ${version('..')}, ${versions.join(', ')}`,
    `method    rounds: ${rounds} after a warm-up, ${ms} ms per run; each participant in its own process,`,
    '          in a new order every round. Compare the ratios: absolute numbers are of this machine,',
    '          with all that it had to do meanwhile.',
  ].join('\n');
}

function version(...path) {
  const file = join(import.meta.dirname, ...path, 'package.json');
  return JSON.parse(readFileSync(file, 'utf8')).version.replace(/^v/, '');
}

function onRound(round) {
  process.stderr.write(round === 0 ? 'warm-up' : ` ${round}/${rounds}`);
  if (round === rounds) process.stderr.write('\n');
}
