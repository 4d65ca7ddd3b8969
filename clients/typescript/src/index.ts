export { TracerSpanProcessor } from './processor.js'
export type { Dropped, TracerSpanProcessorOptions } from './processor.js'
