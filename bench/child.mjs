// The parent's side of a worker: a participant in a process of its own, so that its memory and its
// threads burden no other.

import { fork } from 'node:child_process';
import { join } from 'node:path';

/** The time beyond the requested work after which a worker without an answer counts as stuck. */
const PATIENCE_MS = 30_000;

export class Child {
  #process;

  /** `worker`: its file, relative to this one. */
  constructor(worker, id, execArgv = []) {
    this.id = id;
    this.#process = fork(join(import.meta.dirname, worker), [id], {
      execArgv,
      serialization: 'advanced',
    });
  }

  get pid() {
    return this.#process.pid;
  }

  end() {
    this.#process.kill('SIGKILL');
  }

  /** Runs the worker's `command` and returns its result. `ms`: the expected duration. */
  ask(command, argument, ms = 0) {
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
