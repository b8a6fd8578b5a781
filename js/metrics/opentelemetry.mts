// The CommonJS build is the real code.
export { type MeasureOptions, measureLocks, traceLocks } from './opentelemetry.js';
