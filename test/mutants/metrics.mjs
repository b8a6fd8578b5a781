/** Mistakes in `js/metrics`. */

const MEASURES = 'js/metrics/measures.ts';
const KINDS = 'js/metrics/kinds.ts';
const PROMETHEUS = 'js/metrics/prometheus.ts';
const OPENTELEMETRY = 'js/metrics/opentelemetry.ts';

export default {
  tests: ['metrics/prometheus'],
  mistakes: [
    { file: MEASURES, was: '      this.#waiting.delete(message);\n', becomes: '' },
    {
      file: MEASURES,
      was: 'return clientId === this.#manager.clientId;',
      becomes: 'return clientId !== undefined;',
    },
    {
      file: MEASURES,
      was: '    this.#attempt(() => this.#listener.lost(lost.error.reason));\n',
      becomes: '',
    },
    { file: MEASURES, was: 'manager.stats().oldestHold / 1000', becomes: '0' },
    { file: MEASURES, was: 'Number(connected)', becomes: '1' },
    { file: KINDS, was: 'this.#met.size >= KINDS_MAX', becomes: 'false' },
    { file: KINDS, was: '    this.#met.add(kind);\n', becomes: '' },
    { file: KINDS, was: ' || /\\d/.test(part)', becomes: '' },
    { file: KINDS, was: '_@#', becomes: '_#' },
    { file: KINDS, was: 'b.length - a.length', becomes: 'a.length - b.length' },
    { file: KINDS, was: ' && END_OF_KIND.test(name.slice(kind.length))', becomes: '' },
    { file: PROMETHEUS, was: 'metrics.losses.inc({ manager, reason }, 0);', becomes: '{}' },
    { file: PROMETHEUS, was: '    metrics.measured.delete(manager);\n', becomes: '' },
    {
      file: OPENTELEMETRY,
      was: '    unobserve();\n',
      becomes: '',
      tests: ['metrics/opentelemetry'],
    },
    {
      file: OPENTELEMETRY,
      was: 'losses.add(0, {',
      becomes: 'losses.add(1, {',
      tests: ['metrics/opentelemetry'],
    },
  ],
};
