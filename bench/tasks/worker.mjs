// One contender: many tasks of one process that want one lock, once each.

import { answer } from '../answer.mjs';
import { clock } from '../clock.mjs';
import { contenderCalled } from '../contenders.mjs';
import { NAMES } from '../names.mjs';

const { open } = contenderCalled(process.argv[2]);
const WARM_UP = { tasks: 20, ms: 300 };
let contender;

answer({
  /** Connects, and warms code and server up with what is measured then: a few tasks, again and again, on another lock. */
  async open(url) {
    contender = await open(url);
    const name = `${NAMES}${process.pid}:warm-up`;
    const end = clock() + WARM_UP.ms * 1000;
    while (clock() < end) await all(name, WARM_UP.tasks);
  },

  /**
   * Starts `tasks` at once, and as many again when all have had the lock, for `ms`. Returns how many had it, how long that
   * took, and how long the first of these bursts took, if it came to its end.
   */
  async run({ tasks, ms }) {
    const name = `${NAMES}${process.pid}:tasks`;
    const before = contender.stats?.().requests;
    const start = clock();
    const since = () => (clock() - start) / 1000;
    let done = 0;
    let first;
    const limit = new Promise((resolve) => setTimeout(resolve, ms, 'over').unref());
    let end;
    while (end !== 'over' && since() < ms) {
      end = await Promise.race([all(name, tasks, () => done++), limit]);
      if (end !== 'over') first ??= since();
    }
    const requests = contender.stats && (contender.stats().requests - before) / done;
    return { done, ms: since(), first, requests };
  },
});

function all(name, tasks, meanwhile = () => {}) {
  return Promise.all(Array.from({ length: tasks }, () => pass(name, meanwhile)));
}

async function pass(name, meanwhile) {
  const lock = await contender.ask(name);
  meanwhile();
  await contender.release(lock);
}
