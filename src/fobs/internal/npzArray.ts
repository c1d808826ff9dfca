/** Reads one array out of a member of an npz file, into a buffer of its own. */
import { crc32, createInflateRaw } from "node:zlib"
import { Effect, Result } from "effect"
import type { ByteSource } from "../ByteSource.ts"
import type { FobsError } from "../FobsError.ts"
import { NdArray } from "../NdArray.ts"
import * as Npy from "../Npy.ts"
import { bufferLength, readSteps, type Window } from "./byteSteps.ts"
import * as Member from "./npzMember.ts"
import type * as ZipDirectory from "./ZipDirectory.ts"

/** A buffer for the array; a failure where the machine has no room for it. */
const allocate = (entry: ZipDirectory.Entry, length: number): Result.Result<Uint8Array, FobsError> =>
  Result.try({
    try: () => new Uint8Array(length),
    catch: () =>
      Member.invalid(`member ${Member.quoted(entry.name)} has ${length} bytes, more than there is memory for`)
  })

/** A stored member whose bytes begin at `start`, all of them within the source. */
export const readStored = Effect.fnUntraced(function* <E, R>(
  source: ByteSource<E, R>,
  window: Window<E, R>,
  entry: ZipDirectory.Entry,
  start: number
): Effect.fn.Return<NdArray, FobsError | E, R> {
  if (entry.packed !== entry.size) return yield* Effect.fail(Member.wrongLength(entry, entry.packed))
  const head = yield* window.at(start, Math.min(entry.size, Member.longestHeader))
  const { dataLength, dataOffset, dtype, order, shape } = yield* Effect.fromResult(
    Member.inMember(entry, Npy.decodeHeader(head))
  )
  if (dataLength > entry.size - dataOffset) {
    const what = `its header promises ${dataLength} bytes of data, ${entry.size - dataOffset} are there`
    return yield* Effect.fromResult(Member.inMember(entry, Result.fail(Member.malformed(undefined, what))))
  }
  const data = yield* Effect.fromResult(allocate(entry, dataLength))
  let crc = crc32(head.subarray(0, dataOffset))
  const known = head.subarray(dataOffset, Math.min(dataOffset + dataLength, head.length))
  data.set(known)
  crc = crc32(known, crc)
  const take = (bytes: Uint8Array) => {
    crc = crc32(bytes, crc)
  }
  yield* readSteps(source, start + dataOffset + known.length, data.subarray(known.length), take)
  // numpy writes nothing behind an array and ignores what is there, but the checksum counts it.
  for (let at = dataOffset + dataLength; at < entry.size; at += bufferLength) {
    take(yield* window.at(start + at, Math.min(bufferLength, entry.size - at)))
  }
  yield* Effect.fromResult(Member.checkCrc(entry, crc))
  return new NdArray(dtype, shape, data, order)
})

/** Puts the inflated bytes of a member together as they come, and takes no more than its npy header stands for. */
class Assembly {
  private readonly entry: ZipDirectory.Entry
  private readonly maxBytes: number
  private head = new Uint8Array(0)
  private array: NdArray | undefined
  private length = 0
  private crc = 0

  constructor(entry: ZipDirectory.Entry, maxBytes: number) {
    this.entry = entry
    this.maxBytes = maxBytes
  }

  /** Takes the next bytes; a failure is final. */
  push(bytes: Uint8Array): Result.Result<void, FobsError> {
    this.crc = crc32(bytes, this.crc)
    if (this.array !== undefined) return this.append(this.array, bytes)
    this.head = new Uint8Array(Buffer.concat([this.head, bytes]))
    const header = Npy.decodeHeader(this.head)
    if (Result.isSuccess(header)) return this.begin(header.success)
    return this.head.length < Member.longestHeader
      ? Result.void
      : Result.flatMap(Member.inMember(this.entry, header), () => Result.void)
  }

  end(): Result.Result<NdArray, FobsError> {
    const { array, crc, entry, head, length } = this
    if (array === undefined) return Member.inMember(entry, Npy.decode(head))
    if (length < array.byteLength) return this.refuse("its data is cut short")
    return Result.map(Member.checkCrc(entry, crc), () => array)
  }

  private begin(header: Npy.Header): Result.Result<void, FobsError> {
    return Result.flatMap(Member.checkInflated(this.entry, header, this.maxBytes), () =>
      Result.flatMap(allocate(this.entry, header.dataLength), (data) => {
        this.array = new NdArray(header.dtype, header.shape, data, header.order)
        return this.append(this.array, this.head.subarray(header.dataOffset))
      })
    )
  }

  private append({ bytes: data }: NdArray, bytes: Uint8Array): Result.Result<void, FobsError> {
    if (this.length + bytes.length > data.length) return this.refuse("it inflates to more than its header stands for")
    data.set(bytes, this.length)
    this.length += bytes.length
    return Result.void
  }

  private refuse(what: string): Result.Result<never, FobsError> {
    return Member.inMember(this.entry, Result.fail(Member.malformed(undefined, what)))
  }
}

/** zlib in another thread: what comes out goes to `take`, whose failure stops it. */
const makeInflater = (entry: ZipDirectory.Entry, take: (bytes: Uint8Array) => Result.Result<void, FobsError>) => {
  const inflate = createInflateRaw({ chunkSize: bufferLength })
  let failure = Member.malformed(undefined, `member ${Member.quoted(entry.name)}: it cannot be inflated`)
  inflate.on("error", () => undefined)
  inflate.on("data", (bytes: Uint8Array) => {
    const taken = inflate.destroyed ? Result.void : take(bytes)
    if (Result.isSuccess(taken)) return
    failure = taken.failure
    inflate.destroy(failure)
  })
  /** After an error no callback comes any more. */
  const untilDone = (run: (done: () => void) => void) =>
    Effect.callback<void, FobsError>((resume) => {
      const fail = () => resume(Effect.fail(failure))
      if (inflate.destroyed) return fail()
      inflate.once("error", fail)
      run(() => {
        inflate.off("error", fail)
        resume(Effect.void)
      })
    })
  return {
    /** `bytes` may be changed afterwards. */
    write: (bytes: Uint8Array) => untilDone((done) => inflate.write(bytes, done)),
    // Not "end": that comes early where bytes follow the last block.
    end: untilDone((done) => inflate.once("close", done).end()),
    destroy: Effect.sync(() => inflate.destroy())
  }
}

/** A deflated member whose bytes begin at `start`, all of them within the source. */
export const readDeflated = Effect.fnUntraced(function* <E, R>(
  source: ByteSource<E, R>,
  entry: ZipDirectory.Entry,
  start: number,
  maxBytes: number
): Effect.fn.Return<NdArray, FobsError | E, R> {
  const assembly = new Assembly(entry, maxBytes)
  const packed = new Uint8Array(Math.min(bufferLength, entry.packed))
  const feed = Effect.fnUntraced(function* (inflater: ReturnType<typeof makeInflater>) {
    for (let at = 0; at < entry.packed; at += packed.length) {
      const bytes = packed.subarray(0, entry.packed - at)
      yield* source.readInto(start + at, bytes)
      yield* inflater.write(bytes)
    }
    yield* inflater.end
  })
  yield* Effect.acquireUseRelease(
    Effect.sync(() => makeInflater(entry, (bytes) => assembly.push(bytes))),
    feed,
    ({ destroy }) => destroy
  )
  return yield* Effect.fromResult(assembly.end())
})
