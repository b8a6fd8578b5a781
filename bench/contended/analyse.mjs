// What the logs of all processes of a run say together.

import { percentile } from '../samples.mjs';

const LOG_LENGTH = 4;

/** The grants of all processes in their order, which is the same as that of the times they were got. */
export function merge(logs) {
  const grants = [];
  logs.forEach((log, process) => {
    for (let at = 0; at < log.length; at += LOG_LENGTH) {
      const [waiter, asked, got, given] = log.subarray(at, at + LOG_LENGTH);
      grants.push({ process, waiter, asked, got, given });
    }
  });
  return grants.sort((a, b) => a.got - b.got);
}

/** Of the grants that were got before `end`. */
export function analyse(grants, { start, end, waiters }) {
  const counted = grants.filter(({ got }) => got < end);
  const gaps = gapsOf(grants);
  const served = new Set(counted.map(({ process, waiter }) => `${process} ${waiter}`));
  const last = end === Number.POSITIVE_INFINITY ? (counted.at(-1)?.got ?? start) : end;
  return {
    perSecond: counted.length / ((last - start) / 1e6),
    waitP50: percentile(waitsOf(counted), 0.5) / 1000,
    waitMax: percentile(waitsOf(counted), 1) / 1000,
    starved: waiters - served.size,
    overlaps: [...gaps.local, ...gaps.across].filter((gap) => gap < 0).length,
    gaps,
  };
}

function waitsOf(grants) {
  return grants.map(({ asked, got }) => got - asked);
}

/** From each release to the next grant, in µs: within a process and between two. */
function gapsOf(grants) {
  const gaps = { local: [], across: [] };
  for (let at = 1; at < grants.length; at++) {
    const [before, next] = [grants[at - 1], grants[at]];
    const where = before.process === next.process ? gaps.local : gaps.across;
    where.push(next.got - before.given);
  }
  return gaps;
}
