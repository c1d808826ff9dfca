import { Result } from "effect"
import type { Codec, Sections } from "../../src/fobs/Fobs.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"

/** Leaves references in what it decodes, so that its cell fetches nothing by itself. */
export const keeping = (): Codec => {
  const whole = new WeakMap<Sections, Sections>()
  return {
    ...ModelCodec.codec,
    parse: (message) =>
      Result.map(ModelCodec.codec.parse(message), (sections) => {
        const hidden = { ...sections, downloads: [] }
        whole.set(hidden, sections)
        return hidden
      }),
    decode: (message, options) =>
      ModelCodec.codec.decode(message instanceof Uint8Array ? message : (whole.get(message) ?? message), {
        ...options,
        items: "keep"
      })
  }
}
