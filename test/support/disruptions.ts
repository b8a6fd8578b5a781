/** Processes at work that are killed and replaced, or stopped past their leases, at random. */

import type { Contender } from './crew.js';
import { now } from './history.js';
import { sleep } from './wait.js';

/** The work of the processes at one post, one after the other. */
export interface Post<T> {
  start(who: string): Promise<Contender>;
  /** Goes on until `halt`. */
  work(contender: Contender): Promise<T>;
}

export interface Disruptions<T> {
  /** When processes were killed, by their names and the clock of the history. */
  readonly deaths: Map<string, number>;
  readonly pauses: number;
  /** The results of the processes that lived to the end. */
  readonly results: T[];
}

/** Keeps a process at each post, for a time. `crew` has the live ones, also if something goes wrong. */
export async function disrupt<T>(
  crew: Contender[],
  posts: readonly Post<T>[],
  { seconds, pauseMs }: { seconds: number; pauseMs: number },
): Promise<Disruptions<T>> {
  const deaths = new Map<string, number>();
  const pauses: Promise<void>[] = [];
  const working: Promise<T>[] = [];
  const man = async (index: number) => {
    const post = posts[index] as Post<T>;
    const contender = await post.start(`p${index + 1}.${deaths.size}`);
    crew[index] = contender;
    working[index] = post.work(contender);
  };
  for (const index of posts.keys()) await man(index);
  const end = now() + seconds * 1_000_000;
  for (let event = 1; now() < end; event++) {
    await sleep(Math.random() * 800);
    const index = Math.floor(Math.random() * crew.length);
    const victim = crew[index] as Contender;
    if (event % 3 > 0) {
      pauses.push(pause(victim, pauseMs));
    } else {
      deaths.set(victim.who, now());
      await victim.kill();
      await man(index);
    }
  }
  await Promise.all(pauses);
  await Promise.all(crew.map((each) => each.order('halt')));
  return { deaths, pauses: pauses.length, results: await Promise.all(working) };
}

/** It may be killed meanwhile. */
async function pause(victim: Contender, ms: number): Promise<void> {
  await victim.pause().catch(() => {});
  await sleep(ms);
  victim.resume();
}
