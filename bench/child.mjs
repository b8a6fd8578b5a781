// The parent's side of a worker.

import { fork } from 'node:child_process';
import { join } from 'node:path';

const WORKER = join(import.meta.dirname, 'worker.mjs');

/** What an answer may take beyond what was asked for, before the worker counts as stuck. */
const PATIENCE_MS = 30_000;

export class Child {
  #process;

  constructor(peer) {
    this.peer = peer;
    this.#process = fork(WORKER, [peer.id]);
  }

  get pid() {
    return this.#process.pid;
  }

  open(url) {
    return this.#ask('open', url);
  }

  hold(name) {
    return this.#ask('hold', name);
  }

  free(name) {
    return this.#ask('free', name);
  }

  run(level, ms) {
    return this.#ask('run', { level, ms }, ms);
  }

  end() {
    this.#process.kill('SIGKILL');
  }

  #ask(command, argument, ms = 0) {
    const child = this.#process;
    return new Promise((resolve, reject) => {
      const settle = (error, value) => {
        clearTimeout(timer);
        child.off('message', onMessage);
        child.off('exit', onExit);
        if (error === undefined) resolve(value);
        else reject(new Error(error));
      };
      const onMessage = ({ error, value }) => settle(error, value);
      const onExit = (code, signal) => settle(`its process ended (${signal ?? `code ${code}`})`);
      const limit = ms + PATIENCE_MS;
      const timer = setTimeout(() => settle(`no answer to ${command} within ${limit} ms`), limit);
      child.on('message', onMessage);
      child.on('exit', onExit);
      // A worker that is gone is reported by its exit.
      child.send({ command, argument }, () => {});
    });
  }
}
