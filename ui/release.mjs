// Takes a lock away from its holder, behind a question.

import { nameOf, untilOf } from './format.mjs';
import { printable } from './shared.mjs';

const at = (selector) => document.querySelector(selector);

export class Release {
  #asked;
  #note;

  /** `note` is where the outcome is told. */
  constructor(note) {
    this.#note = note;
    at('#confirm-no').addEventListener('click', () => at('#confirm').close());
    at('#confirm-yes').addEventListener('click', () => void this.#release());
  }

  /** Asks whether to release a lock as it is now. */
  ask(lock) {
    this.#asked = { name: lock.name, holdersId: lock.holdersId };
    const [title, text] = lock.holders[0]?.state === 'done' ? aboutSlot(lock) : aboutLock(lock);
    at('#confirm-title').textContent = title;
    at('#confirm-text').textContent = text;
    at('#confirm').showModal();
    at('#confirm-no').focus();
  }

  async #release() {
    at('#confirm').close();
    this.#note.textContent = 'Releasing…';
    const header = encodeURIComponent(JSON.stringify(this.#asked));
    try {
      const answer = await fetch('release', {
        method: 'POST',
        headers: { 'holdfast-release': header },
      });
      const said = await answer.json();
      this.#note.textContent = answer.ok ? 'Released.' : `Not released: ${said.detail}.`;
    } catch (error) {
      this.#note.textContent = `Not released: ${error.message}.`;
    }
  }
}

function aboutLock({ name, holders, waiters }) {
  const who = holders.map(nameOf).join(', ');
  const next = waiters.length === 0 ? '' : ' The next waiter gets it at once.';
  return [
    `Take “${printable(name)}” away from ${who}?`,
    `${who} is notified, and what it does until it has stopped is no longer protected: stop it first, if you can.${next}`,
  ];
}

function aboutSlot({ name, holders: [holder] }) {
  const result = holder.result ? ' Its result is lost.' : '';
  return [
    `Forget that “${printable(name)}” is done?`,
    `Nobody works under this lock: it is the mark of a finished slot, ${untilOf(holder)}. Without it the job runs again.${result}`,
  ];
}
