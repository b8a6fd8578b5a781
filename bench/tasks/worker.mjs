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

  /** Starts all; returns how many had the lock after `ms`, or all of them, and when that was. */
  async run({ tasks, ms }) {
    const name = `${NAMES}${process.pid}:tasks`;
    const requests = contender.stats?.().requests;
    const start = clock();
    let done = 0;
    const ended = all(name, tasks, () => done++);
    let timer;
    const limit = new Promise((resolve) => {
      timer = setTimeout(resolve, ms);
    });
    await Promise.race([ended, limit]);
    clearTimeout(timer);
    const took = (clock() - start) / 1000;
    return { done, ms: took, requests: contender.stats && contender.stats().requests - requests };
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
