// The CommonJS build is the real code.
export { type MeasureOptions, measureLocks } from './prometheus.js';
