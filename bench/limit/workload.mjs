// The limit of the server: a client only writes the prepared commands of a pair and awaits the replies.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { Child } from '../child.mjs';
import { NAMES } from '../names.mjs';
import { judge } from '../outcome.mjs';
import { PEERS } from '../pairs/peers.mjs';
import { showRound } from '../progress.mjs';
import { Samples, shuffled } from '../samples.mjs';
import { figure, markdown } from '../table.mjs';

const ROUNDS = 5;
const LEVEL = 64;
const PAIRS = 20_032;
const TOKEN = 'a-token-of-32-characters-{n}';
const RELEASE =
  'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';

const ABOUT = `A client writes prepared commands, ${LEVEL} in flight, and awaits the replies. holdfast adds [INCRBY and
MGET](protocol.md#plain-commands). Servers with a command that compares and deletes need no script: with Valkey 9.1 holdfast's
commands cost 0.82 of the snippet's, with Redis 8.6 0.84 and 0.87.`;

const QUESTION = 'What do the commands alone cost?';

export const LIMIT = { id: 'limit', question: QUESTION, about: ABOUT, run };

async function run({ url, admin, flags: { rounds = ROUNDS } }) {
  const kinds = [
    {
      id: 'SET and DEL',
      steps: [[['SET', '{name}', TOKEN, 'NX', 'PX', '10000']], [['DEL', '{name}']]],
    },
    {
      id: 'the hand-written snippet',
      steps: [
        [['SET', '{name}', TOKEN, 'NX', 'PX', '10000']],
        [['EVALSHA', await load(url, RELEASE), '1', '{name}', TOKEN]],
      ],
    },
    { id: "holdfast's commands", steps: await captured(url) },
  ];
  const child = new Child('limit/worker.mjs', 'limit');
  try {
    await child.ask('open', url);
    const samples = new Samples(await measureAll(child, kinds, { admin, rounds }));
    const [plain, snippet, own] = kinds.map(({ id }) => id);
    const ratio = (id, other) =>
      samples.median(id, LEVEL, 'serverCpu') / samples.median(other, LEVEL, 'serverCpu');
    const lines = [
      `LIMIT  the commands of a pair alone, ${LEVEL} in flight, without a library`,
      `rounds: ${rounds} after a warm-up, ${PAIRS} pairs per run`,
      '',
      ...kinds.map(({ id }) => line(id, samples)),
      ...(await redisBenchmark(url)),
      '',
      judge(`server CPU of a pair: ${own} to ${snippet}`, ratio(own, snippet), { unit: ' x' }),
      judge(`server CPU of a pair: ${snippet} to ${plain}`, ratio(snippet, plain), { unit: ' x' }),
    ];
    const table = markdown(
      ['', 'pairs/s', 'server CPU, µs', 'client CPU, µs', 'commands', 'bytes'],
      kinds.map(({ id }) => row(id, samples)),
    );
    return { lines, table, charts: [] };
  } finally {
    child.end();
  }
}

async function measureAll(child, kinds, { admin, rounds }) {
  const runs = [];
  for (let round = 0; round <= rounds; round++) {
    showRound('limit', round, rounds);
    for (const { id, steps } of shuffled(kinds)) {
      const before = await admin.work();
      const result = await child.ask('run', { steps, pairs: PAIRS, level: LEVEL });
      const after = await admin.work();
      const per = (what) => (after[what] - before[what]) / result.pairs;
      const costs = { serverCpu: per('cpu'), commands: per('commands'), bytes: per('bytes') };
      if (round > 0) runs.push({ id, round, level: LEVEL, ...result, ...costs });
    }
  }
  return runs;
}

function line(id, samples) {
  const value = (metric, digits = 0) => samples.median(id, LEVEL, metric).toFixed(digits);
  return [
    id.padEnd(26),
    `${value('throughput').padStart(8)} pairs/s`,
    `${value('serverCpu', 1).padStart(6)} µs server CPU`,
    `${value('clientCpu', 1).padStart(6)} µs client CPU`,
    `${value('commands', 1).padStart(5)} commands`,
    `${value('bytes').padStart(5)} bytes`,
  ].join('  ');
}

function row(id, samples) {
  const value = (metric, digits) => figure(samples.median(id, LEVEL, metric), digits);
  const cpu = [value('serverCpu', 1), value('clientCpu', 1)];
  return [id, value('throughput'), ...cpu, value('commands'), value('bytes')];
}

async function load(url, script) {
  const client = new Redis(url);
  const sha = await client.script('LOAD', script);
  client.disconnect();
  return sha;
}

/** The commands of holdfast's pair, as the server sees them, with placeholders for name and token. */
async function captured(url) {
  const probe = `${NAMES}limit:probe`;
  const pairs = [[]];
  const watcher = new Redis(url);
  const monitor = await watcher.monitor();
  monitor.on('monitor', (_time, parts, source) => {
    const isCounter = parts[0].toLowerCase() === 'incrby';
    if (source === 'lua' || !(isCounter || parts.join(' ').includes(probe))) return;
    pairs.at(-1).push(parts);
    // A command with a single key ends a pair, but for those that take the lock.
    const isRelease =
      /^(?:delifeq|delex)$/i.test(parts[0]) || (/^evalsha$/i.test(parts[0]) && parts[2] === '1');
    if (isRelease) pairs.push([]);
  });
  const own = await PEERS.find(({ role }) => role === 'own').open(url);
  // The first pair may have to bring the scripts along, and begins the counter.
  for (let turn = 0; turn < 3; turn++) await own.release(probe, await own.acquire(probe));
  await watcher.ping();
  while (pairs.length < 4) await new Promise(setImmediate);
  monitor.disconnect();
  watcher.disconnect();
  const pair = pairs.at(-2);
  const token = /hf1\.[\w-]+\.\d+/.exec(pair[0].join(' '))[0];
  const open = (part) => part.replaceAll(probe, '{name}').replaceAll(token, `${token}{n}`);
  const steps = [pair.slice(0, -1), pair.slice(-1)];
  return steps.map((step) => step.map((parts) => parts.map(open)));
}

/** Redis' own yardstick, where it is installed. */
async function redisBenchmark(url) {
  const { hostname, port } = new URL(url);
  const where = [
    '-h',
    hostname,
    '-p',
    port,
    '-c',
    '1',
    '-P',
    String(LEVEL),
    '-r',
    '10000',
    '--csv',
  ];
  const set = ['-n', '200000', 'SET', `${NAMES}__rand_int__`, 'token', 'PX', '10000'];
  try {
    const { stdout } = await promisify(execFile)('redis-benchmark', [...where, ...set]);
    const [, perSecond = '?'] = stdout.trim().split('\n').at(-1).split('","');
    return [
      `redis-benchmark, SET with PX alone: ${Math.round(Number.parseFloat(perSecond.replace('"', '')))} per second`,
    ];
  } catch {
    return ['redis-benchmark is not installed'];
  }
}
