/** The two records of a claim, as they are read (docs/wire/attach.md, sections 10.1 and 10.2). */
import { Effect, Predicate, Result } from "effect"
import type { FileError } from "../../platform/FileError.ts"
import type { PrivateFiles } from "../../platform/PrivateFiles.ts"
import { parseEndpointRecord } from "../EndpointRecord.ts"
import { RecordInvalid, type RendezvousError, rendezvousError } from "../RendezvousError.ts"
import { checkPrivate, type RendezvousPaths } from "./rendezvousPaths.ts"

/** The record of a JSON object that keeps to all rules. */
export const checkRecord = (paths: RendezvousPaths, record: Readonly<Record<string, unknown>>) =>
  Effect.fromResult(
    Result.mapError(parseEndpointRecord(record, paths), ({ field, value, message }) =>
      rendezvousError(
        new RecordInvalid({ path: paths.endpoint, field, value, message: `the record ${paths.endpoint}: ${message}` })
      )
    )
  )

/** The JSON object of a private regular file; `undefined` where its content is none. */
export const readObject = Effect.fnUntraced(function* (
  files: PrivateFiles["Service"],
  path: string
): Effect.fn.Return<Readonly<Record<string, unknown>> | undefined, FileError | RendezvousError> {
  const { info, bytes } = yield* files.read(path)
  yield* checkPrivate("path", path, info, "file")
  const json = Result.try((): unknown => JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)))
  return Result.isSuccess(json) && Predicate.isObject(json.success) ? json.success : undefined
})
