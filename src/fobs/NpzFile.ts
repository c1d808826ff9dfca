/**
 * npz files of any size: arrays are read and written one at a time, without the whole file in memory.
 *
 * Source: docs/wire/fobs.md, section 7.2.
 *
 * @since 0.1.0
 */
import { Effect, Result, Stream } from "effect"
import type { ByteSink, ByteSource } from "./ByteSource.ts"
import type { FobsError } from "./FobsError.ts"
import { checksum, makeBatcher, makeWindow, type Window } from "./internal/byteSteps.ts"
import { readDeflated, readStored } from "./internal/npzArray.ts"
import * as Member from "./internal/npzMember.ts"
import * as ZipDirectory from "./internal/ZipDirectory.ts"
import type { NdArray } from "./NdArray.ts"
import * as Npy from "./Npy.ts"
import { type DecodeOptions, defaultMaxBytes } from "./Npz.ts"

/** The directory is held in memory; 2 million arrays need less. */
const maxDirectory = 2 ** 28

const readBytes = Effect.fnUntraced(function* <E, R>(source: ByteSource<E, R>, offset: number, length: number) {
  const bytes = new Uint8Array(length)
  yield* source.readInto(offset, bytes)
  return bytes
})

const readDirectory = Effect.fnUntraced(function* <E, R>(
  source: ByteSource<E, R>,
  maxMembers: number | undefined
): Effect.fn.Return<ReadonlyArray<ZipDirectory.Entry>, FobsError | E, R> {
  const base = Math.max(0, source.size - ZipDirectory.tailLength)
  const tail = yield* readBytes(source, base, source.size - base)
  const directory = ZipDirectory.locate(tail, base)
  if (Result.isFailure(directory)) {
    const start = yield* readBytes(source, 0, Math.min(source.size, Member.longestHeader))
    return yield* Effect.fail(Member.noZip(start, directory.failure))
  }
  const { end, start } = directory.success
  if (end - start > maxDirectory) {
    return yield* Effect.fail(Member.invalid(`its directory has ${end - start} bytes, more than ${maxDirectory}`))
  }
  const bytes = start >= base ? tail.subarray(start - base, end - base) : yield* readBytes(source, start, end - start)
  return yield* Effect.fromResult(
    Result.mapError(ZipDirectory.readEntries(bytes, start, maxMembers), ({ offset, what }) =>
      Member.malformed(offset, what)
    )
  )
})

const readMember = Effect.fnUntraced(function* <E, R>(
  source: ByteSource<E, R>,
  window: Window<E, R>,
  entry: ZipDirectory.Entry,
  maxBytes: number
): Effect.fn.Return<NdArray, FobsError | E, R> {
  yield* Effect.fromResult(Member.checkEntry(entry, maxBytes))
  const missing = Member.malformed(undefined, `the bytes of member ${Member.quoted(entry.name)} are not there`)
  if (entry.offset + ZipDirectory.localLength > source.size) return yield* Effect.fail(missing)
  const local = yield* window.at(entry.offset, ZipDirectory.localLength)
  const start = ZipDirectory.dataStart(new DataView(local.buffer, local.byteOffset, local.length), entry.offset)
  if (start === undefined || start + entry.packed > source.size) return yield* Effect.fail(missing)
  return entry.method === Member.stored
    ? yield* readStored(source, window, entry, start)
    : yield* readDeflated(source, entry, start, maxBytes)
})

/**
 * The arrays of a file, each in a buffer of its own, in the order of the zip directory; that of a name that comes twice
 * comes twice. Only the directory and one array at a time are held. Sizes and checksums are checked. A long array is
 * read in steps, between which others may run.
 *
 * Fails as `Npz.decode`, and as the source does.
 *
 * @category decoding
 * @since 0.1.0
 */
export const stream = <E, R>(
  source: ByteSource<E, R>,
  options: DecodeOptions = {}
): Stream.Stream<readonly [name: string, array: NdArray], FobsError | E, R> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const entries = yield* readDirectory(source, options.maxMembers)
      const window = makeWindow(source)
      let left = options.maxBytes ?? defaultMaxBytes
      return Stream.mapEffect(Stream.fromIterable(entries), (entry) =>
        Effect.suspend(() => {
          const read = readMember(source, window, entry, left)
          left -= entry.size
          return Effect.map(read, (array) => [Member.arrayName(entry.name), array] as const)
        })
      )
    })
  )

/**
 * Writes arrays as numpy's `savez` does, byte for byte, in steps between which others may run. Array data is not
 * copied and must not change before the end; `arrays` may make them as it goes.
 *
 * Fails as `Npz.encode`, and as the sink does.
 *
 * @category encoding
 * @since 0.1.0
 */
export const write = Effect.fnUntraced(function* <E, R>(
  arrays: Iterable<readonly [name: string, array: NdArray]>,
  sink: ByteSink<E, R>
): Effect.fn.Return<void, FobsError | E, R> {
  const batcher = makeBatcher(sink)
  const members: Array<ZipDirectory.NewMember> = []
  const names = new Set<string>()
  let offset = 0
  for (const [name, array] of arrays) {
    if (names.has(name)) return yield* Effect.fromResult(Member.notEncodable(name, "the name is there twice"))
    names.add(name)
    const encoded = yield* Effect.fromResult(
      Result.mapError(Npy.encode(array), ({ message }) => Member.notEncodableError(name, message))
    )
    const crc = yield* checksum(encoded)
    const member = yield* Effect.fromResult(Member.newMember(name, encoded, crc, offset))
    const local = ZipDirectory.localHeader(member)
    members.push(member)
    for (const piece of [local, ...encoded]) yield* batcher.write(piece)
    offset += local.length + member.size
  }
  for (const piece of ZipDirectory.directory(members, offset)) yield* batcher.write(piece)
  yield* batcher.flush
})
