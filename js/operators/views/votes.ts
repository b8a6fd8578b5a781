/** The locks of a quorum, read from each of its servers: who has the votes of a majority. */

import type { LockManager } from '../../manager/manager.js';
import {
  freeLock,
  type HolderView,
  type LockView,
  listLocks,
  nameOf,
  tokensOf,
  type Vote,
  withLabel,
} from './lock-views.js';

/** One server of a quorum, read by itself. */
export interface QuorumServer {
  /** The server, without login. */
  readonly server: string;
  readonly locks: Pick<LockManager, 'query'>;
}

/** The answer of a server. */
interface Answer {
  readonly server: string;
  readonly views: ReadonlyMap<string, LockView>;
  readonly failure: string | null;
}

/**
 * All locks of a quorum, in order. A lock has the holder that most of the servers name, and none if no majority agrees.
 *
 * @throws the first server's error if fewer than a majority answer.
 */
export async function listVotes(servers: readonly QuorumServer[]): Promise<LockView[]> {
  const asked = await Promise.allSettled(servers.map(({ locks }) => listLocks(locks, '*')));
  const answers = asked.map((each, i): Answer => {
    const { server } = servers[i] as QuorumServer;
    if (each.status === 'rejected') {
      return { server, views: new Map(), failure: (each.reason as Error).message };
    }
    return { server, views: new Map(each.value.map((view) => [view.name, view])), failure: null };
  });
  const majority = majorityOf(servers.length);
  const failed = asked.find((each) => each.status === 'rejected');
  if (failed !== undefined && answers.filter(({ failure }) => !failure).length < majority) {
    throw failed.reason;
  }
  const names = new Set(answers.flatMap(({ views }) => [...views.keys()]));
  return [...names].sort().map((name) => counted(name, answers, majority));
}

/** How many of `count` servers are a majority. */
export function majorityOf(count: number): number {
  return Math.floor(count / 2) + 1;
}

function counted(name: string, answers: readonly Answer[], majority: number): LockView {
  const byToken = new Map<string, HolderView[]>();
  const votes = answers.map(({ server, views, failure }): Vote => {
    const found = views.get(name)?.holders[0];
    if (found === undefined) return { server, by: null, failure };
    const holder = withoutAttempt(found);
    const [token = ''] = tokensOf({ holders: [holder] });
    byToken.set(token, [...(byToken.get(token) ?? []), holder]);
    return { server, by: nameOf(holder), failure };
  });
  const elected = [...byToken.values()].find((holders) => holders.length >= majority);
  const free = freeLock(name);
  if (elected === undefined) return { ...free, votes };
  return { ...free, mode: 'exclusive', holders: [withMajority(elected, majority)], votes };
}

/** The hold lasts for as long as a majority keeps it. */
function withMajority(holders: readonly HolderView[], majority: number): HolderView {
  const rest = ({ lease }: HolderView) => lease ?? Number.POSITIVE_INFINITY;
  return [...holders].sort((a, b) => rest(b) - rest(a))[majority - 1] as HolderView;
}

/** On a quorum a token ends with the number of the attempt, which is no part of the label. */
function withoutAttempt(holder: HolderView): HolderView {
  return withLabel(holder, holder.label?.replace(/(?:^|\.)\d+$/, '') || null);
}
