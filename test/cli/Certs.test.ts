import { statSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Option, Result } from "effect"
import * as CellCredentials from "../../src/cell/CellCredentials.ts"
import { certs } from "../../src/cli/Certs.ts"
import { makeScreen, Screen } from "../../src/cli/internal/Screen.ts"
import * as CertificateChain from "../../src/identity/CertificateChain.ts"
import { inFolder } from "../../src/identity/Credentials.ts"
import * as TlsContext from "../../src/identity/TlsContext.ts"
import * as NodeAttach from "../../src/service/NodeAttach.ts"
import { temporaryFolder } from "./support.ts"

const lines: Array<string> = []
const screen = makeScreen({ isTerminal: false, columns: () => 80, out: (text) => lines.push(text), err: () => {} })
const usual = { ca: Option.none<string>(), hosts: [], days: 30 }

const run = (options: Parameters<typeof certs>[0]) =>
  certs(options).pipe(Effect.provideService(Screen, Screen.of(screen)), Effect.provide(NodeAttach.layerPlatform))

describe("fl-attach certs", () => {
  it.live("makes a site's files, which serve TLS and protected messages, and another site's by the same root", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const [first, second] = [join(folder, "a"), join(folder, "b")]
      yield* run({ ...usual, dir: first, site: "site-1", hosts: ["cp.example"] })
      yield* run({ ...usual, dir: second, site: "site-2", ca: Option.some(first), days: 300 })
      assert.include(lines.join(""), "for tests only")
      const own = yield* CellCredentials.load(inFolder(first))
      assert.strictEqual(own.checked.commonName, "site-1")
      const other = yield* CellCredentials.load(inFolder(second))
      const now = yield* Clock.currentTimeMillis
      const checked = CertificateChain.check(other.certificate, own.root, now)
      assert.isTrue(Result.isSuccess(checked))
      // Not longer than its root.
      assert.strictEqual(other.checked.notAfter, own.checked.notAfter)
      for (const security of ["mtls", "tls"] as const) {
        yield* TlsContext.forListener(inFolder(first), { security, fallback: false })
        yield* TlsContext.forDialer(inFolder(second), { security, fallback: false })
      }
      for (const [name, mode] of [
        ["rootCA.key", 0o600],
        ["client.key", 0o600],
        ["server.key", 0o600],
        ["rootCA.pem", 0o644]
      ] as const) {
        assert.strictEqual(statSync(join(first, name)).mode & 0o777, mode, name)
      }
    })
  )

  it.live("writes nothing over, and says what is wrong", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      yield* run({ ...usual, dir: folder, site: "site-1" })
      const cases = [
        [{ ...usual, dir: folder, site: "site-1" }, /is there already/],
        [{ ...usual, dir: join(folder, "x"), site: "site/1" }, /--site/],
        [{ ...usual, dir: join(folder, "x"), site: "site-1", days: 0 }, /--days/],
        [{ ...usual, dir: join(folder, "x"), site: "site-1", ca: Option.some("/nowhere") }, /--ca/]
      ] as const
      for (const [options, message] of cases) {
        const error = yield* Effect.flip(run(options))
        assert.deepInclude({ ...error }, { exitCode: 2 })
        assert.match(error.message, message)
      }
    })
  )
})
