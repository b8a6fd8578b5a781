// The runs: each contender with all its processes at once, one contender at a time.

import { setTimeout as sleep } from 'node:timers/promises';
import { Child } from '../child.mjs';
import { clock } from '../clock.mjs';
import { NAMES } from '../names.mjs';
import { showRound } from '../progress.mjs';
import { shuffled } from '../samples.mjs';
import { analyse, merge } from './analyse.mjs';

export const PROCESSES = 4;
export const WAITERS = 25;
/** Time for a message to reach every process of a contender. */
const NOTICE_US = 20_000;
const PAUSE_MS = 50;

/** Starts the processes of each contender. Returns `{ id, sends, children }` of those that could. */
export async function openTeams(contenders, { url, fail }) {
  const teams = [];
  for (const { id, sends } of contenders) {
    const children = Array.from({ length: PROCESSES }, () => new Child('contended/worker.mjs', id));
    try {
      await Promise.all(children.map((child) => child.ask('open', url)));
      teams.push({ id, sends, children });
    } catch (error) {
      fail(id, 'cannot be loaded', error.message);
      endAll(children);
    }
  }
  return teams;
}

/** All rounds, the first one to warm up. A loop for `ms` and a burst each. */
export async function runRounds(teams, { rounds, ms, admin, fail }) {
  const runs = [];
  const failed = new Set();
  for (let round = 0; round <= rounds; round++) {
    showRound('contended', round, rounds);
    for (const team of shuffled(teams)) {
      for (const mode of ['loop', 'burst']) {
        if (failed.has(team)) continue;
        try {
          const run = await runOnce(team, { mode, ms, admin });
          if (round > 0) runs.push({ id: team.id, level: mode, round, ...run });
        } catch (error) {
          failed.add(team);
          fail(team.id, 'misbehaved', error.message);
          endAll(team.children);
        }
      }
    }
  }
  return runs;
}

async function runOnce({ id, sends, children }, { mode, ms, admin }) {
  await sleep(PAUSE_MS);
  const name = `${NAMES}${process.pid}:contended:${id}`;
  const before = await admin.commands();
  const start = clock() + NOTICE_US;
  const end = mode === 'loop' ? start + ms * 1000 : 0;
  const run = { name, waiters: WAITERS, start, end };
  const grants = merge(
    await Promise.all(children.map((child) => child.ask('contend', run, ms + NOTICE_US / 1000))),
  );
  const after = await admin.commands();
  const analysis = analyse(grants, {
    start,
    end: mode === 'loop' ? end : Number.POSITIVE_INFINITY,
    waiters: PROCESSES * WAITERS,
  });
  if (analysis.overlaps > 0)
    throw new Error(`two held the lock at once, ${analysis.overlaps} times`);
  return { ...analysis, ...commandsPer(grants.length, before, after, sends) };
}

/** The commands that clients sent, and those that ran inside of scripts. */
function commandsPer(grants, before, after, sends) {
  const deltas = Object.entries(after)
    .filter(([command]) => command !== 'info')
    .map(([command, calls]) => ({ command, calls: calls - (before[command] ?? 0) }));
  const sum = (list) => list.reduce((total, { calls }) => total + calls, 0);
  const sent = sum(deltas.filter(({ command }) => sends.includes(command)));
  return { sent: sent / grants, inside: (sum(deltas) - sent) / grants };
}

export function endAll(children) {
  for (const child of children) child.end();
}
