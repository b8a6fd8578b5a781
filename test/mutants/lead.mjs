/** Mistakes in `js/lead`. */

export default {
  tests: ['lead/lead'],
  mistakes: [
    {
      file: 'js/lead/lead.ts',
      was: 'if (term === undefined && wasOpen && isOver()) return;',
      becomes: 'if (isOver()) return;',
    },
    {
      file: 'js/lead/lead.ts',
      was: '(term?.lasted ?? 0) >= ttl ? 0 : nextPause(pause)',
      becomes: '0',
    },
    {
      file: 'js/lead/lead.ts',
      was: '(term?.lasted ?? 0) >= ttl ? 0 : nextPause(pause)',
      becomes: 'nextPause(pause)',
    },
    {
      file: 'js/lead/lead.ts',
      was: 'Math.min(2 * last, PAUSE_MS_MAX)',
      becomes: 'last',
    },
    {
      file: 'js/lead/lead.ts',
      was: 'await sleepUnless(pause, stop, closing);',
      becomes: 'await sleepUnless(pause, stop);',
    },
    {
      file: 'js/lead/lead.ts',
      was: 'if (!isLoss && !brokeOff) throw error;',
      becomes: 'if (!isLoss && !term.signal.aborted) throw error;',
    },
    {
      file: 'js/lead/lead.ts',
      was: 'if (!signal.aborted) return false;',
      becomes: '',
    },
    {
      file: 'js/lead/lead.ts',
      was: 'if (onError === undefined || !wasOpen) throw error;',
      becomes: 'if (onError === undefined) throw error;',
    },
    {
      file: 'js/lead/term.ts',
      was: 'if (this.#isOver) return;',
      becomes: '',
    },
    {
      file: 'js/lead/term.ts',
      was: 'const stopped = () => this.#tell(stop?.reason);',
      becomes: 'const stopped = () => {};',
    },
    {
      file: 'js/lead/options.ts',
      was: 'maxHold: Number.POSITIVE_INFINITY, linger: 0',
      becomes: 'linger: 0',
    },
    {
      file: 'js/lead/campaigns.ts',
      was: 'if (counts.callers === 0) this.#byName.delete(name);',
      becomes: '',
    },
  ],
};
