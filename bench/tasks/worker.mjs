// One contender: many tasks of one process that want one lock, once each.

import { answer } from '../answer.mjs';
import { clock } from '../clock.mjs';
import { contend } from '../contended/contend.mjs';
import { contenderCalled } from '../contenders.mjs';
import { NAMES } from '../names.mjs';

const { open } = contenderCalled(process.argv[2]);
const WARM_UP = { waiters: 20, ms: 300 };
let contender;

answer({
  /** Connects, and warms code and server up with a few tasks that want another lock. */
  async open(url) {
    contender = await open(url);
    const name = `${NAMES}${process.pid}:warm-up`;
    const start = clock();
    await contend(contender, {
      name,
      waiters: WARM_UP.waiters,
      start,
      end: start + WARM_UP.ms * 1000,
    });
  },

  /** Starts all; returns how many had the lock after `ms`, or all of them, and when that was. */
  async run({ tasks, ms }) {
    const name = `${NAMES}${process.pid}:tasks`;
    const requests = contender.stats?.().requests;
    const start = clock();
    let done = 0;
    const all = Array.from({ length: tasks }, () => pass(name, () => done++));
    let timer;
    const limit = new Promise((resolve) => {
      timer = setTimeout(resolve, ms);
    });
    await Promise.race([Promise.all(all), limit]);
    clearTimeout(timer);
    const took = (clock() - start) / 1000;
    return { done, ms: took, requests: contender.stats && contender.stats().requests - requests };
  },
});

async function pass(name, meanwhile) {
  const lock = await contender.ask(name);
  meanwhile();
  await contender.release(lock);
}
