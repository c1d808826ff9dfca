import { readFileSync } from "node:fs"
import { gunzipSync } from "node:zlib"
import { assert } from "@effect/vitest"
import { Effect, Metric, Scope } from "effect"
import type { Cell, CellOptions, CellReply, CellRequest } from "../../src/cell/Cell.ts"
import type { CellEngine } from "../../src/cell/internal/CellEngine.ts"
import { downloadAddress } from "../../src/cell/internal/downloadWire.ts"
import type { Download, ReferenceSink } from "../../src/fobs/Fobs.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import type { NetworkOptions } from "../../src/transport/MemoryDriver.ts"
import { makeFamily, makeWorld, settle, until } from "./support.ts"

export { downloadAddress }

/** The first whole numbers as float32, as the recorded probe used them. */
export const range = (count: number): NdArray => NdArray.fromTyped(Float32Array.from({ length: count }, (_, i) => i))

/** Runs a test body, and looks what it left behind: no fiber (and so no timer) may live on. */
export const clean = <A, E>(body: Effect.Effect<A, E, Scope.Scope>): Effect.Effect<void, E> =>
  Effect.suspend(() => {
    let live = 0
    const count: Metric.FiberRuntimeMetricsService = {
      recordFiberStart: () => {
        live += 1
      },
      recordFiberEnd: () => {
        live -= 1
      }
    }
    return Effect.scoped(body).pipe(
      Effect.provideService(Metric.FiberRuntimeMetrics, count),
      Effect.andThen(settle),
      Effect.andThen(Effect.sync(() => assert.strictEqual(live, 0, "fibers live on")))
    )
  })

const leavesNothing = (engines: ReadonlyArray<CellEngine>) =>
  Effect.addFinalizer(() =>
    Effect.sync(() => {
      for (const { cell, downloads } of engines) {
        assert.deepStrictEqual(downloads.inUse(), { offered: 0, fetched: 0 }, cell.fqcn)
      }
    })
  )

/** A parent and two children, as in support.ts; when they have closed, nothing must be on offer or under way. */
export const family = Effect.fnUntraced(function* (options: Parameters<typeof makeFamily>[0] = {}) {
  const engines: Array<CellEngine> = []
  yield* leavesNothing(engines)
  const made = yield* makeFamily(options)
  engines.push(made.parent, made.job, made.trainer)
  return made
})

/** A server and a site that has connected to it, as in the recorded exchanges. */
export const duo = Effect.fnUntraced(function* (
  options: {
    readonly server?: Partial<CellOptions>
    readonly site?: Partial<CellOptions>
    readonly network?: NetworkOptions
    /** The connections outlive what the server builds on them. */
    readonly isListenerOutside?: boolean
  } = {}
) {
  const engines: Array<CellEngine> = []
  yield* leavesNothing(engines)
  const { cell } = yield* makeWorld(options.network)
  const server = yield* cell({ fqcn: "server", ...options.server })
  const site = yield* cell({ fqcn: "site-1", ...options.site })
  engines.push(server, site)
  const listen = server.cell.listen("memory://server")
  yield* options.isListenerOutside === true ? listen : Scope.provide(listen, server.scope)
  yield* Scope.provide(site.cell.connect("memory://server"), site.scope)
  yield* until(server.cell, "site-1")
  yield* until(site.cell, "server")
  return { server, site }
})

/** A request to a source, by hand. */
export const ask = (cell: Cell["Service"], source: string, request: unknown) =>
  Effect.map(cell.request(source, downloadAddress, request, { timeout: "10 seconds" }), ({ payload, returnCode }) => ({
    returnCode,
    payload
  }))

export const dict = (entries: Readonly<Record<string, unknown>>): Map<string, unknown> =>
  new Map(Object.entries(entries))

/** Takes all arrays out, for downloads that a test serves by itself. */
export const fakeReferences = (downloads: ReadonlyArray<Download>): ReferenceSink => {
  const counts = new Map<number, number>()
  return {
    add: (dot) => {
      const count = counts.get(dot) ?? 0
      counts.set(dot, count + 1)
      return downloads.some((download) => download.dot === dot) ? `T${count}` : undefined
    },
    downloads: () => downloads
  }
}

/** Serves downloads by hand, in place of the cell's own service. */
export const serve = (
  cell: Cell["Service"],
  answer: (request: ReadonlyMap<unknown, unknown>, message: CellRequest) => Effect.Effect<CellReply | undefined>
) =>
  cell.handle(downloadAddress, (message) => {
    assert.instanceOf(message.payload, Map)
    return answer(message.payload, message)
  })

export const data = (start: number, items: ReadonlyArray<unknown>): CellReply => ({
  returnCode: "ok",
  payload: new Map<string, unknown>([
    ["status", "ok"],
    [
      "state",
      new Map([
        ["start", start],
        ["count", items.length]
      ])
    ],
    ["data", items],
    ["cancel_capable", true]
  ])
})

export const eof = (nonce: string): CellReply => ({
  returnCode: "ok",
  payload: dict({ status: "eof", confirm_expected: true, confirm_nonce: nonce })
})

// ---- Recorded exchanges (test/fixtures/fobs/README.md).

const folder = new URL("../fixtures/fobs/exchanges/", import.meta.url)

export interface RecordedMessage {
  readonly from: string
  readonly to: string
  readonly channel: string
  readonly topic: string
  readonly headers: Readonly<Record<string, unknown>>
  readonly bytes: Uint8Array
}

export interface Exchange {
  readonly source: string
  readonly receiver: string
  readonly outcome: ReadonlyArray<{
    readonly status: string
    readonly reason: string
    readonly done_status: string
    readonly refs: ReadonlyArray<{
      readonly ref_id: string
      readonly receiver_statuses: Readonly<Record<string, string>>
    }>
  }>
  readonly params: { readonly v: ReadonlyArray<readonly [{ readonly v: string }, RecordedArray]> }
  readonly messages: ReadonlyArray<RecordedMessage>
}

export interface RecordedArray {
  readonly dtype: string
  readonly shape: ReadonlyArray<number>
  readonly fortran: boolean
  readonly sha256: string
}

export const loadExchange = (name: string): Exchange => {
  const json = JSON.parse(readFileSync(new URL(`${name}.json`, folder), "utf8"))
  return {
    ...json,
    messages: json.messages.map((message: { readonly file: string }) => {
      const file = readFileSync(new URL(message.file, folder))
      return { ...message, bytes: Uint8Array.from(message.file.endsWith(".gz") ? gunzipSync(file) : file) }
    })
  }
}

export const loadProbe = (): ReadonlyArray<ProbeStep> =>
  JSON.parse(readFileSync(new URL("producer_probe.json", folder), "utf8"))

export interface ProbeStep {
  readonly label: string
  readonly topic?: string
  readonly request?: Node
  readonly reply_headers?: { readonly cn__return_code: string; readonly cn__error?: string }
  readonly reply?: Node
  readonly fire_and_forget?: boolean
  readonly outcome?: {
    readonly status: string
    readonly reason: string
    readonly done_status: string
    readonly refs: ReadonlyArray<Readonly<Record<string, string>>>
  }
  readonly done?: boolean
}

interface Node {
  readonly t: string
  readonly v?: unknown
  readonly len?: number
  readonly sha256?: string
}
