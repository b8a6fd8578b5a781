// The options of the command line.

import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { CLUSTER } from './cluster/workload.mjs';
import { CONTENDED } from './contended/workload.mjs';
import { DELAY } from './delay/workload.mjs';
import { DROP_INS_WORKLOAD } from './dropins/workload.mjs';
import { HELD } from './held/workload.mjs';
import { LIMIT } from './limit/workload.mjs';
import { BEFORE, BEFORE_FOLDER, PEERS } from './pairs/peers.mjs';
import { PAIRS } from './pairs/workload.mjs';
import { QUORUM } from './quorum/workload.mjs';
import { SHARED } from './shared/workload.mjs';
import { TASKS_WORKLOAD } from './tasks/workload.mjs';
import { TOLD } from './told/workload.mjs';
import { WAITERS } from './waiters/workload.mjs';

const WORKLOADS = [
  PAIRS,
  LIMIT,
  DELAY,
  CONTENDED,
  TASKS_WORKLOAD,
  WAITERS,
  HELD,
  SHARED,
  CLUSTER,
  QUORUM,
  TOLD,
  DROP_INS_WORKLOAD,
];

/** For every day: shorter runs of the most important workloads, in under two minutes. */
const QUICK = {
  workloads: [PAIRS, CONTENDED, HELD, SHARED],
  rounds: 2,
  levels: [1, 64],
  ms: 200,
  sliceMs: 500,
  heldSeconds: 4,
};

export function readFlags() {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      report: { type: 'boolean', default: false },
      only: { type: 'string' },
      before: { type: 'string' },
      rounds: { type: 'string' },
      peers: { type: 'string' },
      levels: { type: 'string', default: '1,8,64,1000' },
      ms: { type: 'string', default: '400' },
      'slice-ms': { type: 'string', default: '1000' },
      'held-seconds': { type: 'string', default: '10' },
    },
  });
  const peers = choose(values.peers, PEERS, '--peers').filter(({ id, role }) =>
    id === BEFORE ? values.before !== undefined : role !== 'network',
  );
  // The processes of the participants get it from here.
  if (values.before !== undefined) process.env[BEFORE_FOLDER] = resolve(values.before);
  if (values.quick) return { ...QUICK, peers, report: values.report };
  return {
    report: values.report,
    workloads: choose(values.only, WORKLOADS, '--only'),
    /** None: each workload has a number of its own. */
    rounds: values.rounds === undefined ? undefined : count(values.rounds, '--rounds'),
    peers,
    levels: values.levels.split(',').map((level) => count(level, '--levels')),
    ms: count(values.ms, '--ms'),
    sliceMs: count(values['slice-ms'], '--slice-ms'),
    heldSeconds: count(values['held-seconds'], '--held-seconds'),
  };
}

function count(text, flag) {
  if (!/^[1-9]\d*$/.test(text)) throw new Error(`${flag} takes whole numbers from 1, got ${text}`);
  return Number(text);
}

/** Those of `items` whose ids `text` lists; all of them without a text. */
function choose(text, items, flag) {
  if (text === undefined) return items;
  return text.split(',').map((name) => {
    const item = items.find(({ id }) => id === name.trim());
    if (item !== undefined) return item;
    throw new Error(`${flag} takes ${items.map(({ id }) => `"${id}"`).join(', ')}; got "${name}"`);
  });
}
