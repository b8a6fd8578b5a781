/** Mistakes in `js/metrics`. */

const MEASURES = 'js/metrics/measures.ts';
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
    { file: MEASURES, was: '    this.#listener.lost(lost.error.reason);\n', becomes: '' },
    { file: MEASURES, was: 'manager.stats().oldestHold / 1000', becomes: '0' },
    { file: MEASURES, was: '    this.#broken++;\n', becomes: '' },
    {
      file: MEASURES,
      was: "    this.#manager.off('disconnect', this.#disconnect);\n",
      becomes: '',
      tests: ['metrics/opentelemetry'],
    },
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
