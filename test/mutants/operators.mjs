/** Mistakes in `js/operators`. */

const VIEWS = 'js/operators/views/lock-views.ts';
const OBSERVER = 'js/operators/views/observer.ts';

export default {
  tests: ['views/observer'],
  mistakes: [
    { file: VIEWS, was: '$.|+()', becomes: '$|+()' },
    { file: VIEWS, was: "source.replace(/\\?/g, '.')", becomes: "source.replace(/\\?/g, '.*')" },
    { file: VIEWS, was: 'Math.max(longest, waited)', becomes: 'waited' },
    { file: VIEWS, was: '  TOKENS.set(holder, token);\n', becomes: '' },
    { file: OBSERVER, was: '    this.#exact = false;\n', becomes: '' },
    { file: OBSERVER, was: 'if (this.#exact) changes.push(...gone);', becomes: '' },
    { file: OBSERVER, was: 'Math.min(askedAt.getTime(), now)', becomes: 'askedAt.getTime()' },
    {
      file: OBSERVER,
      was: '(before?.changes ?? 0) + Number(isNew && before !== undefined)',
      becomes: '(before?.changes ?? 0) + Number(isNew)',
    },
    {
      file: OBSERVER,
      was: '        this.#seen.set(name, { ...seen, holders: [] });\n',
      becomes: '',
    },
    { file: OBSERVER, was: 'known.get(token) ?? this', becomes: 'this' },
  ],
};
