// The pairs and the contended loop on networks of half a millisecond and of two, each way.

import { report as contendedReport } from '../contended/report.mjs';
import { runRounds as contend, endAll, openTeams } from '../contended/rounds.mjs';
import { CONTENDERS } from '../contenders.mjs';
import { LINGERING, PEERS, ROUND_TRIP, UNAWAITED, YARDSTICK } from '../pairs/peers.mjs';
import { record, table } from '../pairs/report.mjs';
import { openAll, runRounds } from '../pairs/rounds.mjs';
import { DELAY_TARGETS, verdict } from '../pairs/verdict.mjs';
import { showRound } from '../progress.mjs';
import { Samples } from '../samples.mjs';
import { startProxy } from '../server.mjs';

const DELAYS_MS = [0.5, 2];
/** That of the contended loop. */
const CONTENDED_MS = 0.5;
const ROUNDS = 3;
const LEVELS = [1, 64];
const PAIRS = [
  'holdfast',
  YARDSTICK,
  'ioredis EVALSHA',
  'redlock',
  'redis-semaphore',
  'redlock-universal',
  UNAWAITED,
  LINGERING,
  ROUND_TRIP,
];
const CONTENDED = ['holdfast', 'redis-semaphore', 'redlock, 10 ms retry'];

const ABOUT = `A proxy delays all data in each direction. Figures relative to the snippet. 64 callers do at most 64 pairs in the time of a
lone pair; clients that send early come near that. \`awaitRelease: false\` waits for one round trip of two, and
\`linger\` for none as long as nobody else wants the lock; \`one round trip\` is a PING.`;

const QUESTION = 'What does a network change?';

export const DELAY = { id: 'delay', question: QUESTION, about: ABOUT, run };

async function run({ url, admin, flags: { ms, sliceMs, rounds = ROUNDS }, fail }) {
  const lines = [
    `rounds: ${rounds} after a warm-up, ${ms} ms per run, ${sliceMs} ms per contended loop`,
  ];
  const tables = [];
  for (const delayMs of DELAYS_MS) {
    const proxy = await startProxy(url, delayMs);
    try {
      const uncontended = await pairs({ url: proxy.url, admin, ms, rounds, fail });
      lines.push(
        '',
        `DELAY  ${delayMs} ms each way between clients and server`,
        ...uncontended.lines,
      );
      tables.push(`${delayMs} ms each way:`, '', ...uncontended.table, '');
      if (delayMs !== CONTENDED_MS) continue;
      lines.push('', ...(await contended({ url: proxy.url, admin, ms: sliceMs, rounds, fail })));
    } finally {
      proxy.stop();
    }
  }
  return { lines, table: tables, charts: [] };
}

async function pairs({ url, admin, ms, rounds, fail }) {
  const peers = PEERS.filter(({ id }) => PAIRS.includes(id));
  const failures = new Map();
  const children = await openAll(peers, { url, admin, failures });
  const onRound = (round) => showRound('delay, pairs', round, rounds);
  try {
    const runs = await runRounds(children, {
      levels: LEVELS,
      rounds,
      ms,
      admin,
      failures,
      onRound,
    });
    for (const [id, { how, message }] of failures) fail(id, how, message);
    const samples = new Samples(runs.filter(({ id }) => !failures.has(id)));
    const tables = LEVELS.flatMap((level) => ['', ...table(peers, level, samples, failures)]);
    const lines = [...tables, '', ...verdict(samples, DELAY_TARGETS)];
    return { lines, table: record({ peers, levels: LEVELS, runs, failures }) };
  } finally {
    endAll(children);
  }
}

async function contended({ url, admin, ms, rounds, fail }) {
  const contenders = CONTENDERS.filter(({ id }) => CONTENDED.includes(id));
  const teams = await openTeams(contenders, { url, fail });
  try {
    const runs = await contend(teams, { rounds, ms, admin, fail });
    return contendedReport(CONTENDED, runs, { targets: false });
  } finally {
    for (const { children } of teams) endAll(children);
  }
}
