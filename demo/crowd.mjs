// The buyers: several processes (buyers.mjs), each with its share of them.

import { fork } from 'node:child_process';
import { once } from 'node:events';

const PROGRAM = new URL('./buyers.mjs', import.meta.url);

export class Crowd {
  #processes;

  constructor(processes) {
    // Detached: Ctrl-C must not end them before they gave back their locks. They end when this
    // process disconnects from them or has ended.
    this.#processes = Array.from({ length: processes }, () => fork(PROGRAM, { detached: true }));
  }

  get description() {
    return `in ${this.#processes.length} processes`;
  }

  /** Connects every process to the server. */
  async connect(details) {
    await Promise.all(this.#processes.map((child) => ask(child, { job: 'connect', ...details })));
  }

  /**
   * Lets `buyers` buyers come, evenly spread over `rushMs`, and resolves when each has an answer.
   * `onAnswer` gets every answer at once.
   */
  async shop({ buyers, rushMs, prefix, withLock }, onAnswer) {
    const shares = shareOut(buyers, rushMs, this.#processes.length);
    await Promise.all(
      this.#processes.map((child, k) =>
        ask(child, { job: 'sale', visits: shares[k], prefix, withLock }, onAnswer),
      ),
    );
  }

  /** Disconnects from the processes. They release their locks and end. */
  async leave() {
    await Promise.all(
      this.#processes.map(async (child) => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const gone = once(child, 'exit');
        if (child.connected) child.disconnect();
        await gone;
      }),
    );
  }
}

/** The arrival times of the buyers, one share for each process. */
export function shareOut(buyers, rushMs, count) {
  const shares = Array.from({ length: count }, () => []);
  for (let n = 0; n < buyers; n++) {
    const buyer = `buyer-${String(n + 1).padStart(String(buyers).length, '0')}`;
    shares[n % count].push({ buyer, after: (rushMs * n) / buyers });
  }
  return shares;
}

/** Gives a process a job and waits until it is done. */
function ask(child, job, onAnswer) {
  return new Promise((resolve, reject) => {
    const onExit = (code, signal) => {
      reject(new Error(`a process of buyers ended early (${signal ?? `exit code ${code}`})`));
    };
    const onMessage = ({ answer, error }) => {
      if (answer !== undefined) return onAnswer(answer);
      child.off('message', onMessage);
      child.off('exit', onExit);
      if (error === undefined) resolve();
      else reject(new Error(error));
    };
    child.on('message', onMessage);
    child.on('exit', onExit);
    child.send(job);
  });
}
